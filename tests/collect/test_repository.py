"""Every access of the main table does what it says, on every engine."""

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


async def joined(repository: CollectRepository) -> str:
    name = factories.new_user_id()
    assert await repository.create_profile(factories.profile(name))
    return name


async def test_the_first_login_makes_the_profile_and_later_ones_leave_it(
    repository: CollectRepository,
) -> None:
    """A profile is made once, and stands as it was made."""
    name = factories.new_user_id()
    assert await repository.profile(name) is None
    first = factories.profile(name)
    assert await repository.create_profile(first)
    assert not await repository.create_profile(replace(first, plan="gold"))
    assert await repository.profile(name) == first


async def test_of_many_who_link_one_athlete_at_once_one_succeeds(
    repository: CollectRepository,
) -> None:
    """An athlete has one owner, and whoever lost has no connection either."""
    athlete_id = factories.new_id()
    names = [await joined(repository) for _ in range(8)]

    async def link(name: str) -> bool:
        while True:
            try:
                return await repository.link(factories.connection(name, athlete_id), None)
            except Unavailable:
                continue  # two transactions met, and nothing was decided

    outcomes = await asyncio.gather(*(link(name) for name in names))
    assert sum(outcomes) == 1
    winner = names[outcomes.index(True)]
    assert await repository.owner(athlete_id) == winner
    assert await repository.linked_users(athlete_id) == {winner}
    assert [await repository.connection(name) is not None for name in names] == outcomes


async def test_linking_a_second_athlete_releases_the_first(repository: CollectRepository) -> None:
    """The former athlete is free for others in the same moment."""
    name, other = await joined(repository), await joined(repository)
    first, second = factories.connection(name), factories.connection(name)
    assert await repository.link(first, None)
    assert await repository.link(second, first)
    assert await repository.owner(first.athlete_id) is None
    assert await repository.owner(second.athlete_id) == name
    assert await repository.link(factories.connection(other, first.athlete_id), None)


async def test_a_link_that_meets_another_change_does_nothing(repository: CollectRepository) -> None:
    """The connection must be as it was read, and the profile must be there."""
    name = await joined(repository)
    first = factories.connection(name)
    assert await repository.link(first, None)
    assert not await repository.link(factories.connection(name), None)
    assert not await repository.link(factories.connection(name), replace(first, version=7))
    assert not await repository.link(factories.connection(factories.new_user_id()), None)
    assert await repository.connection(name) == first


async def test_unlinking_works_again_and_without_an_owner(
    repository: CollectRepository, engine: Engine
) -> None:
    """Damage or a crash in between does not keep a person linked."""
    name = await joined(repository)
    linked = factories.connection(name)
    assert await repository.link(linked, None)
    await engine.delete(Delete(COMMIT_COLLECT, item_key(athlete_pk(linked.athlete_id), "OWNER")))
    assert await repository.unlink(name, linked.athlete_id)
    assert await repository.unlink(name, linked.athlete_id)
    assert await repository.connection(name) is None


async def test_only_the_newest_tokens_are_kept(repository: CollectRepository) -> None:
    """Of two refreshes that read the same version, the second is told that it was late."""
    name = await joined(repository)
    linked = factories.connection(name)
    assert await repository.link(linked, None)
    assert await repository.store_tokens(linked, "newer", 5)
    assert not await repository.store_tokens(linked, "late", 6)
    assert await repository.connection(name) == replace(
        linked, encrypted_tokens="newer", expires_at=5, version=2
    )


async def test_an_older_event_never_overwrites_a_newer_state(repository: CollectRepository) -> None:
    """What stands is the state of the latest event, whatever the order of arrival."""
    name = await joined(repository)
    linked = factories.connection(name)
    assert await repository.link(linked, None)
    newer = factories.workout(name, name="new", event_time=200)
    assert await repository.put_workout(newer, linked.athlete_id)
    assert not await repository.put_workout(
        replace(newer, name="old", event_time=100), linked.athlete_id
    )
    assert await repository.workout(name, newer.activity_id) == newer


async def test_a_workout_without_a_name_is_kept_as_well(repository: CollectRepository) -> None:
    """Not every service that speaks DynamoDB takes an empty text, and not every activity has a title."""
    name = await joined(repository)
    linked = factories.connection(name)
    assert await repository.link(linked, None)
    nameless = factories.workout(name, name="")
    assert await repository.put_workout(nameless, linked.athlete_id)
    assert await repository.workout(name, nameless.activity_id) == nameless


