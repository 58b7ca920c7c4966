"""Imports activity files, deletes them, and separates workouts from their copies."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from tally.collect.model.files import ParsedFile, check_start
from tally.collect.model.records import Sport
from tally.collect.model.workouts import (
    SPORT_FAMILIES,
    Workout,
    file_workout_id,
    is_workout_id,
)
from tally.collect.repository.copies import MAX_FILES
from tally.collect.repository.main import CollectRepository
from tally.collect.service.audit import AuditTrail
from tally.collect.service.engine import ProgressEngine
from tally.collect.service.ports import ParseFile
from tally.collect.service.workouts import WorkoutWriter
from tally.errors import Conflict, NotFound, RateLimited, Unauthenticated, Unavailable
from tally.kit.clock import Clock, rfc3339
from tally.kit.rate_limiter import RateLimiter
from tally.kit.rate_limits import RateLimitStatus

MAX_WRITE_ATTEMPTS: Final = 5
# Files that this process holds in memory at the same time.
MAX_CONCURRENT_IMPORTS: Final = 8
SPORT_TYPES: Final = {
    Sport.RIDE: "Ride",
    Sport.RUN: "Run",
    Sport.SWIM: "Swim",
    Sport.WALK: "Walk",
}


@dataclass(frozen=True, slots=True)
class ImportedWorkout:
    """The workout of a file; `is_new` unless the file had been imported before."""

    workout: Workout
    is_new: bool


class ImportLimits:
    """Limits how many files a user imports per hour, and how many the process holds at once.

    A user imports one file at a time, so that one account cannot occupy all parsers.
    """

    def __init__(self, clock: Clock, per_hour: int) -> None:
        self._running: set[str] = set()
        self._limiter = RateLimiter(
            clock, per_hour / 3600, per_hour, rule=f"at most {per_hour} imports per hour"
        )

    def take(self, user_id: str) -> RateLimitStatus:
        return self._limiter.take(user_id)

    @contextmanager
    def running(self, user_id: str) -> Iterator[None]:
        """Occupy a place while a file is received and parsed."""
        if user_id in self._running:
            raise RateLimited("Import one file at a time; retry", retry_after=1)
        if len(self._running) >= MAX_CONCURRENT_IMPORTS:
            raise RateLimited("Too many imports at the same time; retry", retry_after=1)
        self._running.add(user_id)
        try:
            yield
        finally:
            self._running.remove(user_id)


@dataclass(frozen=True, slots=True)
class ImportService:
    """Imports files and manages workouts that have copies."""

    repository: CollectRepository
    writer: WorkoutWriter
    engine: ProgressEngine
    audit: AuditTrail
    clock: Clock
    parse: ParseFile
    limits: ImportLimits
    max_bytes: int = field(default=20_000_000)

    async def import_file(
        self, user_id: str, content: bytes, sport: Sport | None
    ) -> ImportedWorkout:
        """Create the workout of a file and advance the milestones.

        `sport` overrides the sport of the file. A file that is already imported changes nothing,
        except for its sport.
        """
        if await self.repository.count_files(user_id) >= MAX_FILES:
            raise Conflict(f"An account has at most {MAX_FILES} files", code="too_many_files")
        parsed = await self.parse(content)
        check_start(parsed.started_at, self.clock.now())
        workout_id, is_new = file_workout_id(parsed.file_id), False
        for _ in range(MAX_WRITE_ATTEMPTS):
            known = await self.repository.workout(user_id, workout_id)
            # A lost race may leave the undecided file, which is new until it is decided.
            is_new = is_new or known is None or known.is_deleted
            workout = _file_workout(user_id, parsed, known, sport)
            written = (
                [known]
                if known is not None and _is_same_file(known, workout)
                else await self.writer.write(workout, known)
            )
            if written is not None:
                if is_new:
                    self.audit.record("WORKOUT_IMPORTED", user_id, {"workout": workout_id})
                await self.engine.advance_all(user_id, written)
                return ImportedWorkout(written[0], is_new)
        return await self._fail(user_id)

    async def delete(self, user_id: str, workout_id: str) -> None:
        """Delete a file. A copy of it counts from now on."""

        def mark_deleted(known: Workout) -> Workout:
            if not known.is_file:
                raise Conflict(
                    "The workout comes from Strava; delete the activity there",
                    code="strava_workout",
                )
            deleted_at = rfc3339(self.clock.now())
            return replace(known, is_deleted=True, deleted_at=deleted_at, is_separated=False)

        await self._change(user_id, workout_id, mark_deleted)
        self.audit.record("WORKOUT_DELETED", user_id, {"workout": workout_id})

    async def separate(self, user_id: str, workout_id: str) -> Workout:
        """Count a workout although it looks like a copy of another one."""
        known = await self._workout(user_id, workout_id)
        if known.is_separated:
            return known
        original = (
            await self.repository.workout(user_id, known.duplicate_of)
            if known.duplicate_of is not None
            else None
        )
        if original is None or original.is_flagged:
            raise Conflict("The workout must be a copy of one that counts", code="not_a_duplicate")
        separated = await self._change(
            user_id, workout_id, lambda known: replace(known, is_separated=True)
        )
        self.audit.record("WORKOUT_SEPARATED", user_id, {"workout": workout_id})
        return separated

    async def rejoin(self, user_id: str, workout_id: str) -> Workout:
        """Undo a separation: if the workout still looks like a copy, it does not count."""
        known = await self._workout(user_id, workout_id)
        if not known.is_separated:
            return known
        return await self._change(
            user_id,
            workout_id,
            # Undecided, so that the others keep counting.
            lambda known: replace(known, is_separated=False, duplicate_of=workout_id),
        )

    async def _workout(self, user_id: str, workout_id: str) -> Workout:
        known = (
            await self.repository.workout(user_id, workout_id)
            if is_workout_id(workout_id)
            else None
        )
        if known is None or known.is_deleted:
            raise NotFound("The workout does not exist", code="workout_not_found")
        return known

    async def _change(
        self, user_id: str, workout_id: str, change: Callable[[Workout], Workout]
    ) -> Workout:
        """Write a change of the owner, decide about copies again and advance the milestones."""
        for _ in range(MAX_WRITE_ATTEMPTS):
            known = await self._workout(user_id, workout_id)
            changed = replace(change(known), version=known.version + 1)
            written = await self.writer.replace_known(changed, known, None)
            if written is not None:
                await self.engine.advance_all(user_id, written)
                return written[0]
        return (await self._fail(user_id)).workout

    async def _fail(self, user_id: str) -> ImportedWorkout:
        if await self.repository.imports_version(user_id) is None:
            raise Unauthenticated("The account is being deleted", code="invalid_session")
        raise Unavailable("The workout changes too often; retry", retry_after=1)


def _is_same_file(known: Workout, workout: Workout) -> bool:
    """Whether an import would change nothing. A file without a decision is written again."""
    is_decided = not known.is_deleted and known.duplicate_of != known.workout_id
    return is_decided and known.sport_type == workout.sport_type


def _file_workout(
    user_id: str, parsed: ParsedFile, known: Workout | None, sport: Sport | None
) -> Workout:
    is_imported = known is not None and not known.is_deleted
    sport_type = known.sport_type if known is not None and is_imported else parsed.sport_type
    if sport is not None and SPORT_FAMILIES.get(sport_type) is not sport:
        sport_type = SPORT_TYPES[sport]
    return Workout(
        user_id=user_id,
        workout_id=file_workout_id(parsed.file_id),
        name=parsed.name,
        sport_type=sport_type,
        started_at=parsed.started_at,
        distance=parsed.distance,
        elevation=parsed.elevation,
        moving_seconds=parsed.moving_seconds,
        elapsed_seconds=parsed.elapsed_seconds,
    )
