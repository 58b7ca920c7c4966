"""The access patterns of the main table, on every engine."""

import asyncio
from dataclasses import replace

import pytest

from tally.collect.model.records import MAX_WORKOUTS, Award, MilestoneStatus
from tally.collect.repository.main import CollectRepository
from tally.collect.repository.profiles import DELETE_BATCH_SIZE
from tally.collect.repository.table import (
    COMMIT_COLLECT,
    athlete_pk,
    inbox_shard,
    item_key,
    user_pk,
    workout_sk,
)
from tally.errors import Conflict, Unavailable
from tally.store.api import BatchWrite, Delete, Engine, Get
from tests.collect import factories


async def create_user(repository: CollectRepository) -> str:
    name = factories.new_user_id()
    assert await repository.create_profile(factories.profile(name))
    return name


async def test_a_profile_is_created_once(
    repository: CollectRepository,
) -> None:
    """A later login does not change it."""
    name = factories.new_user_id()
    assert await repository.profile(name) is None
    first = factories.profile(name)
    assert await repository.create_profile(first)
    assert not await repository.create_profile(replace(first, plan="gold"))
    assert await repository.profile(name) == first


async def test_of_concurrent_links_to_one_athlete_one_succeeds(
    repository: CollectRepository,
) -> None:
    """The athlete has one owner, and the other users have no connection."""
    athlete_id = factories.new_id()
    names = [await create_user(repository) for _ in range(8)]

    async def link(name: str) -> bool:
        while True:
            try:
                return await repository.link(factories.connection(name, athlete_id), None)
            except Unavailable:
                continue  # a transaction conflict: undecided

    outcomes = await asyncio.gather(*(link(name) for name in names))
    assert sum(outcomes) == 1
    winner = names[outcomes.index(True)]
    assert await repository.owner(athlete_id) == winner
    assert await repository.linked_users(athlete_id) == {winner}
    assert [await repository.connection(name) is not None for name in names] == outcomes


async def test_linking_a_second_athlete_releases_the_first(repository: CollectRepository) -> None:
    """Another user can link the first athlete."""
    name, other = await create_user(repository), await create_user(repository)
    first, second = factories.connection(name), factories.connection(name)
    assert await repository.link(first, None)
    assert await repository.link(second, first)
    assert await repository.owner(first.athlete_id) is None
    assert await repository.owner(second.athlete_id) == name
    assert await repository.link(factories.connection(other, first.athlete_id), None)


async def test_a_link_with_outdated_preconditions_changes_nothing(
    repository: CollectRepository,
) -> None:
    """The connection must be unchanged, and the profile must exist."""
    name = await create_user(repository)
    first = factories.connection(name)
    assert await repository.link(first, None)
    assert not await repository.link(factories.connection(name), None)
    assert not await repository.link(factories.connection(name), replace(first, version=7))
    assert not await repository.link(factories.connection(factories.new_user_id()), None)
    assert await repository.connection(name) == first


async def test_unlinking_is_idempotent_and_works_without_an_owner(
    repository: CollectRepository, engine: Engine
) -> None:
    """A missing owner item does not keep the user linked."""
    name = await create_user(repository)
    connection = factories.connection(name)
    assert await repository.link(connection, None)
    await engine.delete(
        Delete(COMMIT_COLLECT, item_key(athlete_pk(connection.athlete_id), "OWNER"))
    )
    assert await repository.unlink(name, connection.athlete_id)
    assert await repository.unlink(name, connection.athlete_id)
    assert await repository.connection(name) is None


async def test_only_the_first_of_two_refreshes_is_stored(repository: CollectRepository) -> None:
    """The second refresh of the same version fails."""
    name = await create_user(repository)
    connection = factories.connection(name)
    assert await repository.link(connection, None)
    assert await repository.store_tokens(connection, "newer", 5)
    assert not await repository.store_tokens(connection, "late", 6)
    assert await repository.connection(name) == replace(
        connection, encrypted_tokens="newer", expires_at=5, version=2
    )


async def test_an_older_event_never_overwrites_a_newer_state(repository: CollectRepository) -> None:
    """The latest event wins, in any order of arrival."""
    name = await create_user(repository)
    connection = factories.connection(name)
    assert await repository.link(connection, None)
    newer = factories.workout(name, name="new", event_time=200)
    assert await repository.put_workout(newer, connection.athlete_id)
    assert not await repository.put_workout(
        replace(newer, name="old", event_time=100), connection.athlete_id
    )
    assert await repository.workout(name, newer.activity_id) == newer


async def test_a_workout_without_a_name_is_stored(repository: CollectRepository) -> None:
    """Some DynamoDB-compatible services reject empty strings."""
    name = await create_user(repository)
    connection = factories.connection(name)
    assert await repository.link(connection, None)
    nameless = factories.workout(name, name="")
    assert await repository.put_workout(nameless, connection.athlete_id)
    assert await repository.workout(name, nameless.activity_id) == nameless


async def test_no_workout_is_written_for_an_athlete_who_is_not_linked(
    repository: CollectRepository,
) -> None:
    """After unlinking or deletion, no new items appear."""
    name = await create_user(repository)
    milestone = factories.workout(name)
    assert not await repository.put_workout(milestone, factories.new_id())
    assert await repository.workout(name, milestone.activity_id) is None


