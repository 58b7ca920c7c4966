"""The access patterns of the main table, on every engine."""

import asyncio
from dataclasses import replace

import pytest

from tally.collect.model.records import Award, MilestoneStatus, Sport
from tally.collect.model.workouts import MAX_WORKOUTS, strava_workout_id
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
from tests.collect.service_harness import put_workout, write_workouts


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
    assert await repository.unlink(connection)
    assert await repository.unlink(connection)
    assert await repository.connection(name) is None


async def test_unlinking_a_former_link_keeps_the_new_one(repository: CollectRepository) -> None:
    """Also of the same athlete, and also if the former link has no id."""
    name = await create_user(repository)
    unnamed = factories.connection(name)
    assert await repository.link(unnamed, None)
    first = replace(unnamed, link_id="first", version=2)
    assert await repository.link(first, unnamed)
    assert not await repository.unlink(unnamed)
    second = replace(unnamed, link_id="second", version=3)
    assert await repository.link(second, first)
    assert not await repository.unlink(first)
    await repository.delete_connection(first)
    assert await repository.connection(name) == second
    assert await repository.owner(second.athlete_id) == name


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


async def test_a_write_based_on_an_outdated_version_changes_nothing(
    repository: CollectRepository,
) -> None:
    """The writer reads again, whatever the time of its event."""
    name = await create_user(repository)
    connection = factories.connection(name)
    assert await repository.link(connection, None)
    first = factories.workout(name, name="first", event_time=200)
    assert await put_workout(repository, first, connection.athlete_id, None)
    second = replace(first, name="second", event_time=100)
    for outdated in (None, 0, 2):
        assert not await put_workout(repository, second, connection.athlete_id, outdated)
    assert await repository.workout(name, first.workout_id) == replace(first, version=1)
    assert await put_workout(repository, second, connection.athlete_id, 1)
    assert await repository.workout(name, first.workout_id) == replace(second, version=2)


async def test_a_workout_without_a_name_is_stored(repository: CollectRepository) -> None:
    """Some DynamoDB-compatible services reject empty strings."""
    name = await create_user(repository)
    connection = factories.connection(name)
    assert await repository.link(connection, None)
    nameless = factories.workout(name, name="")
    assert await put_workout(repository, nameless, connection.athlete_id, None)
    assert await repository.workout(name, nameless.workout_id) == replace(nameless, version=1)


async def test_no_workout_is_written_for_an_athlete_who_is_not_linked(
    repository: CollectRepository,
) -> None:
    """After unlinking or deletion, no new items appear."""
    name = await create_user(repository)
    workout = factories.workout(name)
    assert not await put_workout(repository, workout, factories.new_id(), None)
    assert await repository.workout(name, workout.workout_id) is None


async def test_a_workout_from_a_file_requires_the_profile_only(
    repository: CollectRepository,
) -> None:
    """Its id names the file, and it has no activity."""
    name, nobody = await create_user(repository), factories.new_user_id()
    imported = factories.workout(name, workout_id=f"FILE#{'ab' * 16}")
    assert await put_workout(repository, imported, None, None)
    assert not await put_workout(repository, replace(imported, user_id=nobody), None, None)
    assert await repository.workout(name, imported.workout_id) == replace(imported, version=1)
    assert imported.activity_id is None
    assert await repository.workout(nobody, imported.workout_id) is None


async def test_workouts_are_paged_by_start_date_in_full_pages(
    repository: CollectRepository,
) -> None:
    """Newest first, whatever their ids; a deleted one leaves the index."""
    name = await create_user(repository)
    connection = factories.connection(name)
    assert await repository.link(connection, None)
    days = {20_000: 3, 7: 5, 900: 4, 1_000: 1, 80: 2}
    for activity_id, day in days.items():
        made = factories.workout(name, activity_id, started_at=f"2026-01-0{day}T06:00:00Z")
        assert await put_workout(repository, made, connection.athlete_id, None)
    gone = await repository.workout(name, strava_workout_id(900))
    assert gone is not None
    deleted = replace(gone, is_deleted=True, deleted_at=factories.TIME)
    assert await put_workout(repository, deleted, connection.athlete_id, 1)
    pages, start = list[list[int | None]](), None
    while True:
        page, start = await repository.workouts(name, 2, start)
        pages.append([workout.activity_id for workout in page])
        if start is None:
            break
    assert [page for page in pages if page] == [[7, 20_000], [80, 1_000]]
    assert await repository.count_workouts(name) == 4
    counted = await repository.counted_workouts(name, Sport.RIDE, factories.TIME, None)
    assert len(counted) == 4


