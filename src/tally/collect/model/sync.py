"""The sync with Strava: its state per user, and what a page of the activity list changes.

A sync reads the list from the start of its range to the present, oldest first. The cursor is a
start time, not a page number, so that activities may come and go while the sync is under way.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from tally.collect.model.workouts import Workout

# Strava's maximum.
LIST_PAGE_SIZE: Final = 200
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SyncCursor:
    """The position of a sync in progress, in epoch seconds: activities up to `after` are synced."""

    range_start: int
    after: int
    started_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StravaSync:
    """The sync of a user's athlete. Every change increments `version`.

    `synced_at` and `synced_from` describe the last complete sync; `cursor` is that of the sync in
    progress. Without `due_at`, no sync is due until the user links again. A gap in the deliveries
    makes a daily sync due earlier. Times are epoch seconds. Flat, because it mirrors one item.
    """

    user_id: str
    athlete_id: int
    link_id: str
    due_at: int | None = None
    is_daily: bool = False
    synced_at: int | None = None
    synced_from: int | None = None
    cursor: SyncCursor | None = None
    requested_at: int = 0
    attempts: int = 0
    lease_until: int = 0
    version: int = 0

    @property
    def is_pending(self) -> bool:
        """Whether a sync was requested or is under way."""
        return self.cursor is not None or (self.due_at is not None and not self.is_daily)


@dataclass(frozen=True, slots=True)
class ListedPage:
    """Consecutive activities of the list, oldest first. `is_last`: no activity follows."""

    activities: Sequence[Workout]
    is_last: bool


@dataclass(frozen=True, slots=True)
class KnownPage:
    """Consecutive stored workouts, oldest first. `is_last`: no workout follows."""

    workouts: Sequence[Workout]
    is_last: bool


@dataclass(frozen=True, slots=True)
class SyncStep:
    """What a page changes: workouts to write with their stored states, and the next cursor.

    `missing` are stored activities that the list lacks. Without a cursor, the sync is complete.
    """

    changed: Sequence[tuple[Workout, Workout | None]]
    missing: Sequence[int]
    cursor: SyncCursor | None


def plan_step(
    cursor: SyncCursor, known: KnownPage, listed: ListedPage, user_id: str, athlete_id: int
) -> SyncStep:
    """Compare a page of the list with the stored workouts that were read before it.

    The step ends before the last start time of a page that is followed by another one, because
    that page may have more activities with the same start time. The list does not have the
    activities of an athlete who was linked before: they are not missing.
    """
    ends = [
        page[-1].started_at
        for page, is_last in (
            (listed.activities, listed.is_last),
            (known.workouts, known.is_last),
        )
        if not is_last
    ]
    end, following = None, None
    if ends:
        # If all start at the same time, the step includes them: a sync always makes progress.
        following = max(to_epoch(min(ends)) - 1, cursor.after + 1)
        end = from_epoch(following + 1)
    stored = {workout.workout_id: workout for workout in known.workouts}
    activities = [found for found in listed.activities if end is None or found.started_at < end]
    changed = [
        change
        for found in activities
        if (change := _change(found, stored.get(found.workout_id), user_id)) is not None
    ]
    present = {found.workout_id for found in listed.activities}
    missing = [
        workout.activity_id
        for workout in known.workouts
        if workout.activity_id is not None
        and workout.may_belong_to(athlete_id)
        and workout.workout_id not in present
        and (end is None or workout.started_at < end)
    ]
    return SyncStep(
        changed, missing, None if following is None else replace(cursor, after=following)
    )


def _change(
    found: Workout, known: Workout | None, user_id: str
) -> tuple[Workout, Workout | None] | None:
    """Return the workout to write with its stored state; None if nothing has changed."""
    if known is None:
        return replace(found, user_id=user_id), None
    merged = replace(
        found,
        user_id=user_id,
        event_time=known.event_time,
        version=known.version,
        duplicate_of=known.duplicate_of,
        is_separated=known.is_separated,
    )
    if merged == known:
        return None
    return merged, known


def to_epoch(time: str) -> int:
    return (datetime.fromisoformat(time) - _EPOCH) // timedelta(seconds=1)


def from_epoch(seconds: int) -> str:
    return f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"
