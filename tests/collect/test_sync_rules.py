"""Steps of a sync bring the stored workouts to the state of the list, whatever they were."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tally.collect.model.sync import (
    KnownPage,
    ListedPage,
    SyncCursor,
    SyncStep,
    from_epoch,
    plan_step,
    to_epoch,
)
from tally.collect.model.workouts import Workout, strava_workout_id

START = 1_700_000_000
ATHLETE = 7
FILE_ID = "FILE#0123456789abcdef0123456789abcdef"


def workout(number: int, start: int, metres: int = 1000, **changes: object) -> Workout:
    found = Workout(
        user_id="ann",
        workout_id=strava_workout_id(number),
        name="Ride",
        sport_type="Ride",
        started_at=from_epoch(START + start),
        distance=metres,
        elevation=0,
        moving_seconds=60,
        elapsed_seconds=60,
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def by_start(workouts: Sequence[Workout], after: int) -> list[Workout]:
    later = (found for found in workouts if to_epoch(found.started_at) > after)
    return sorted(later, key=lambda found: (found.started_at, found.workout_id))


def page_of(workouts: Sequence[Workout], size: int) -> tuple[list[Workout], bool]:
    return list(workouts[:size]), len(workouts) <= size


def run_sync(
    listed: Sequence[Workout], stored: dict[str, Workout], list_size: int, known_size: int
) -> list[SyncStep]:
    """Run all steps and apply them to `stored`, with verified deletions of what is missing."""
    cursor: SyncCursor | None = SyncCursor(START, START - 1, 0)
    steps: list[SyncStep] = []
    present = {found.workout_id: found for found in listed}
    while cursor is not None:
        assert len(steps) <= 2 * (len(listed) + len(stored)) + 2, "the sync makes no progress"
        known = KnownPage(*page_of(by_start(list(stored.values()), cursor.after), known_size))
        page = ListedPage(*page_of(by_start(listed, cursor.after), list_size))
        step = plan_step(cursor, known, page, "ann", ATHLETE)
        for changed, read in step.changed:
            # Otherwise it moved in time: the conditional put fails, and the inbox verifies it.
            if read == stored.get(changed.workout_id):
                stored[changed.workout_id] = changed
            else:
                stored[changed.workout_id] = replace(present[changed.workout_id], version=99)
        for number in step.missing:
            found = present.get(strava_workout_id(number))
            if found is None:
                del stored[strava_workout_id(number)]
            else:
                stored[strava_workout_id(number)] = replace(found, version=99)
        steps.append(step)
        cursor = step.cursor
    return steps


activity = st.tuples(st.integers(0, 30), st.integers(1, 3))
state = st.dictionaries(st.integers(1, 30), activity, max_size=15)


def _most_in_a_second(activities: dict[int, tuple[int, int]]) -> int:
    starts = Counter(start for start, _ in activities.values())
    return max(starts.values(), default=0)


@settings(max_examples=200, deadline=None)
@given(at_strava=state, known=state, list_size=st.integers(3, 7), known_size=st.integers(4, 9))
def test_any_stored_state_becomes_that_of_the_list(
    at_strava: dict[int, tuple[int, int]],
    known: dict[int, tuple[int, int]],
    list_size: int,
    known_size: int,
) -> None:
    """Unless more activities or workouts than a page holds start in the same second."""
    assume(_most_in_a_second(at_strava) < list_size and _most_in_a_second(known) < known_size)
    listed = [workout(number, start, metres) for number, (start, metres) in at_strava.items()]
    stored = {
        strava_workout_id(number): workout(number, start, metres, version=1)
        for number, (start, metres) in known.items()
    }
    run_sync(listed, stored, list_size, known_size)
    expected = {found.workout_id: found for found in listed}
    assert {key: replace(found, version=0) for key, found in stored.items()} == expected
    assert all(not step.changed and not step.missing for step in run_sync(listed, stored, 7, 9))


def test_an_unchanged_workout_is_not_written() -> None:
    """Its version, its duplicate and its separation stay."""
    known = workout(1, 0, version=4, event_time=7, duplicate_of=FILE_ID, is_separated=True)
    cursor = SyncCursor(START, START - 1, 0)
    known_page = KnownPage([known], is_last=True)
    step = plan_step(cursor, known_page, ListedPage([workout(1, 0)], is_last=True), "ann", ATHLETE)
    assert (step.changed, step.missing, step.cursor) == ([], [], None)
    edited = ListedPage([workout(1, 0, 2000, is_flagged=True)], is_last=True)
    [(written, read)] = plan_step(cursor, known_page, edited, "ann", ATHLETE).changed
    assert (written, read) == (replace(known, distance=2000, is_flagged=True), known)


def test_imported_files_are_never_missing() -> None:
    cursor = SyncCursor(START, START - 1, 0)
    imported = replace(workout(1, 0), workout_id=FILE_ID)
    known, empty = KnownPage([imported], is_last=True), ListedPage([], is_last=True)
    assert plan_step(cursor, known, empty, "ann", ATHLETE).missing == []


def test_activities_of_an_athlete_linked_before_are_not_missing() -> None:
    """Unknown ones may be of this athlete."""
    own, other = workout(1, 0, athlete_id=ATHLETE), workout(2, 0, athlete_id=ATHLETE + 1)
    known, empty = KnownPage([own, other, workout(3, 0)], is_last=True), ListedPage([], True)
    cursor = SyncCursor(START, START - 1, 0)
    assert plan_step(cursor, known, empty, "ann", ATHLETE).missing == [1, 3]


def test_a_page_of_one_second_makes_progress() -> None:
    """The caller lists all activities of that second; those that a page lacks are left out."""
    listed = [workout(number, 0) for number in range(1, 6)]
    stored: dict[str, Workout] = {}
    run_sync(listed, stored, 3, 9)
    assert len(stored) == 3
