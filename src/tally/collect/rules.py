"""How far a milestone has come: which workouts count, where the parts lie, and why nothing ever goes back."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from math import floor
from typing import Final

from tally.collect.model import (
    MAX_PARTS,
    MAX_TARGET,
    Effort,
    Held,
    Metric,
    Milestone,
    Number,
    Sport,
    Status,
)
from tally.errors import Invalid

# Strava's sport types by family; what is not here counts for no milestone.
FAMILIES: Final = {
    **dict.fromkeys(
        (
            "Ride",
            "VirtualRide",
            "GravelRide",
            "MountainBikeRide",
            "EBikeRide",
            "EMountainBikeRide",
            "Handcycle",
            "Velomobile",
        ),
        Sport.RIDE,
    ),
    **dict.fromkeys(("Run", "TrailRun", "VirtualRun", "TreadmillRun"), Sport.RUN),
    **dict.fromkeys(("Swim", "OpenWaterSwim"), Sport.SWIM),
    **dict.fromkeys(("Walk", "Hike"), Sport.WALK),
}


@dataclass(frozen=True, slots=True)
class Advance:
    """A milestone as it should be, and the parts that it lacks in the ledger."""

    milestone: Milestone
    minted: tuple[int, ...]
    is_changed: bool


def threshold(total_target: int, part: int, parts_total: int) -> int:
    """What has to be reached for part k: a k-th of the goal, rounded up, so that the last one comes with the goal."""
    return -(-total_target * part // parts_total)


def parts_earned(progress: Number, total_target: int, parts_total: int) -> int:
    return min(parts_total, floor(progress) * parts_total // total_target)


def percent_of(progress: Number, total_target: int) -> int:
    """Whole percent, rounded down, at most 100."""
    return (
        min(100, floor(progress * 100 / Decimal(total_target))) if progress < total_target else 100
    )


def is_eligible(milestone: Milestone, effort: Effort) -> bool:
    if effort.is_deleted or FAMILIES.get(effort.sport_type) is not milestone.sport:
        return False
    is_before_end = milestone.period_end is None or effort.started_at < milestone.period_end
    return milestone.period_start <= effort.started_at and is_before_end


def measured(milestone: Milestone, efforts: Iterable[Effort]) -> Number:
    """The sum of what counts."""
    by_distance = milestone.metric is Metric.DISTANCE_METERS
    return sum(
        (
            (effort.distance if by_distance else effort.elevation)
            for effort in efforts
            if is_eligible(milestone, effort)
        ),
        Decimal(0),
    )


def advance(held: Held, reached: Number, now: str) -> Advance:
    """What a milestone becomes when so much has been measured.

    Progress, percent, parts and status never go down.

    The ledger says which parts there are: the counter follows it, and parts that the progress has
    earned but the ledger lacks are minted, whatever the counter says.
    """
    before = held.milestone
    progress = max(before.progress, reached)
    earned = parts_earned(progress, before.total_target, before.parts_total)
    minted = tuple(part for part in range(1, earned + 1) if part not in held.ledger)
    is_complete = before.status is Status.COMPLETED or earned == before.parts_total
    after = replace(
        before,
        progress=progress,
        percent=max(before.percent, percent_of(progress, before.total_target)),
        parts_minted=len(held.ledger) + len(minted),
        status=Status.COMPLETED if is_complete else Status.ACTIVE,
        completed_at=before.completed_at or (now if is_complete else None),
    )
    if after == before and not minted:
        return Advance(before, (), is_changed=False)
    return Advance(
        replace(after, updated_at=now, version=before.version + 1), minted, is_changed=True
    )


def check_goal(total_target: int, parts_total: int) -> None:
    """Refuse a goal that no ledger can hold."""
    if not 1 <= total_target <= MAX_TARGET:
        message = f"totalTarget must be a whole number of metres from 1 to {MAX_TARGET}"
        raise Invalid(message, code="invalid_field", field="totalTarget")
    if not 1 <= parts_total <= MAX_PARTS:
        raise Invalid(f"A model has 1 to {MAX_PARTS} parts", code="invalid_field", field="modelId")


def check_period(start: str, end: str | None) -> None:
    if end is not None and end <= start:
        raise Invalid(
            "periodEndAtUtc must be later than periodStartAtUtc",
            code="invalid_field",
            field="periodEndAtUtc",
        )