async def test_no_workout_is_written_for_an_athlete_who_is_not_linked(
    repository: CollectRepository,
) -> None:
    """Whoever has unlinked, or deleted the account, gets no items any more."""
    name = await joined(repository)
    made = factories.workout(name)
    assert not await repository.put_workout(made, factories.new_id())
    assert await repository.workout(name, made.activity_id) is None


async def test_workouts_come_newest_first_page_by_page_without_the_deleted(
    repository: CollectRepository,
) -> None:
    """The order is that of the numbers of activities, also where they have different lengths."""
    name = await joined(repository)
    linked = factories.connection(name)
    assert await repository.link(linked, None)
    ids = [7, 80, 900, 1_000, 20_000]
    for activity_id in ids:
        gone = activity_id == 900
        assert await repository.put_workout(
            factories.workout(name, activity_id, is_deleted=gone), linked.athlete_id
        )
    found, start = [], None
    while True:
        page, start = await repository.workouts(name, 2, start)
        found += [each.activity_id for each in page]
        if start is None:
            break
    assert found == [20_000, 1_000, 80, 7]
    assert await repository.count_workouts(name) == 4
    assert len(await repository.workout_projections(name)) == 5


async def test_three_thousand_workouts_are_read_and_one_more_is_refused(
    repository: CollectRepository, engine: Engine
) -> None:
    """The bound is exact, and passing it is a conflict that says so."""
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
    with pytest.raises(Conflict, match="more than 3000 workouts") as refused:
        await repository.workout_projections(name)
    assert refused.value.code == "too_many_workouts"
    assert await repository.count_workouts(name) == MAX_WORKOUTS


async def test_minting_writes_the_milestone_and_all_awards_or_nothing(
    repository: CollectRepository,
) -> None:
    """A version that has moved on, or one award that is there already, leaves everything as it was."""
    name = await joined(repository)
    made = factories.milestone(name)
    assert await repository.create_milestone(made)
    statue = factories.model()

    def award(index: int) -> Award:
        return Award(
            name,
            made.milestone_id,
            "model",
            statue.parts[index - 1],
            index * 1000,
            factories.LATER_TIME,
            "corr",
        )

    moved = replace(made, version=2, progress=2000, parts_minted=2)
    assert await repository.mint(moved, [award(1), award(2)])
    assert not await repository.mint(moved, [award(3)])
    assert not await repository.mint(
        replace(moved, version=3, status=MilestoneStatus.COMPLETED), [award(3), award(2)]
    )
    held = await repository.milestone(name, made.milestone_id)
    assert held is not None
    assert held.milestone == moved
    assert held.awards == (award(1), award(2))
    assert await repository.milestones(name) == [held]


async def test_a_milestone_needs_a_profile(repository: CollectRepository) -> None:
    """Nothing is made for somebody who is gone."""
    made = factories.milestone(factories.new_user_id())
    assert not await repository.create_milestone(made)
    assert await repository.milestones(made.user_id) == []


async def test_a_model_is_written_again_and_again_and_read_whole(
    repository: CollectRepository,
) -> None:
    """What was shipped comes back exactly, numbers included, in the order of the parts."""
    statue = factories.model()
    await repository.put_model(statue)
    await repository.put_model(statue)
    assert await repository.model(statue.meta.model_id) == statue
    assert await repository.metas([statue.meta.model_id, "no-such-model"]) == [statue.meta]
    assert await repository.model("no-such-model") is None


async def test_an_event_is_in_the_inbox_once_however_often_it_is_delivered(
    repository: CollectRepository,
) -> None:
    """Fifty deliveries at once leave one item, found in the order of event times."""
    owner = factories.new_id()
    second = factories.event(owner, event_time=20)
    first = factories.event(owner, event_time=10)
    outcomes = await asyncio.gather(*(repository.receive(second) for _ in range(50)))
    assert sum(outcomes) == 1
    assert await repository.receive(first)
    mine = [
        told
        for told in await repository.pending_events(inbox_shard(owner))
        if told.owner_id == owner
    ]
    assert mine == [first, second]
    await repository.postpone_event(first, 99)
    await repository.remove_event(second)
    await repository.postpone_event(second, 99)
    mine = [
        told
        for told in await repository.pending_events(inbox_shard(owner))
        if told.owner_id == owner
    ]
    assert mine == [replace(first, attempts=1, not_before=99)]


async def test_a_partition_goes_in_bites_until_nothing_is_left(
    repository: CollectRepository, engine: Engine
) -> None:
    """A person with more items than one call removes is gone after a few calls, and others stay."""
    name, other = await joined(repository), await joined(repository)
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
