"""The indexes of workouts contain exactly those that the rule names, also for older items."""

import asyncio
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally.collect.model.records import Sport
from tally.collect.model.workouts import (
    SPORT_FAMILIES,
    Workout,
    WorkoutProjection,
    counted_family,
    merge_written,
    strava_workout_id,
)
from tally.collect.repository.main import CollectRepository
from tally.collect.repository.table import COMMIT_COLLECT, item_key, user_pk, workout_sk
from tally.collect.repository.workout_indexing import INDEX_PAGE_SIZE
from tally.collect.repository.workouts import index_attributes, workout_put
from tally.collect.service.workout_reader import WorkoutReader
from tally.errors import Unavailable
from tally.kit.clock import ManualClock
from tally.kit.ttl_cache import TTLCache
from tally.store.api import BatchWrite, Engine, Put, Update
from tally.store.errors import StoreUnavailable
from tally.store.expressions import F
from tally.store.store import Store
from tests.collect import factories
from tests.collect.server_harness import CollectServer
from tests.collect.service_harness import put_workout

WORKOUTS = st.builds(
    Workout,
    user_id=st.sampled_from(["ann", "bob"]),
    workout_id=st.integers(1, 10**12).map(strava_workout_id)
    | st.text("0123456789abcdef", min_size=32, max_size=32).map(lambda text: f"FILE#{text}"),
    name=st.text(max_size=5),
    sport_type=st.sampled_from([*SPORT_FAMILIES, "Yoga", "Unknown", ""]),
    started_at=st.sampled_from([factories.TIME, factories.LATER_TIME, "2026-02-01T00:00:00Z"]),
    distance=st.decimals(0, 10**6, places=3),
    elevation=st.decimals(0, 10**4, places=3),
    moving_seconds=st.integers(0, 10**5),
    elapsed_seconds=st.integers(0, 10**5),
    is_deleted=st.booleans(),
    is_flagged=st.booleans(),
    is_manual=st.booleans(),
    duplicate_of=st.none() | st.just("STRAVA#000000000001"),
    is_separated=st.booleans(),
)


@given(WORKOUTS)
def test_index_membership_equals_the_rule(workout: Workout) -> None:
    """GSI3 has what is not deleted; GSI2 what counts, under its family."""
    is_copy = workout.duplicate_of is not None and not workout.is_separated
    family = SPORT_FAMILIES.get(workout.sport_type)
    counts = not (workout.is_deleted or workout.is_flagged or is_copy) and family is not None
    keys = index_attributes(workout)
    assert ("GSI3PK" in keys, "GSI3SK" in keys) == (not workout.is_deleted,) * 2
    assert ("GSI2PK" in keys, "GSI2SK" in keys) == (counts,) * 2
    assert (counted_family(workout) is not None) == counts
    if counts and family is not None:
        assert keys["GSI2PK"] == f"USER#{workout.user_id}#{family.value}"
    if not workout.is_deleted:
        assert keys["GSI3PK"] == f"USER#{workout.user_id}"
        assert keys["GSI3SK"] == f"{workout.started_at}#{workout.workout_id}"
    item = workout_put(workout, None).item
    assert {name: value for name, value in item.items() if name.startswith("GSI")} == keys


@given(st.lists(WORKOUTS, max_size=8), st.sampled_from(list(Sport)))
def test_a_written_workout_counts_as_it_was_written(written: list[Workout], sport: Sport) -> None:
    """Whatever the index returned of it before, once."""
    outdated = [
        WorkoutProjection(workout.workout_id, sport, factories.TIME, 1, 1) for workout in written
    ]
    kept = WorkoutProjection("STRAVA#KEPT", sport, factories.TIME, 1, 1)
    last = {workout.workout_id: workout for workout in written}
    merged = merge_written(sport, [kept, *outdated], written)
    assert {found.workout_id for found in merged} == {"STRAVA#KEPT"} | {
        workout_id for workout_id, workout in last.items() if counted_family(workout) is sport
    }
    assert len({found.workout_id for found in merged}) == len(merged)
    for found in merged:
        if found is not kept:
            assert found.distance == last[found.workout_id].distance


