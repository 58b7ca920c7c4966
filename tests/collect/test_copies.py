"""A workout from two sources counts once, in any order and with concurrent writers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pytest

from tally.collect.model.records import StravaConnection
from tally.collect.model.workouts import Workout
from tally.collect.repository.copies import CopiesOutcome, CopiesWrite
from tally.collect.repository.main import CollectRepository
from tally.collect.repository.table import COMMIT_COLLECT, PROFILE, item_key, user_pk
from tally.collect.service.workouts import MAX_COPIES, WorkoutWriter
from tally.errors import Unavailable
from tally.kit.clock import SystemClock
from tally.store.api import Delete, Engine
from tests.collect import factories
from tests.collect.service_harness import ServiceHarness, open_services
from tests.collect.test_duplicates import check_invariant


@pytest.fixture
async def services(engine: Engine) -> AsyncIterator[ServiceHarness]:
    async with open_services(engine, SystemClock(), parts=8) as opened:
        yield opened


@dataclass(frozen=True, slots=True)
class Athlete:
    """A user with a writer."""

    services: ServiceHarness
    user_id: str
    connection: StravaConnection
    writer: WorkoutWriter

    def workout(self, workout_id: str, **changes: Any) -> Workout:
        base = factories.workout(self.user_id, distance=Decimal(10_000), elapsed_seconds=3600)
        return replace(base, workout_id=workout_id, **changes)

    async def write(
        self, workout_id: str, writer: WorkoutWriter | None = None, **changes: Any
    ) -> list[Workout]:
        """Write a workout like a worker or an import: read again until it is written."""
        workout = self.workout(workout_id, **changes)
        connection = None if workout.is_file else self.connection
        while True:
            known = await self.services.repository.workout(self.user_id, workout_id)
            written = await (writer or self.writer).write(workout, known, connection)
            if written is not None:
                return written

    async def stored(self) -> dict[str, Workout]:
        found = await self.services.repository.workouts_between(self.user_id, "0", "9")
        return {workout.workout_id: workout for workout in found}

    async def references(self) -> dict[str, str | None]:
        stored = await self.stored()
        check_invariant(stored)
        return {workout_id: stored[workout_id].duplicate_of for workout_id in sorted(stored)}

    async def counted(self) -> list[str]:
        """Return what the index of workouts that count has."""
        found = await self.services.repository.counted_workouts(
            self.user_id, factories.milestone(self.user_id).sport, "0", None
        )
        return sorted(projection.workout_id for projection in found)


@pytest.fixture
async def athlete(services: ServiceHarness) -> Athlete:
    user_id, _ = await services.create_linked_user()
    connection = await services.repository.connection(user_id)
    assert connection is not None
    writer = WorkoutWriter(services.repository, services.clock)
    return Athlete(services, user_id, connection, writer)


RIDE, OTHER_RIDE = "STRAVA#000000000001", "STRAVA#000000000002"
FILE, OTHER_FILE = "FILE#a", "FILE#b"


@pytest.mark.parametrize(("first", "second"), [(RIDE, FILE), (FILE, RIDE), (FILE, OTHER_FILE)])
async def test_the_first_one_counts_and_the_other_refers_to_it(
    athlete: Athlete, first: str, second: str
) -> None:
    await athlete.write(first)
    await athlete.write(second, distance=Decimal(10_100))
    assert await athlete.references() == {first: None, second: first}
    assert await athlete.counted() == [first]


async def test_an_update_of_the_activity_keeps_the_decision(athlete: Athlete) -> None:
    for workout_id in (FILE, RIDE):
        await athlete.write(workout_id)
    await athlete.write(RIDE, name="Renamed")
    assert await athlete.references() == {FILE: None, RIDE: FILE}
    assert (await athlete.stored())[RIDE].name == "Renamed"


async def test_the_copy_counts_when_the_first_is_deleted_or_edited(athlete: Athlete) -> None:
    """And becomes a copy again when the edit is undone."""
    for workout_id in (RIDE, FILE, OTHER_FILE):
        await athlete.write(workout_id)
    assert await athlete.references() == {FILE: RIDE, OTHER_FILE: RIDE, RIDE: None}
    await athlete.write(RIDE, distance=Decimal(30_000))
    assert await athlete.references() == {FILE: None, OTHER_FILE: FILE, RIDE: None}
    await athlete.write(RIDE)
    assert len(await athlete.counted()) == 1
    await athlete.write(RIDE, is_deleted=True)
    await athlete.write(FILE, is_deleted=True)
    assert await athlete.counted() == [OTHER_FILE]


async def test_activities_alone_are_written_without_looking_for_copies(athlete: Athlete) -> None:
    """Fifty rides at the same time all count, as Strava says."""
    await asyncio.gather(*(athlete.write(f"STRAVA#{number:012}") for number in range(1, 51)))
    assert len(await athlete.counted()) == 50
    assert await athlete.services.repository.imports_version(athlete.user_id) == 0


async def test_more_copies_than_fit_into_a_transaction(athlete: Athlete) -> None:
    """When their file is deleted, all activities count."""
    await athlete.write(FILE)
    count = MAX_COPIES + 5
    for number in range(1, count + 1):
        await athlete.write(f"STRAVA#{number:012}")
    assert await athlete.counted() == [FILE]
    await athlete.write(FILE, is_deleted=True)
    assert len(await athlete.counted()) == count


async def test_a_batch_of_activities_respects_files(athlete: Athlete) -> None:
    """Activities without copies are written in one transaction, the others one by one."""
    far = {"started_at": "2026-02-01T00:00:00Z"}
    first = [(athlete.workout(RIDE), None), (athlete.workout(OTHER_RIDE, **far), None)]
    changed, outdated = await athlete.writer.write_many(first, athlete.connection)
    assert ([each.workout_id for each in changed], outdated) == ([RIDE, OTHER_RIDE], [])
    await athlete.write(FILE, distance=Decimal(20_000))
    known = await athlete.stored()
    edited = athlete.workout(RIDE, distance=Decimal(20_000))
    second = [(edited, known[RIDE]), (athlete.workout(OTHER_RIDE), None)]
    changed, outdated = await athlete.writer.write_many(second, athlete.connection)
    assert [each.workout_id for each in outdated] == [OTHER_RIDE]
    assert len([each for each in await athlete.counted() if each != OTHER_RIDE]) == 1
    await athlete.references()


class InterruptedRepository(CollectRepository):
    """A repository that runs something else just before chosen writes of copies."""

    interruptions: list[Callable[[], Awaitable[Any]] | None]

    async def write_copies(self, write: CopiesWrite) -> CopiesOutcome:
        interrupt = self.interruptions.pop(0) if self.interruptions else None
        if interrupt is not None:
            await interrupt()
        return await super().write_copies(write)


def interrupted_writer(
    athlete: Athlete, *interruptions: Callable[[], Awaitable[Any]] | None
) -> WorkoutWriter:
    repository = InterruptedRepository(athlete.services.store)
    object.__setattr__(repository, "interruptions", list(interruptions))
    return WorkoutWriter(repository, athlete.services.clock)


@pytest.mark.parametrize("skipped", [0, 1])
@pytest.mark.parametrize(("slow", "fast"), [(RIDE, FILE), (FILE, RIDE), (FILE, OTHER_FILE)])
async def test_a_write_in_between_is_noticed(
    athlete: Athlete, slow: str, fast: str, skipped: int
) -> None:
    """Before the first write of the slow one, or before its decision."""
    interruptions = [None] * skipped + [lambda: athlete.write(fast)]
    await athlete.write(slow, interrupted_writer(athlete, *interruptions))
    if fast not in await athlete.stored():
        await athlete.write(fast)  # an activity without files is written in one step
    assert len(await athlete.counted()) == 1
    await athlete.references()


@pytest.mark.parametrize("deleted", [RIDE, FILE])
async def test_a_deletion_in_between_is_noticed(athlete: Athlete, deleted: str) -> None:
    """The copy that was being written counts."""
    await athlete.write(deleted)
    slow = RIDE if deleted == FILE else FILE
    for skipped in (0, 1) if slow == FILE else (0,):
        writer = interrupted_writer(
            athlete, *([None] * skipped), lambda: athlete.write(deleted, is_deleted=True)
        )
        await athlete.write(slow, writer)
        assert await athlete.counted() == [slow]
        await athlete.write(deleted)
        await athlete.write(slow, is_deleted=True)
        assert await athlete.counted() == [deleted]


async def test_a_deletion_and_a_new_activity_at_once(athlete: Athlete) -> None:
    """The file would count with the new activity if the deletion did not notice it."""
    for workout_id in (RIDE, FILE):
        await athlete.write(workout_id)
    writer = interrupted_writer(athlete, lambda: athlete.write(OTHER_RIDE))
    await athlete.write(RIDE, writer, is_deleted=True)
    assert len(await athlete.counted()) == 1
    await athlete.references()


async def test_concurrent_writers_agree(athlete: Athlete) -> None:
    """Two activities and three files at once, then deletions at once."""
    files = [FILE, OTHER_FILE, "FILE#c"]
    await asyncio.gather(*(athlete.write(workout_id) for workout_id in [RIDE, *files, OTHER_RIDE]))
    await athlete.references()
    assert len(await athlete.counted()) in {1, 2}
    await asyncio.gather(*(athlete.write(file, is_deleted=True) for file in files))
    assert await athlete.counted() == [RIDE, OTHER_RIDE]


class Stopped(Exception):
    """The process ends here."""


async def test_a_file_does_not_count_before_the_decision(athlete: Athlete) -> None:
    """After a crash between both writes, the repeated import or the next activity decides."""

    async def stop() -> None:
        raise Stopped

    for next_writer in (FILE, RIDE):
        with pytest.raises(Stopped):
            await athlete.write(FILE, interrupted_writer(athlete, None, stop))
        assert await athlete.counted() == []
        await athlete.write(next_writer)
        assert await athlete.counted() == [FILE]
        for workout_id in (FILE, RIDE):
            await athlete.write(workout_id, is_deleted=True)


async def test_nothing_is_written_for_a_deleted_account(athlete: Athlete) -> None:
    profile = item_key(user_pk(athlete.user_id), PROFILE)
    await athlete.services.store._engine.delete(Delete(COMMIT_COLLECT, profile))
    for workout_id, connection in ((FILE, None), (RIDE, athlete.connection)):
        workout = athlete.workout(workout_id)
        assert await athlete.writer.write(workout, None, connection) is None
    assert await athlete.stored() == {}


async def test_nothing_is_written_for_another_athlete(athlete: Athlete) -> None:
    former = replace(athlete.connection, athlete_id=athlete.connection.athlete_id + 1)
    assert await athlete.writer.write(athlete.workout(RIDE), None, former) is None
    changes = [(athlete.workout(RIDE), None)]
    assert await athlete.writer.write_many(changes, former) == ([], [changes[0][0]])
    assert await athlete.stored() == {}


async def test_a_writer_that_always_loses_gives_up(athlete: Athlete) -> None:
    class LosingRepository(CollectRepository):
        async def write_copies(self, write: CopiesWrite) -> CopiesOutcome:
            assert write.changes[0][0].is_file
            return CopiesOutcome.LOST_RACE

    writer = WorkoutWriter(LosingRepository(athlete.services.store), athlete.services.clock)
    with pytest.raises(Unavailable, match="change too often"):
        await writer.write(athlete.workout(FILE), None)
