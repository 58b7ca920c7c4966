"""Which workouts are copies of each other, and which copy counts.

A workout that reaches Tally from two sources counts once. Two workouts are copies if one of them is
a file, both are of the same user and family, they start within a minute of each other, their times
overlap and their distances differ by at most 3 %. Strava decides about its own duplicates, so two
activities of Strava are never copies.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from tally.collect.model.records import Sport
from tally.collect.model.workouts import SPORT_FAMILIES, Workout

MAX_START_DIFFERENCE_SECONDS: Final = 60
MAX_DISTANCE_DIFFERENCE_PERCENT: Final = 3


def workout_family(workout: Workout) -> Sport | None:
    return SPORT_FAMILIES.get(workout.sport_type)


def start_epoch(workout: Workout) -> float:
    return datetime.fromisoformat(workout.started_at).timestamp()


def is_copy(first: Workout, second: Workout) -> bool:
    """Whether two workouts are the same one from two sources. Symmetric, not transitive."""
    if first.workout_id == second.workout_id or not (first.is_file or second.is_file):
        return False
    family = workout_family(first)
    if first.user_id != second.user_id or family is None or family is not workout_family(second):
        return False
    return _times_match(first, second) and _distances_match(first, second)


def _times_match(first: Workout, second: Workout) -> bool:
    start, second_start = start_epoch(first), start_epoch(second)
    end = min(start + first.elapsed_seconds, second_start + second.elapsed_seconds)
    is_overlapping = max(start, second_start) <= end
    return is_overlapping and abs(start - second_start) <= MAX_START_DIFFERENCE_SECONDS


def _distances_match(first: Workout, second: Workout) -> bool:
    shorter, longer = sorted((Decimal(first.distance), Decimal(second.distance)))
    return (longer - shorter) * 100 <= longer * MAX_DISTANCE_DIFFERENCE_PERCENT


def assign_originals(workouts: Iterable[Workout]) -> dict[str, str | None]:
    """Return for each workout the one that counts instead of it, or None if it counts itself.

    No two workouts that count are copies, and every other one is a copy of the one it refers to.
    Deleted and separated workouts have no copies. A flagged activity comes first, so that a file
    cannot replace it. Next come workouts that count already, so that the first one keeps counting.
    """
    originals: list[Workout] = []
    assigned: dict[str, str | None] = {}
    for workout in sorted(workouts, key=_precedence):
        if _has_no_copies(workout):
            assigned[workout.workout_id] = None
            continue
        found = next((known for known in originals if is_copy(known, workout)), None)
        assigned[workout.workout_id] = None if found is None else found.workout_id
        if found is None:
            originals.append(workout)
    return assigned


def _precedence(workout: Workout) -> tuple[bool, bool, str]:
    return not workout.is_flagged, workout.duplicate_of is not None, workout.workout_id


def plan_changes(
    workout: Workout, known: Workout | None, nearby: Iterable[Workout]
) -> tuple[Workout, list[Workout]]:
    """Decide about the next version of a workout and the copies that it has or had.

    Return the workout with its reference, and the copies whose reference changes: first those that
    stop counting, so that no part of the changes counts a workout twice.
    """
    states = [workout] if known is None else [workout, known]
    group = _connected(states, [other for other in nearby if not _has_no_copies(other)])
    assigned = assign_originals([workout, *group])
    changed = [
        replace(copy, duplicate_of=assigned[copy.workout_id], version=copy.version + 1)
        for copy in group
        if copy.duplicate_of != assigned[copy.workout_id]
    ]
    decided = replace(workout, duplicate_of=assigned[workout.workout_id])
    return decided, sorted(changed, key=lambda copy: copy.duplicate_of is None)


def _connected(states: Sequence[Workout], others: Iterable[Workout]) -> list[Workout]:
    """Return the copies of the states of a workout, their copies, and so on."""
    workout_id = states[0].workout_id
    rest = [other for other in others if other.workout_id != workout_id]
    found = [other for other in rest if other.duplicate_of == workout_id]
    queue = [*states, *found]
    while queue:
        current = queue.pop()
        copies = [other for other in rest if other not in found and is_copy(current, other)]
        found += copies
        queue += copies
    return found


def widen(period: tuple[str, str], seconds: int) -> tuple[str, str]:
    """Return a range of start times that begins earlier and ends later."""
    return _shift(period[0], -seconds), _shift(period[1], seconds)


def _shift(started_at: str, seconds: int) -> str:
    """Move a time; at the ends of the calendar it stays where it is."""
    try:
        moved = datetime.fromisoformat(started_at) + timedelta(seconds=seconds)
    except OverflowError:
        return started_at
    return moved.astimezone(UTC).isoformat(timespec="seconds").removesuffix("+00:00") + "Z"


def _has_no_copies(workout: Workout) -> bool:
    return workout.is_deleted or workout.is_separated
