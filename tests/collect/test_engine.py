"""Milestones move with the workouts, and every part is minted once, whoever else is at it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from tally.collect.model.records import (
    Award,
    Metric,
    Milestone,
    MilestoneStatus,
    MilestoneWithAwards,
    Sport,
)
from tally.collect.repository.main import CollectRepository
from tally.collect.repository.table import COMMIT_COLLECT, item_key, milestone_sk, user_pk
from tally.collect.service.engine import MAX_ATTEMPTS, MAX_BACKOFF_SECONDS
from tally.collect.service.milestones import Goal
from tally.errors import Conflict, Invalid, NotFound, Unavailable
from tally.kit import logs
from tally.kit.clock import SystemClock
from tally.store.api import BatchWrite, Engine, Update
from tally.store.expressions import F
from tests.collect import factories
from tests.collect.service_harness import ServiceHarness, open_services


@pytest.fixture
async def services(engine: Engine) -> AsyncIterator[ServiceHarness]:
    """With parts few enough that DynamoDB Local mints all of them in one transaction."""
    async with open_services(engine, SystemClock(), parts=8) as made:
        yield made


async def begun(services: ServiceHarness, name: str, target: int = 8000) -> MilestoneWithAwards:
    goal = Goal(
        services.model.meta.model_id, Sport.RIDE, Metric.DISTANCE_METERS, target, factories.TIME
    )
    return await services.milestones.create(name, goal)


async def rode(services: ServiceHarness, name: str, athlete_id: int, metres: int) -> int:
    made = factories.workout(name, distance=metres)
    assert await services.repository.put_workout(made, athlete_id)
    return made.activity_id


async def test_a_workout_moves_the_milestone_and_mints_what_it_earned(
    services: ServiceHarness,
) -> None:
    """With the part's metadata and the correlation id of the event in the award, and word to those who watch."""
    name, athlete_id = await services.create_linked_user()
    held = await begun(services, name)
    await rode(services, name, athlete_id, 2500)
    with logs.bound(correlation_id="from-the-webhook"):
        await services.engine.advance_all(name)
    now = await services.milestones.get(name, held.milestone.milestone_id)
    assert (now.milestone.progress, now.milestone.percent, now.milestone.parts_minted) == (
        2500,
        31,
        2,
    )
    assert [award.part for award in now.awards] == list(services.model.parts[:2])
    assert [(award.threshold, award.correlation_id) for award in now.awards] == [
        (1000, "from-the-webhook"),
        (2000, "from-the-webhook"),
    ]
    assert services.publisher.published == [(now.milestone, now.awards)]


async def test_a_run_that_finds_nothing_new_writes_nothing(services: ServiceHarness) -> None:
    """The version stands, and nobody is told."""
    name, athlete_id = await services.create_linked_user()
    held = await begun(services, name)
    await rode(services, name, athlete_id, 2500)
    first = await services.engine.recompute(name, held.milestone.milestone_id)
    assert await services.engine.recompute(name, held.milestone.milestone_id) == first
    assert len(services.publisher.published) == 1


async def test_deleted_and_edited_workouts_take_nothing_away(services: ServiceHarness) -> None:
    """Progress, parts and status stay, also after the goal."""
    name, athlete_id = await services.create_linked_user()
    held = await begun(services, name)
    activity = await rode(services, name, athlete_id, 8000)
    await services.engine.advance_all(name)
    await rode(services, name, athlete_id, 1)
    gone = factories.workout(name, activity, is_deleted=True, event_time=1_800_000_000)
    assert await services.repository.put_workout(gone, athlete_id)
    now = await services.engine.recompute(name, held.milestone.milestone_id)
    assert now.milestone.status is MilestoneStatus.COMPLETED
    assert (now.milestone.progress, now.milestone.percent, now.milestone.parts_minted) == (
        8000,
        100,
        8,
    )
    assert len(now.awards) == 8


async def test_twenty_recomputes_at_once_mint_every_part_once(services: ServiceHarness) -> None:
    """And the version has risen by exactly one."""
    name, athlete_id = await services.create_linked_user()
    held = await begun(services, name)
    await rode(services, name, athlete_id, 5000)
    milestone_id = held.milestone.milestone_id
    results = await asyncio.gather(
        *(services.engine.recompute(name, milestone_id) for _ in range(20))
    )
    now = await services.milestones.get(name, milestone_id)
    assert all(result == now for result in results)
    assert now.milestone.version == held.milestone.version + 1
    assert now.ledger == {1, 2, 3, 4, 5}
    assert [len(awards) for _, awards in services.publisher.published] == [5]


async def test_workouts_that_arrive_together_are_all_counted(services: ServiceHarness) -> None:
    """Whoever loses the race reads again, so that the last to finish has seen everything."""
    name, athlete_id = await services.create_linked_user()
    held = await begun(services, name)

    async def arrive(metres: int) -> None:
        await rode(services, name, athlete_id, metres)
        await services.engine.advance_all(name)

    await asyncio.gather(*(arrive(100) for _ in range(30)))
    now = await services.milestones.get(name, held.milestone.milestone_id)
    assert now.milestone.progress == 3000
    assert now.ledger == {1, 2, 3}
    minted = [award.part.index for _, awards in services.publisher.published for award in awards]
    assert sorted(minted) == [1, 2, 3]


