"""Milestone rules: which workouts count, when a part is earned, and how progress advances."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from math import floor

from tally.collect.model.records import (
    MAX_PARTS,
    MAX_TARGET,
    Metric,
    Milestone,
    MilestoneStatus,
    MilestoneWithAwards,
    Number,
)
from tally.collect.model.workouts import WorkoutProjection
from tally.errors import Invalid


@dataclass(frozen=True, slots=True)
class Advance:
    """The new state of a milestone and the indexes of the parts to mint."""

    milestone: Milestone
    minted: tuple[int, ...]
    is_changed: bool


def part_threshold(total_target: int, part: int, parts_total: int) -> int:
    """Return the progress that earns a part.

    Rounded up, so that the last part is earned with the goal.
    """
    return -(-total_target * part // parts_total)


def parts_earned(progress: Number, total_target: int, parts_total: int) -> int:
    return min(parts_total, floor(progress) * parts_total // total_target)


def progress_percent(progress: Number, total_target: int) -> int:
    """Return whole percent, rounded down, at most 100."""
    return (
        min(100, floor(progress * 100 / Decimal(total_target))) if progress < total_target else 100
    )


def is_eligible(milestone: Milestone, workout: WorkoutProjection) -> bool:
    """Whether a workout counts: right sport, recorded as required, within the period."""
    if workout.family is not milestone.sport:
        return False
    if workout.is_manual and not milestone.counts_manual:
        return False
    is_before_end = milestone.period_end is None or workout.started_at < milestone.period_end
    return milestone.period_start <= workout.started_at and is_before_end


def total_progress(milestone: Milestone, workouts: Iterable[WorkoutProjection]) -> Number:
    """Sum the metric over all eligible workouts."""
    by_distance = milestone.metric is Metric.DISTANCE_METERS
    return sum(
        (
            (workout.distance if by_distance else workout.elevation)
            for workout in workouts
            if is_eligible(milestone, workout)
        ),
        Decimal(0),
    )


def advance(current: MilestoneWithAwards, reached: Number, now: str) -> Advance:
    """Compute the milestone for the progress reached.

    Progress, percent, parts and status never decrease. The ledger is the source of truth: the
    counter follows it, and parts that are earned but missing from the ledger are minted.
    """
    before = current.milestone
    progress = max(before.progress, reached)
    earned = parts_earned(progress, before.total_target, before.parts_total)
    minted = tuple(part for part in range(1, earned + 1) if part not in current.ledger)
    is_complete = before.status is MilestoneStatus.COMPLETED or earned == before.parts_total
    after = replace(
        before,
        progress=progress,
        percent=max(before.percent, progress_percent(progress, before.total_target)),
        parts_minted=len(current.ledger) + len(minted),
        status=MilestoneStatus.COMPLETED if is_complete else MilestoneStatus.ACTIVE,
        completed_at=before.completed_at or (now if is_complete else None),
        stalled_reason=None,
    )
    if after == before and not minted:
        return Advance(before, (), is_changed=False)
    return Advance(
        replace(after, updated_at=now, version=before.version + 1), minted, is_changed=True
    )


def retarget(current: MilestoneWithAwards, total_target: int, now: str) -> Advance:
    """Compute the milestone with another target, and mint what its progress earns at once.

    Only a milestone without awards has a new target, so that no threshold of an award changes.
    """
    before = current.milestone
    if total_target == before.total_target:
        return Advance(before, (), is_changed=False)
    percent = progress_percent(before.progress, total_target)
    edited = replace(before, total_target=total_target, percent=percent)
    step = advance(replace(current, milestone=edited), before.progress, now)
    after = replace(step.milestone, stalled_reason=before.stalled_reason, updated_at=now)
    return Advance(replace(after, version=before.version + 1), step.minted, is_changed=True)


def check_goal(total_target: int, parts_total: int) -> None:
    """Require a target and a number of parts within their limits."""
    if not 1 <= total_target <= MAX_TARGET:
        message = f"totalTarget must be whole metres from 1 to {MAX_TARGET}"
        raise Invalid(message, code="invalid_field", field="totalTarget")
    if not 1 <= parts_total <= MAX_PARTS:
        raise Invalid(
            f"modelId must name a model with 1 to {MAX_PARTS} parts",
            code="invalid_field",
            field="modelId",
        )


def check_period(start: str, end: str | None) -> None:
    if end is not None and end <= start:
        raise Invalid(
            "periodEndAtUtc must be later than periodStartAtUtc",
            code="invalid_field",
            field="periodEndAtUtc",
        )
