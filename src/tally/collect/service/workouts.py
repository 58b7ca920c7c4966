"""Writes workouts of every source, so that one that comes from two sources counts once.

Every writer of workouts calls `write`: the inbox worker, the sync and the import. A write of a
Strava activity looks for files that start at about the same time. If there are none, which is the
rule, it writes the workout alone. Otherwise it decides which of the copies counts and writes all
that changes in one transaction. The attribute `importsVersion` of PROFILE detects every concurrent
decision, and a writer that loses the race reads again.

A new file is written twice: first undecided, which does not count, so that every activity written
from then on finds it; then with the decision, after reading the activities written before.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from tally.collect.model.duplicates import (
    MAX_START_DIFFERENCE_SECONDS,
    plan_changes,
    widen,
)
from tally.collect.model.records import StravaConnection
from tally.collect.model.workouts import Workout
from tally.collect.repository.copies import CopiesOutcome, CopiesWrite
from tally.collect.repository.main import CollectRepository
from tally.errors import Unavailable
from tally.kit.clock import Clock
from tally.kit.retry import full_jitter

MAX_ATTEMPTS: Final = 20
# Most races are between two writers: the second attempt of the loser succeeds.
IMMEDIATE_RETRIES: Final = 2
INITIAL_BACKOFF_SECONDS: Final = 0.01
MAX_BACKOFF_SECONDS: Final = 0.5
# Copies of copies start up to this much earlier or later.
CHAIN_SECONDS: Final = 10 * MAX_START_DIFFERENCE_SECONDS
# With the workout and the checks, ten writes: some DynamoDB-compatible services allow no more in a
# transaction. The rest follows in the next one.
MAX_COPIES: Final = 7
# The same number of writes, for activities without copies.
WRITE_BATCH_SIZE: Final = 8
# A page has 25 batches: all pauses together are much shorter than the lease of a sync.
MAX_PAUSE_SECONDS: Final = 0.2


class _Files(NamedTuple):
    """The starts of the files near some activities, and the imports version read before them.

    Without a version, the account is being deleted.
    """

    version: int | None
    starts: Sequence[str]

    def are_near(self, states: Sequence[Workout]) -> bool:
        if not self.starts:
            return False
        first, last = _period(states)
        return any(first <= start <= last for start in self.starts)


@dataclass(frozen=True, slots=True)
class WorkoutWriter:
    """Writes workouts and decides about their copies."""

    repository: CollectRepository
    clock: Clock
    rng: random.Random = field(default_factory=random.SystemRandom)

    async def write(
        self, workout: Workout, known: Workout | None, connection: StravaConnection | None = None
    ) -> list[Workout] | None:
        """Write the state of a workout at its source.

        `known` is the stored workout, read before the source. `connection` is None for a file.
        Return all workouts that changed, for the progress engine. None means that nothing was
        written: the stored workout has changed, or the athlete is no longer linked.
        """
        next_state = _next_state(workout, known)
        if workout.is_file and not workout.is_deleted and (known is None or known.is_deleted):
            if not await self._announce(next_state, known):
                return None
            known, next_state = next_state, _next_state(workout, next_state)
        return await self.replace_known(next_state, known, connection)

    async def write_many(
        self, changes: Sequence[tuple[Workout, Workout | None]], connection: StravaConnection
    ) -> tuple[list[Workout], list[Workout]]:
        """Write activities of one athlete, each with its stored state, several per transaction.

        Those that may have copies, and a batch in which one has changed, are written one by one.
        Return all workouts that changed, and the activities that were not written.

        Requests come first: after each batch, the writer waits as long as the batch took. The
        busier the event loop and the store are, the slower it goes.
        """
        changed, outdated = list[Workout](), list[Workout]()
        files = await self._files_near(changes, connection)
        for first in range(0, len(changes), WRITE_BATCH_SIZE):
            started, batch = self.clock.monotonic(), changes[first : first + WRITE_BATCH_SIZE]
            next_states = [_without_copies(*change) for change in batch]
            if await self._write_batch(batch, next_states, connection, files):
                changed += next_states
            else:
                for workout, known in batch:
                    written = await self.write(workout, known, connection)
                    changed += written or ()
                    outdated += () if written is not None else (workout,)
                files = await self._files_near(changes, connection)  # there may be a new one
            await self.clock.sleep(min(self.clock.monotonic() - started, MAX_PAUSE_SECONDS))
        return changed, outdated

    async def replace_known(
        self, workout: Workout, known: Workout | None, connection: StravaConnection | None
    ) -> list[Workout] | None:
        """Write the next version of a workout together with the decision about its copies."""
        for attempt in range(1, MAX_ATTEMPTS + 1):
            version = await self.repository.imports_version(workout.user_id)
            if version is None:
                return None  # the account is being deleted
            nearby = await self._nearby(workout, known, version)
            decided, copies = plan_changes(workout, known, nearby)
            written, rest = copies[:MAX_COPIES], copies[MAX_COPIES:]
            changes = [(decided, _version(known)), *((copy, copy.version - 1) for copy in written)]
            is_decision = workout.is_file or bool(nearby)
            outcome = await self.repository.write_copies(
                CopiesWrite(changes, version, connection, is_decision)
            )
            if outcome is CopiesOutcome.WRITTEN:
                further = await self._write_rest(decided, rest, connection)
                return [decided, *written, *further]
            if outcome is CopiesOutcome.OUTDATED:
                return None
            await self._back_off(attempt)
        raise Unavailable("The workouts change too often; retry", retry_after=1)

    async def _write_batch(
        self,
        changes: Sequence[tuple[Workout, Workout | None]],
        next_states: Sequence[Workout],
        connection: StravaConnection,
        files: _Files,
    ) -> bool:
        """Write activities without copies. Return False if there are files near one of them."""
        if files.version is None or files.are_near(_states(changes)):
            return False
        versions = [_version(known) for _, known in changes]
        write = CopiesWrite(
            list(zip(next_states, versions, strict=True)),
            files.version,
            connection,
            is_decision=False,
        )
        return await self.repository.write_copies(write) is CopiesOutcome.WRITTEN

    async def _files_near(
        self, changes: Sequence[tuple[Workout, Workout | None]], connection: StravaConnection
    ) -> _Files:
        """Find the files near any of these activities, once for all batches."""
        version = await self.repository.imports_version(connection.user_id)
        if not changes or not version:
            return _Files(version, ())
        found = await self.repository.files_between(connection.user_id, *_period(_states(changes)))
        return _Files(version, [file.started_at for file in found])

    async def _announce(self, workout: Workout, known: Workout | None) -> bool:
        """Write a file undecided. Return False if it has changed."""
        for attempt in range(1, MAX_ATTEMPTS + 1):
            version = await self.repository.imports_version(workout.user_id)
            if version is None:
                return False
            outcome = await self.repository.write_copies(
                CopiesWrite([(workout, _version(known))], version, None, is_decision=True)
            )
            if outcome is not CopiesOutcome.LOST_RACE:
                return outcome is CopiesOutcome.WRITTEN
            await self._back_off(attempt)
        raise Unavailable("The workouts change too often; retry", retry_after=1)

    async def _has_files(self, state: Workout, imports_version: int) -> bool:
        """Whether a file starts at about the same time as this state of an activity."""
        return bool(
            imports_version
            and await self.repository.files_between(state.user_id, *_period([state]))
        )

    async def _nearby(
        self, workout: Workout, known: Workout | None, imports_version: int
    ) -> list[Workout]:
        """Return the workouts that start at about the same time; none if none of them is a file."""
        states = [workout] if known is None else [workout, known]
        if not workout.is_file and not any(
            [await self._has_files(state, imports_version) for state in states]
        ):
            return []
        windows = {widen((state.started_at, state.started_at), CHAIN_SECONDS) for state in states}
        found = {
            nearby.workout_id: nearby
            for window in sorted(windows)
            for nearby in await self.repository.workouts_between(workout.user_id, *window)
        }
        return list(found.values())

    async def _write_rest(
        self, decided: Workout, rest: Sequence[Workout], connection: StravaConnection | None
    ) -> list[Workout]:
        """Write the decisions that did not fit into the transaction."""
        if not rest:
            return []
        again = replace(decided, version=decided.version + 1)
        return await self.replace_known(again, decided, connection) or []

    async def _back_off(self, attempt: int) -> None:
        if attempt <= IMMEDIATE_RETRIES:
            return
        delay = full_jitter(attempt, INITIAL_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS, self.rng)
        await self.clock.sleep(delay)


def _next_state(workout: Workout, known: Workout | None) -> Workout:
    """Carry over what the source does not know. A new workout is undecided: it comes last."""
    if known is None:
        return replace(workout, version=1, duplicate_of=workout.workout_id)
    reference = workout.workout_id if known.is_deleted else known.duplicate_of
    return replace(
        workout,
        version=known.version + 1,
        duplicate_of=reference,
        is_separated=known.is_separated and not known.is_deleted,
    )


def _without_copies(workout: Workout, known: Workout | None) -> Workout:
    return replace(
        workout,
        version=(_version(known) or 0) + 1,
        duplicate_of=None,
        is_separated=known is not None and known.is_separated and not known.is_deleted,
    )


def _states(changes: Sequence[tuple[Workout, Workout | None]]) -> list[Workout]:
    return [state for change in changes for state in change if state is not None]


def _period(states: Sequence[Workout]) -> tuple[str, str]:
    """Return the period in which the copies of these states start."""
    starts = [state.started_at for state in states]
    return widen((min(starts), max(starts)), MAX_START_DIFFERENCE_SECONDS)


def _version(known: Workout | None) -> int | None:
    return None if known is None else known.version