def test_a_later_version_in_the_index_wins_over_a_written_one() -> None:
    """Another writer was faster."""
    mine = factories.workout("ann", distance=1, version=2)
    later = WorkoutProjection(
        mine.workout_id, Sport.RIDE, mine.started_at, Decimal(9), 0, version=3
    )
    assert merge_written(Sport.RIDE, [later], [mine]) == [later]
    assert [found.distance for found in merge_written(Sport.RIDE, [], [mine])] == [1]


def old_item(user: str, activity_id: int, **changes: Any) -> dict[str, Any]:
    """Return an item as it was written before workouts had versions and index keys."""
    return {
        "PK": f"USER#{user}",
        "SK": f"WORKOUT#STRAVA#{activity_id:012}",
        "userId": user,
        "activityId": activity_id,
        "name": "Morning ride",
        "sportType": "Ride",
        "startDateUtc": factories.LATER_TIME,
        "distanceMeters": 100,
        "totalElevationGain": 1,
        "movingSeconds": 60,
        "elapsedSeconds": 70,
        "eventTime": 1_767_225_600,
        "isDeleted": False,
    } | changes


async def write_old_account(engine: Engine, workouts: int) -> str:
    """Write a profile and workouts as an earlier version did; every tenth is deleted."""
    user = factories.new_user_id()
    profile = {
        **item_key(user_pk(user), "PROFILE"),
        "userId": user,
        "plan": "free",
        "createdAtUtc": factories.TIME,
    }
    await engine.put(Put(COMMIT_COLLECT, profile))
    items = [
        old_item(user, number, isDeleted=number % 10 == 0, deletedAtUtc=factories.TIME)
        for number in range(1, workouts + 1)
    ]
    for first in range(0, workouts, 25):
        await engine.batch_write(BatchWrite(COMMIT_COLLECT, tuple(items[first : first + 25])))
    return user


def reader_of(store: Store, clock: ManualClock) -> WorkoutReader:
    return WorkoutReader(CollectRepository(store), TTLCache(clock, 3600, 10))


async def counted(reader: WorkoutReader, user: str) -> int:
    goal = factories.milestone(user)
    return len(await reader.of_milestone(goal))


async def test_older_workouts_are_indexed_at_first_use(
    engine: Engine, store: Store, clock: ManualClock
) -> None:
    """They count and are listed as before, without the deleted ones; writers find version 0."""
    user = await write_old_account(engine, 40)
    reader, repository = reader_of(store, clock), CollectRepository(store)
    assert not await repository.are_workouts_indexed(user)
    page, _ = await reader.page(user, 100, None)
    assert [workout.activity_id for workout in page] == [
        number for number in range(40, 0, -1) if number % 10
    ]
    assert await counted(reader, user) == 36
    assert await reader.count(user) == 36
    assert await repository.are_workouts_indexed(user)
    known = page[0]
    assert known.version == 0
    assert await put_workout(repository, replace(known, is_deleted=True), None, known.version)
    assert not await put_workout(repository, known, None, known.version)
    assert await counted(reader, user) == 35


async def test_ten_processes_index_the_same_account(
    engine: Engine, store: Store, clock: ManualClock
) -> None:
    """A workout that is written meanwhile keeps the state that was written."""
    user = await write_old_account(engine, 60)
    repository = CollectRepository(store)
    known = await repository.workout(user, strava_workout_id(33))
    assert known is not None
    flagged = replace(known, is_flagged=True, sport_type="Run")
    *_, is_written = await asyncio.gather(
        *(reader_of(store, clock).ensure_indexed(user) for _ in range(10)),
        put_workout(repository, flagged, None, 0),
    )
    assert is_written
    assert await counted(reader_of(store, clock), user) == 53
    assert await repository.workout(user, known.workout_id) == replace(flagged, version=1)