async def test_three_thousand_workouts_of_a_sport_and_period_are_the_limit(
    repository: CollectRepository, engine: Engine
) -> None:
    """One more is a conflict. Workouts of other sports and times do not count."""
    name, end = factories.new_user_id(), "2026-02-01T00:00:00Z"
    run = factories.workout(name, sport_type="Run")
    others = [
        factories.workout(name, sport_type="Ride"),
        factories.workout(name, sport_type="Run", started_at=end),
        factories.workout(name, sport_type="Run", started_at="2025-12-31T23:59:59Z"),
        factories.workout(name, sport_type="Run", is_deleted=True),
        factories.workout(name, sport_type="Run", is_flagged=True),
        factories.workout(name, sport_type="Run", duplicate_of=run.workout_id),
    ]
    runs = [factories.workout(name, sport_type="Run") for _ in range(MAX_WORKOUTS - 1)]
    await write_workouts(engine, [run, *runs, *others])
    found = await repository.counted_workouts(name, Sport.RUN, factories.TIME, end)
    assert len(found) == MAX_WORKOUTS
    await write_workouts(engine, [factories.workout(name, sport_type="Run")])
    with pytest.raises(Conflict, match="More than 3000 workouts of the sport RUN") as raised:
        await repository.counted_workouts(name, Sport.RUN, factories.TIME, end)
    assert raised.value.code == "too_many_workouts"
    assert await repository.count_workouts(name) == MAX_WORKOUTS + 6 - 1 + 1


async def test_minting_is_atomic(
    repository: CollectRepository,
) -> None:
    """An outdated version or an existing award changes nothing."""
    name = await create_user(repository)
    milestone = factories.milestone(name)
    assert await repository.create_milestone(milestone, 0)
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
    assert await repository.milestones_created(milestone.user_id) is None
    assert not await repository.create_milestone(milestone, 0)
    assert await repository.milestones(milestone.user_id) == []


async def test_milestones_are_created_one_at_a_time(repository: CollectRepository) -> None:
    """A creation that counted the milestones before another one creates nothing."""
    name = await create_user(repository)
    first, second = factories.milestone(name), factories.milestone(name)
    assert await repository.milestones_created(name) == 0
    assert await repository.create_milestone(first, 0)
    assert not await repository.create_milestone(second, 0)
    assert await repository.milestones_created(name) == 1
    assert await repository.create_milestone(second, 1)
    assert await repository.milestones_created(name) == 2


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
    assert await repository.athlete_events(owner) == [first, second]
    await repository.postpone_event(first, 99, 1)
    await repository.remove_event(second)
    await repository.postpone_event(second, 99, 1)
    assert await repository.athlete_events(owner) == [replace(first, attempts=1, not_before=99)]


async def test_an_event_and_its_wake_up_are_written_at_once(
    repository: CollectRepository,
) -> None:
    """Concurrent deliveries of two events create two items and one wake-up, also if repeated."""
    owner = factories.new_id()
    events = [factories.event(owner, event_time=10), factories.event(owner, event_time=20)]
    outcomes = await asyncio.gather(
        *(repository.receive_and_wake(event, 30) for event in events for _ in range(5))
    )
    assert sum(outcomes) == 2
    assert await repository.athlete_events(owner) == events
    due = await repository.due_athletes(inbox_shard(owner), 30)
    assert [wake_up.due for wake_up in due if wake_up.athlete_id == owner] == [30]


async def test_a_partition_is_deleted_in_batches(
    repository: CollectRepository, engine: Engine
) -> None:
    """Repeated calls delete all items of one user and none of others."""
    name, other = await create_user(repository), await create_user(repository)
    items = [
        item_key(user_pk(name), workout_sk(f"STRAVA#{index}"))
        for index in range(DELETE_BATCH_SIZE + 20)
    ]
    chunks = [
        BatchWrite(COMMIT_COLLECT, tuple(items[start : start + 25]))
        for start in range(0, len(items), 25)
    ]
    await asyncio.gather(*(engine.batch_write(chunk) for chunk in chunks))
    assert await repository.link(factories.connection(name), None)
    counts = [await repository.delete_items(name, keeps_connection=True) for _ in range(3)]
    assert sum(counts) == DELETE_BATCH_SIZE + 21
    assert counts[-1] == 0
    assert await repository.connection(name) is not None
    assert await repository.delete_items(name, keeps_connection=False) == 1
    assert await repository.delete_items(name, keeps_connection=False) == 0
    assert (
        await engine.get(Get(COMMIT_COLLECT, item_key(user_pk(other), "PROFILE")))
    ).item is not None
