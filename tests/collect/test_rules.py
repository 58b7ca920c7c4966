"""The milestone rules, for any target, number of parts and history."""

from decimal import Decimal
from fractions import Fraction
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally.collect.model.records import (
    Award,
    Metric,
    Milestone,
    MilestoneStatus,
    MilestoneWithAwards,
    Sport,
)
from tally.collect.model.rules import (
    advance,
    check_goal,
    check_period,
    is_eligible,
    part_threshold,
    parts_earned,
    progress_percent,
    retarget,
    total_progress,
)
from tally.collect.model.validation import normalize_metres, parse_time
from tally.collect.model.workouts import SPORT_FAMILIES, WorkoutProjection
from tally.collect.service.models import bundled_models
from tally.errors import Invalid
from tests.collect import factories

TARGETS = st.integers(1, 1_000_000_000)
PARTS = st.integers(1, 99)
METRES = st.decimals(0, 2_000_000_000, places=3)
MODEL = factories.model(99)


def award(milestone: Milestone, index: int) -> Award:
    return Award(
        milestone.user_id,
        milestone.milestone_id,
        milestone.model_id,
        MODEL.parts[index - 1],
        1,
        factories.LATER_TIME,
    )


@given(TARGETS, PARTS, METRES)
def test_a_part_is_earned_exactly_at_its_threshold(
    total: int, parts: int, progress: Decimal
) -> None:
    """The earned parts are those whose threshold is reached."""
    thresholds = [part_threshold(total, part, parts) for part in range(1, parts + 1)]
    assert thresholds == [ceil(Fraction(total * part, parts)) for part in range(1, parts + 1)]
    assert parts_earned(progress, total, parts) == sum(
        threshold <= progress for threshold in thresholds
    )


@given(TARGETS, PARTS)
def test_the_last_part_is_earned_at_the_target(total: int, parts: int) -> None:
    """And not a millimetre earlier."""
    assert part_threshold(total, parts, parts) == total
    assert parts_earned(total, total, parts) == parts
    assert parts_earned(total - Decimal("0.001"), total, parts) < parts
    assert progress_percent(total, total) == 100
    assert progress_percent(total - Decimal("0.001"), total) < 100


@given(st.integers(1, 100_000), st.integers(1, 20), st.lists(METRES, max_size=12))
def test_progress_never_decreases(total: int, parts: int, history: list[Decimal]) -> None:
    """Progress, percent, parts and status only increase, and each part is minted once."""
    current = MilestoneWithAwards(factories.milestone("ann", total_target=total, parts_total=parts))
    for reached in history:
        step = advance(current, reached, factories.LATER_TIME)
        before, after = current.milestone, step.milestone
        assert after.progress >= max(before.progress, reached)
        assert after.percent >= before.percent
        assert after.parts_minted >= before.parts_minted
        assert not (
            before.status is MilestoneStatus.COMPLETED and after.status is MilestoneStatus.ACTIVE
        )
        assert after.version == before.version + step.is_changed
        assert not current.ledger & set(step.minted)
        current = MilestoneWithAwards(
            after, (*current.awards, *(award(after, part) for part in step.minted))
        )
        assert current.ledger == set(range(1, parts_earned(after.progress, total, parts) + 1))
        assert after.parts_minted == len(current.ledger)
        assert (after.status is MilestoneStatus.COMPLETED) == (len(current.ledger) == parts)


TARGET_CHANGES = st.tuples(st.just("target"), st.integers(1, 100_000))
RUNS = st.tuples(st.just("run"), METRES)


@given(st.integers(1, 100_000), st.integers(1, 20), st.lists(TARGET_CHANGES | RUNS, max_size=12))
def test_a_changed_target_never_takes_anything_away(
    total: int, parts: int, history: list[tuple[str, Any]]
) -> None:
    """Progress, parts and status only increase, and no threshold of an award changes."""
    current = MilestoneWithAwards(factories.milestone("ann", total_target=total, parts_total=parts))
    for kind, number in history:
        before = current.milestone
        if kind == "run":
            step = advance(current, number, factories.LATER_TIME)
        elif current.awards:
            continue  # the service refuses the change
        else:
            step = retarget(current, number, factories.LATER_TIME)
            assert step.milestone.total_target == number
        after = step.milestone
        assert after.progress >= before.progress
        assert after.parts_minted >= before.parts_minted
        assert not (
            before.status is MilestoneStatus.COMPLETED and after.status is MilestoneStatus.ACTIVE
        )
        assert after.version == before.version + step.is_changed
        assert not current.ledger & set(step.minted)
        current = MilestoneWithAwards(
            after, (*current.awards, *(award(after, part) for part in step.minted))
        )
        earned = parts_earned(after.progress, after.total_target, parts)
        assert current.ledger == set(range(1, earned + 1))
        assert after.percent == progress_percent(after.progress, after.total_target)


