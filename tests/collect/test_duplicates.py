"""The rule that a workout from two sources counts once."""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally.collect.model.duplicates import assign_originals, is_copy, plan_changes, widen
from tally.collect.model.workouts import Workout
from tests.collect import factories

MINUTE = 60


def workout_at(workout_id: str, second: int = 0, **changes: Any) -> Workout:
    minute, rest = divmod(second, 60)
    base = replace(
        factories.workout("user"),
        workout_id=workout_id,
        started_at=f"2026-01-01T06:{minute:02}:{rest:02}Z",
        distance=Decimal(10_000),
        elapsed_seconds=3600,
        version=1,
    )
    return replace(base, **changes)


ACTIVITY = workout_at("STRAVA#000000000001")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"started_at": "2026-01-01T06:01:00Z"}, True),
        ({"started_at": "2026-01-01T06:01:01Z"}, False),
        ({"started_at": "2026-01-01T05:59:00Z"}, True),
        ({"started_at": "2026-01-01T05:59:30Z", "elapsed_seconds": 29}, False),
        ({"distance": Decimal(9_700)}, True),
        ({"distance": Decimal("9699.9")}, False),
        ({"distance": Decimal(10_309)}, True),
        ({"distance": Decimal(10_310)}, False),
        ({"sport_type": "GravelRide"}, True),
        ({"sport_type": "Run"}, False),
        ({"sport_type": "Unknown"}, False),
        ({"user_id": "another"}, False),
        ({"workout_id": "STRAVA#000000000002"}, False),
    ],
)
def test_a_file_is_a_copy_of_an_activity(changes: Mapping[str, Any], expected: bool) -> None:
    """Same user and family, starts within a minute, overlapping, distance within 3 %."""
    other = replace(workout_at("FILE#a"), **changes)
    assert is_copy(ACTIVITY, other) is is_copy(other, ACTIVITY) is expected


def test_the_one_that_counts_keeps_counting() -> None:
    """Whichever source came first."""
    new_file = workout_at("FILE#a", duplicate_of="FILE#a")
    assert plan_changes(new_file, None, [ACTIVITY]) == (
        replace(new_file, duplicate_of=ACTIVITY.workout_id),
        [],
    )
    new_activity = replace(ACTIVITY, duplicate_of=ACTIVITY.workout_id)
    first = workout_at("FILE#a")
    assert plan_changes(new_activity, None, [first])[0].duplicate_of == "FILE#a"


def test_a_copy_counts_when_the_first_is_deleted() -> None:
    """One of two copies counts, and the other refers to it."""
    copies = [workout_at(f"FILE#{name}", duplicate_of=ACTIVITY.workout_id) for name in "ab"]
    deleted = replace(ACTIVITY, is_deleted=True, version=2)
    decided, changed = plan_changes(deleted, ACTIVITY, [ACTIVITY, *copies])
    assert decided == deleted
    assert [(copy.workout_id, copy.duplicate_of, copy.version) for copy in changed] == [
        ("FILE#b", "FILE#a", 2),
        ("FILE#a", None, 2),
    ]


def test_a_copy_counts_when_the_first_is_edited() -> None:
    """Also if the first moves far away."""
    copy = workout_at("FILE#a", duplicate_of=ACTIVITY.workout_id)
    for edit in (
        replace(ACTIVITY, distance=Decimal(20_000)),
        replace(ACTIVITY, started_at="2025-01-01T00:00:00Z"),
        replace(ACTIVITY, sport_type="Run"),
    ):
        assert plan_changes(edit, ACTIVITY, [copy])[1] == [
            replace(copy, duplicate_of=None, version=2)
        ]


def test_a_file_cannot_replace_a_flagged_activity() -> None:
    flagged = replace(ACTIVITY, is_flagged=True)
    assert assign_originals([workout_at("FILE#a"), flagged])["FILE#a"] == ACTIVITY.workout_id


def test_a_separated_workout_has_no_copies() -> None:
    separated = workout_at("FILE#a", is_separated=True)
    assert assign_originals([ACTIVITY, separated]) == {"FILE#a": None, ACTIVITY.workout_id: None}


def test_two_activities_of_strava_are_no_copies_of_each_other() -> None:
    """Not even through a file that is a copy of both."""
    other = workout_at("STRAVA#000000000002", 50)
    file = workout_at("FILE#a", 25, duplicate_of="FILE#a")
    decided, changed = plan_changes(file, None, [ACTIVITY, other])
    assert decided.duplicate_of == ACTIVITY.workout_id
    assert changed == []


def test_ranges_stay_within_the_calendar() -> None:
    assert widen(("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"), 60) == (
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
    )
    assert widen((ACTIVITY.started_at, ACTIVITY.started_at), 60) == (
        "2026-01-01T05:59:00Z",
        "2026-01-01T06:01:00Z",
    )


workouts = st.builds(
    lambda source, number, second, kilometres, flags: workout_at(
        f"STRAVA#{number:012}" if source else f"FILE#{number}",
        second,
        distance=Decimal(kilometres) * 100,
        is_deleted=flags == 1,
        is_separated=flags == 2,
        is_flagged=flags == 3 and source,
    ),
    st.booleans(),
    st.integers(0, 9),
    st.integers(0, 5 * MINUTE),
    st.integers(100, 106),
    st.integers(0, 8),
)


def check_invariant(stored: Mapping[str, Workout]) -> None:
    """No two workouts that count are copies, and a reference leads to a copy that counts."""
    live = [each for each in stored.values() if not each.is_deleted]
    counting = [each for each in live if each.duplicate_of is None]
    for first, second in itertools.combinations(counting, 2):
        assert first.is_separated or second.is_separated or not is_copy(first, second)
    for each in live:
        if each.duplicate_of is not None:
            original = stored[each.duplicate_of]
            assert is_copy(each, original)
            assert original.duplicate_of is None
            assert not original.is_deleted
            assert not each.is_separated


@given(st.lists(workouts, max_size=25))
def test_after_any_sequence_of_writes_each_workout_counts_once(steps: list[Workout]) -> None:
    """Creations, edits, deletions and separations in any order, with chains of copies."""
    stored: dict[str, Workout] = {}
    for step in steps:
        known = stored.get(step.workout_id)
        reference = step.workout_id if known is None else known.duplicate_of
        target = replace(step, duplicate_of=reference)
        decided, changed = plan_changes(target, known, stored.values())
        stored[step.workout_id] = decided
        for copy in changed:
            # No part of the changes counts a workout twice: those that stop counting come first.
            stored[copy.workout_id] = copy
        check_invariant(stored)