async def test_a_wrong_counter_is_healed_by_the_next_run(
    services: ServiceHarness, engine: Engine
) -> None:
    """The ledger is the truth, whatever the milestone says."""
    name, athlete_id = await services.create_linked_user()
    held = await begun(services, name)
    await rode(services, name, athlete_id, 3000)
    milestone_id = held.milestone.milestone_id
    right = await services.engine.recompute(name, milestone_id)
    for wrong in (0, 7):
        damage = (F("partsMinted").set(wrong),)
        await engine.update(
            Update(COMMIT_COLLECT, item_key(user_pk(name), milestone_sk(milestone_id)), damage)
        )
        healed = await services.engine.recompute(name, milestone_id)
        assert healed.milestone.parts_minted == 3
        assert healed.awards == right.awards


class Unlucky(CollectRepository):
    """Another is always faster."""

    async def mint(self, moved: Milestone, awards: Sequence[Award]) -> bool:
        assert moved.parts_minted == len(awards)
        return False


class Restless(SystemClock):
    """Sleeps for no time at all, and notes how long it should have been."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


async def test_a_race_that_is_always_lost_is_given_up_after_some_tries(
    services: ServiceHarness,
) -> None:
    """With a pause before each, that grows and has jitter; the caller is told to come back."""
    name, athlete_id = await services.create_linked_user()
    held = await begun(services, name)
    await rode(services, name, athlete_id, 3000)
    clock = Restless()
    engine = replace(services.engine, repository=Unlucky(services.store), clock=clock)
    with pytest.raises(Unavailable, match="change too often") as told:
        await engine.recompute(name, held.milestone.milestone_id)
    assert told.value.retry_after == 1
    assert len(clock.slept) == MAX_ATTEMPTS
    assert max(clock.slept) <= MAX_BACKOFF_SECONDS
    assert await services.milestones.get(name, held.milestone.milestone_id) == held


async def test_more_workouts_than_can_be_inspected_are_a_conflict_and_nothing_is_written(
    services: ServiceHarness, engine: Engine
) -> None:
    """A clear 409, from recompute and from a new milestone that would have to look back."""
    name, athlete_id = await services.create_linked_user()
    held = await begun(services, name)
    await rode(services, name, athlete_id, 3000)
    template = {
        "sportType": "Ride",
        "startDateUtc": factories.LATER_TIME,
        "totalElevationGain": 0,
        "isDeleted": False,
    }
    items = [
        {**item_key(user_pk(name), f"WORKOUT#STRAVA#X{index}"), "distanceMeters": 1, **template}
        for index in range(3000)
    ]
    chunks = [
        BatchWrite(COMMIT_COLLECT, tuple(items[start : start + 25])) for start in range(0, 3000, 25)
    ]
    await asyncio.gather(*(engine.batch_write(chunk) for chunk in chunks))
    for attempt in (
        services.engine.recompute(name, held.milestone.milestone_id),
        begun(services, name),
    ):
        with pytest.raises(Conflict, match="more than 3000 workouts"):
            await attempt
    assert await services.milestones.all(name) == [held]


async def test_a_milestone_that_starts_now_counts_from_now_on(services: ServiceHarness) -> None:
    """What was done before is not counted, and one with a period in the past is moved at once."""
    name, athlete_id = await services.create_linked_user()
    await rode(services, name, athlete_id, 4000)
    fresh_server = await services.milestones.create(
        name, Goal(services.model.meta.model_id, Sport.RIDE, Metric.DISTANCE_METERS, 8000)
    )
    past = await begun(services, name)
    assert (fresh_server.milestone.progress, past.milestone.progress) == (0, 4000)
    assert past.ledger == {1, 2, 3, 4}
    assert await services.milestones.all(name) == [fresh_server, past]


@pytest.mark.parametrize(
    "changes",
    [{"total_target": 0}, {"period_start": "soon"}, {"period_end": "2020-01-01T00:00:00Z"}],
)
async def test_a_bad_goal_is_refused(services: ServiceHarness, changes: dict[str, object]) -> None:
    """Before anything is written."""
    name, _ = await services.create_linked_user()
    goal = Goal(services.model.meta.model_id, Sport.RIDE, Metric.DISTANCE_METERS, 8000)
    with pytest.raises(Invalid):
        await services.milestones.create(name, replace(goal, **changes))  # type: ignore[arg-type]
    assert await services.milestones.all(name) == []


async def test_unknown_models_and_milestones_are_not_found(services: ServiceHarness) -> None:
    """Also where the id is a prefix of good ones, or another's."""
    name, _ = await services.create_linked_user()
    other, _ = await services.create_linked_user()
    held = await begun(services, name)
    with pytest.raises(NotFound, match="model"):
        await services.milestones.create(
            name, Goal("no-such-model", Sport.RUN, Metric.DISTANCE_METERS, 5)
        )
    for whose, milestone_id in (
        (name, ""),
        (name, "0"),
        (name, "A" * 26),
        (other, held.milestone.milestone_id),
    ):
        with pytest.raises(NotFound, match="milestone"):
            await services.milestones.get(whose, milestone_id)


async def test_minting_is_told_to_the_audit_trail_once_for_each_part(
    services: ServiceHarness,
) -> None:
    """Five parts of one run are five events, though they share a request."""
    name, athlete_id = await services.create_linked_user()
    await begun(services, name)
    await rode(services, name, athlete_id, 5000)
    with logs.bound(request_id="one-request", correlation_id=f"corr-{name}"):
        await services.engine.advance_all(name)
    await services.audit.flush()
    events, _ = await services.audit_log.by_correlation(f"corr-{name}", 50, None)
    assert sorted(event.facts["part"] for event in events) == [1, 2, 3, 4, 5]
    assert {event.event_type for event in events} == {"MILESTONE_PART_MINTED"}