class InterruptedRepository(CollectRepository):
    """A repository that fails at the tenth workout."""

    async def add_index_keys(self, workout: Workout) -> None:
        if workout.activity_id == 11:
            raise StoreUnavailable("interrupted")
        await super().add_index_keys(workout)


async def test_an_interrupted_indexing_continues(
    engine: Engine, store: Store, clock: ManualClock
) -> None:
    """Until it is complete, the account is not marked, so that no goal counts a part of it."""
    user = await write_old_account(engine, 30)
    interrupted = WorkoutReader(InterruptedRepository(store), TTLCache(clock, 3600, 10))
    for _ in range(2):
        with pytest.raises((StoreUnavailable, Unavailable)):
            await interrupted.page(user, 10, None)
    assert not await CollectRepository(store).are_workouts_indexed(user)
    assert await counted(reader_of(store, clock), user) == 27


async def test_an_account_larger_than_one_request_is_indexed_by_several(
    engine: Engine, store: Store, clock: ManualClock
) -> None:
    """Each request continues where the one before stopped, however many pages there are."""
    user = await write_old_account(engine, 2 * INDEX_PAGE_SIZE + 100)
    for _ in range(2):
        with pytest.raises(Unavailable, match="are being indexed"):
            await replace(reader_of(store, clock), max_indexed=100).ensure_indexed(user)
    await replace(reader_of(store, clock), max_indexed=100).ensure_indexed(user)
    assert await CollectRepository(store).are_workouts_indexed(user)
    assert await counted(reader_of(store, clock), user) == (2 * INDEX_PAGE_SIZE + 100) * 0.9


async def test_indexing_a_deleted_account_writes_nothing(
    engine: Engine, store: Store, clock: ManualClock
) -> None:
    """Neither a workout nor a profile comes back."""
    user = await write_old_account(engine, 5)
    repository = CollectRepository(store)
    lacking, _ = await repository.workouts_without_keys(user, None)
    await repository.delete_items(user, keeps_connection=False)
    for workout in lacking:
        await repository.add_index_keys(workout)
    await repository.mark_workouts_indexed(user)
    await reader_of(store, clock).ensure_indexed(user)
    assert await repository.delete_items(user, keeps_connection=False) == 0


async def test_an_account_of_an_earlier_version_works_over_http(server: CollectServer) -> None:
    """The list, the count, an event for an old workout, and a goal over the old workouts."""
    ann = await server.create_user()
    engine = server.application.engine
    key = item_key(user_pk(ann.user_id), "PROFILE")
    await engine.update(Update(COMMIT_COLLECT, key, (F("workoutsIndexed").remove(),)))
    activity = server.strava.record(ann.athlete_id, "Ride", 400)
    await server.strava.webhooks.wait_idle()
    # Another process than the one that created the profile, with an empty cache.
    server.collect.services.engine.workouts.indexed.remove(ann.user_id)
    numbers = [activity.id, 7, 8]
    for number in numbers:
        await engine.put(Put(COMMIT_COLLECT, old_item(ann.user_id, number)))
    listed = (await ann.browser.get("/workouts")).json["items"]
    assert sorted(workout["activityId"] for workout in listed) == sorted(numbers)
    assert listed[0]["workoutId"] == strava_workout_id(listed[0]["activityId"])
    goal = await ann.create_milestone(periodStartAtUtc="2020-01-01T00:00:00Z")
    assert goal["progress"] == 300
    await server.process_inbox()
    assert (await ann.get_milestone(goal["milestoneId"]))["progress"] == 600
    assert (await ann.browser.get("/me")).json["counts"]["workouts"] == 3
    assert workout_sk(strava_workout_id(7)) == "WORKOUT#STRAVA#000000000007"