@given(st.integers(0, 12), st.integers(0, 12), st.sets(st.integers(1, 12)))
def test_the_ledger_repairs_the_counter(progress: int, counter: int, ledger: set[int]) -> None:
    """After one run the counter equals the ledger, which contains every earned part."""
    milestone = factories.milestone("ann", total_target=12, progress=progress, parts_minted=counter)
    current = MilestoneWithAwards(
        milestone, tuple(award(milestone, part) for part in sorted(ledger))
    )
    step = advance(current, 0, factories.LATER_TIME)
    assert ledger | set(step.minted) == ledger | set(range(1, progress + 1))
    assert step.milestone.parts_minted == len(ledger | set(step.minted))
    again = MilestoneWithAwards(
        step.milestone, (*current.awards, *(award(milestone, part) for part in step.minted))
    )
    assert not advance(again, 0, factories.LATER_TIME).is_changed


WORKOUT = WorkoutProjection(
    "STRAVA#1", Sport.RIDE, factories.LATER_TIME, Decimal(1000), Decimal(50)
)


@pytest.mark.parametrize(
    ("workout", "counts"),
    [
        (WORKOUT, True),
        (WORKOUT._replace(family=Sport.RUN), False),
        (WORKOUT._replace(started_at=factories.TIME), True),
        (WORKOUT._replace(started_at="2025-12-31T23:59:59Z"), False),
        (WORKOUT._replace(started_at="2026-02-01T00:00:00Z"), False),
        (WORKOUT._replace(started_at="2026-01-31T23:59:59Z"), True),
    ],
)
def test_eligibility_depends_on_sport_and_time(workout: WorkoutProjection, counts: bool) -> None:
    """The start of the period is inclusive, the end exclusive."""
    goal = factories.milestone("ann", period_end="2026-02-01T00:00:00Z")
    assert is_eligible(goal, workout) is counts
    assert total_progress(goal, [workout, WORKOUT]) == (2000 if counts else 1000)


def test_a_model_may_exclude_manual_workouts() -> None:
    """They count unless it does."""
    manual = WORKOUT._replace(is_manual=True)
    assert is_eligible(factories.milestone("ann"), manual)
    strict = factories.milestone("ann", counts_manual=False)
    assert not is_eligible(strict, manual)
    assert is_eligible(strict, WORKOUT)


def test_the_metric_selects_the_elevation() -> None:
    """Instead of the distance."""
    assert (
        total_progress(
            factories.milestone("ann", metric=Metric.ELEVATION_METERS), [WORKOUT, WORKOUT]
        )
        == 100
    )


@pytest.mark.parametrize(
    ("sport_type", "family"),
    [
        ("VirtualRide", Sport.RIDE),
        ("MountainBikeRide", Sport.RIDE),
        ("TrailRun", Sport.RUN),
        ("VirtualRun", Sport.RUN),
        ("TreadmillRun", Sport.RUN),
        ("Swim", Sport.SWIM),
        ("Hike", Sport.WALK),
        ("Walk", Sport.WALK),
        ("Yoga", None),
    ],
)
def test_sport_types_map_to_families(sport_type: str, family: Sport | None) -> None:
    """Unknown types have no family."""
    assert SPORT_FAMILIES.get(sport_type) is family


def test_invalid_goals_and_periods_are_rejected() -> None:
    """The error names the field."""
    for total in (0, -5, 1_000_000_001):
        with pytest.raises(Invalid, match="totalTarget"):
            check_goal(total, 12)
    with pytest.raises(Invalid, match="periodEndAtUtc"):
        check_period(factories.LATER_TIME, factories.LATER_TIME)
    for text in ("yesterday", "2026-01-01", "2026-01-01T00:00:00", "9999-12-31T23:59:59-23:00"):
        with pytest.raises(Invalid, match="start must be an RFC 3339 time"):
            parse_time(text, "start")
    assert parse_time("2026-01-01T02:00:00.7+02:00", "start") == factories.TIME


def test_invalid_distances_count_as_zero() -> None:
    """Strava sends floats, which may be anything."""
    assert [
        normalize_metres(value) for value in (None, Decimal("NaN"), Decimal(-1), Decimal("1e99"))
    ] == [
        0,
        0,
        0,
        0,
    ]
    assert normalize_metres(Decimal("10.12345")) == Decimal("10.123")


def test_every_bundled_model_has_twelve_complete_parts() -> None:
    """Each has a unique name, complete primitives, and a parent with a lower index."""
    models = bundled_models()
    assert len(models) >= 3
    for model_id, model in models.items():
        assert model.meta.model_id == model_id
        assert model.meta.parts_total == 12
        assert [part.index for part in model.parts] == list(range(1, 13))
        assert len({part.name for part in model.parts}) == 12
        for part in model.parts:
            assert part.mesh
            for primitive in part.mesh:
                assert set(primitive) == {"shape", "position", "rotation", "scale", "colour"}
                assert primitive["shape"] in {"box", "sphere", "cylinder", "cone", "torus"}
            assert (
                part.attach["to"] is None
                if part.index == 1
                else 1 <= part.attach["to"] < part.index
            )