async def test_workouts_are_paged_newest_first_without_deleted_ones(
    repository: CollectRepository,
) -> None:
    """Sorted by activity id as a number."""
    name = await create_user(repository)
    connection = factories.connection(name)
    assert await repository.link(connection, None)
    ids = [7, 80, 900, 1_000, 20_000]
    for activity_id in ids:
        gone = activity_id == 900
        assert await repository.put_workout(
            factories.workout(name, activity_id, is_deleted=gone), connection.athlete_id
        )
    found, start = [], None
    while True:
        page, start = await repository.workouts(name, 2, start)
        found += [workout.activity_id for workout in page]
        if start is None:
            break
    assert found == [20_000, 1_000, 80, 7]
    assert await repository.count_workouts(name) == 4
    assert len(await repository.workout_projections(name)) == 5


async def test_three_thousand_workouts_are_the_limit(
    repository: CollectRepository, engine: Engine
) -> None:
    """One more is a conflict."""
    name = factories.new_user_id()
    items = [
        {
            **item_key(user_pk(name), workout_sk(index)),
            "sportType": "Run",
            "startDateUtc": factories.LATER_TIME,
            "distanceMeters": 1,
            "totalElevationGain": 0,
            "isDeleted": False,
        }
        for index in range(MAX_WORKOUTS + 1)
    ]
    chunks = [
        BatchWrite(COMMIT_COLLECT, tuple(items[start : start + 25]))
        for start in range(0, MAX_WORKOUTS, 25)
    ]
    await asyncio.gather(*(engine.batch_write(chunk) for chunk in chunks))
    assert len(await repository.workout_projections(name)) == MAX_WORKOUTS
    await engine.batch_write(BatchWrite(COMMIT_COLLECT, (items[-1],)))
    with pytest.raises(Conflict, match="more than 3000 workouts") as raised:
        await repository.workout_projections(name)
    assert raised.value.code == "too_many_workouts"
    assert await repository.count_workouts(name) == MAX_WORKOUTS


async def test_minting_is_atomic(
    repository: CollectRepository,
) -> None:
    """An outdated version or an existing award changes nothing."""
    name = await create_user(repository)
    milestone = factories.milestone(name)
    assert await repository.create_milestone(milestone)
    statue = factories.model()

    def award(index: int) -> Award:
        return Award(
            name,
            milestone.milestone_id,
            "model",
            statue.parts[index - 1],
            index * 1000,
            factories.LATER_TIME,
            "corr",
        )

    advanced = replace(milestone, version=2, progress=2000, parts_minted=2)
    assert await repository.mint(advanced, [award(1), award(2)])
    assert not await repository.mint(advanced, [award(3)])
    assert not await repository.mint(
        replace(advanced, version=3, status=MilestoneStatus.COMPLETED), [award(3), award(2)]
    )
    stored = await repository.milestone(name, milestone.milestone_id)
    assert stored is not None
    assert stored.milestone == advanced
    assert stored.awards == (award(1), award(2))
    assert await repository.milestones(name) == [stored]


async def test_a_milestone_requires_a_profile(repository: CollectRepository) -> None:
    """Nothing is created for a deleted account."""
    milestone = factories.milestone(factories.new_user_id())
    assert not await repository.create_milestone(milestone)
    assert await repository.milestones(milestone.user_id) == []


async def test_writing_a_model_is_idempotent(
    repository: CollectRepository,
) -> None:
    """It is read back exactly, with its parts in order."""
    statue = factories.model()
    await repository.put_model(statue)
    await repository.put_model(statue)
    assert await repository.model(statue.meta.model_id) == statue
    assert await repository.metas([statue.meta.model_id, "no-such-model"]) == [statue.meta]
    assert await repository.model("no-such-model") is None


async def test_repeated_deliveries_are_one_inbox_item(
    repository: CollectRepository,
) -> None:
    """Fifty concurrent deliveries create one item, sorted by event time."""
    owner = factories.new_id()
    second = factories.event(owner, event_time=20)
    first = factories.event(owner, event_time=10)
    outcomes = await asyncio.gather(*(repository.receive(second) for _ in range(50)))
    assert sum(outcomes) == 1
    assert await repository.receive(first)
    pending = [
        event
        for event in await repository.pending_events(inbox_shard(owner))
        if event.owner_id == owner
    ]
    assert pending == [first, second]
    await repository.postpone_event(first, 99)
    await repository.remove_event(second)
    await repository.postpone_event(second, 99)
    pending = [
        event
        for event in await repository.pending_events(inbox_shard(owner))
        if event.owner_id == owner
    ]
    assert pending == [replace(first, attempts=1, not_before=99)]


async def test_a_partition_is_deleted_in_batches(
    repository: CollectRepository, engine: Engine
) -> None:
    """Repeated calls delete all items of one user and none of others."""
    name, other = await create_user(repository), await create_user(repository)
    items = [item_key(user_pk(name), workout_sk(index)) for index in range(DELETE_BATCH_SIZE + 20)]
    chunks = [
        BatchWrite(COMMIT_COLLECT, tuple(items[start : start + 25]))
        for start in range(0, len(items), 25)
    ]
    await asyncio.gather(*(engine.batch_write(chunk) for chunk in chunks))
    await repository.delete_profile(name)
    assert [await repository.delete_items(name) for _ in range(3)] == [DELETE_BATCH_SIZE, 20, 0]
    assert (
        await engine.get(Get(COMMIT_COLLECT, item_key(user_pk(other), "PROFILE")))
    ).item is not None
