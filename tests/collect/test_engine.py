"""The progress engine advances milestones and mints each part once, also concurrently."""

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
from tally.collect.model.workouts import Workout
from tally.collect.repository.main import CollectRepository
from tally.collect.repository.table import COMMIT_COLLECT, item_key, milestone_sk, user_pk
from tally.collect.service.engine import MAX_ATTEMPTS, MAX_BACKOFF_SECONDS
from tally.collect.service.milestones import Goal
from tally.errors import Conflict, Invalid, NotFound, Unavailable
from tally.kit import logs
from tally.kit.clock import SystemClock
from tally.store.api import Engine, Update
from tally.store.expressions import F
from tests.collect import factories
from tests.collect.service_harness import ServiceHarness, open_services, put_workout, write_workouts


@pytest.fixture
async def services(engine: Engine) -> AsyncIterator[ServiceHarness]:
    """Services with few enough parts for DynamoDB Local to mint all in one transaction."""
    async with open_services(engine, SystemClock(), parts=8) as opened:
        yield opened


async def create_milestone(
    services: ServiceHarness, name: str, target: int = 8000
) -> MilestoneWithAwards:
    goal = Goal(
        services.model.meta.model_id, Sport.RIDE, Metric.DISTANCE_METERS, target, factories.TIME
    )
    return await services.milestones.create(name, goal)


async def add_ride(services: ServiceHarness, name: str, athlete_id: int, metres: int) -> Workout:
    workout = factories.workout(name, distance=metres)
    assert await put_workout(services.repository, workout, athlete_id, None)
    return workout


async def test_a_workout_advances_the_milestone_and_mints_parts(
    services: ServiceHarness,
) -> None:
    """Awards contain the part and the correlation id, and the change is published."""
    name, athlete_id = await services.create_linked_user()
    created = await create_milestone(services, name)
    await add_ride(services, name, athlete_id, 2500)
    with logs.bound(correlation_id="from-the-webhook"):
        await services.engine.advance_all(name)
    now = await services.milestones.get(name, created.milestone.milestone_id)
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
    assert await services.minted(name) == [1, 2]


async def test_a_run_without_changes_writes_nothing(services: ServiceHarness) -> None:
    """The version is unchanged, and nothing is published."""
    name, athlete_id = await services.create_linked_user()
    created = await create_milestone(services, name)
    await add_ride(services, name, athlete_id, 2500)
    first = await services.engine.recompute(name, created.milestone.milestone_id)
    assert await services.engine.recompute(name, created.milestone.milestone_id) == first
    assert len(await services.minted(name)) == len(first.awards)


async def test_deleted_and_edited_workouts_do_not_reduce_progress(services: ServiceHarness) -> None:
    """Progress, parts and status are retained after completion."""
    name, athlete_id = await services.create_linked_user()
    created = await create_milestone(services, name)
    ride = await add_ride(services, name, athlete_id, 8000)
    await services.engine.advance_all(name)
    await add_ride(services, name, athlete_id, 1)
    gone = replace(ride, is_deleted=True)
    assert await put_workout(services.repository, gone, athlete_id, 1)
    now = await services.engine.recompute(name, created.milestone.milestone_id)
    assert now.milestone.status is MilestoneStatus.COMPLETED
    assert (now.milestone.progress, now.milestone.percent, now.milestone.parts_minted) == (
        8000,
        100,
        8,
    )
    assert len(now.awards) == 8


async def test_twenty_concurrent_recomputes_mint_each_part_once(services: ServiceHarness) -> None:
    """The version increases by exactly one."""
    name, athlete_id = await services.create_linked_user()
    created = await create_milestone(services, name)
    await add_ride(services, name, athlete_id, 5000)
    milestone_id = created.milestone.milestone_id
    results = await asyncio.gather(
        *(services.engine.recompute(name, milestone_id) for _ in range(20))
    )
    now = await services.milestones.get(name, milestone_id)
    assert all(result == now for result in results)
    assert now.milestone.version == created.milestone.version + 1
    assert now.ledger == {1, 2, 3, 4, 5}
    assert await services.minted(name) == [1, 2, 3, 4, 5]


async def test_concurrent_workouts_all_count(services: ServiceHarness) -> None:
    """A run that loses the race reads again, so that the last one sees everything."""
    name, athlete_id = await services.create_linked_user()
    created = await create_milestone(services, name)

    async def add_and_advance(metres: int) -> None:
        await add_ride(services, name, athlete_id, metres)
        await services.engine.advance_all(name)

    await asyncio.gather(*(add_and_advance(100) for _ in range(30)))
    now = await services.milestones.get(name, created.milestone.milestone_id)
    assert now.milestone.progress == 3000
    assert now.ledger == {1, 2, 3}
    assert sorted(await services.minted(name)) == [1, 2, 3]


async def test_a_wrong_counter_is_repaired_by_the_next_run(
    services: ServiceHarness, engine: Engine
) -> None:
    """The ledger is the source of truth."""
    name, athlete_id = await services.create_linked_user()
    created = await create_milestone(services, name)
    await add_ride(services, name, athlete_id, 3000)
    milestone_id = created.milestone.milestone_id
    right = await services.engine.recompute(name, milestone_id)
    for wrong in (0, 7):
        damage = (F("partsMinted").set(wrong),)
        await engine.update(
            Update(COMMIT_COLLECT, item_key(user_pk(name), milestone_sk(milestone_id)), damage)
        )
        repaired = await services.engine.recompute(name, milestone_id)
        assert repaired.milestone.parts_minted == 3
        assert repaired.awards == right.awards


class ConflictingRepository(CollectRepository):
    """A repository whose mints always lose the race."""

    async def mint(self, milestone: Milestone, awards: Sequence[Award]) -> bool:
        assert milestone.parts_minted == len(awards)
        return False


class RecordingClock(SystemClock):
    """A clock that records sleeps instead of sleeping."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


async def test_the_engine_gives_up_after_repeated_conflicts(
    services: ServiceHarness,
) -> None:
    """It backs off with jitter between attempts, then returns a retry delay to the caller."""
    name, athlete_id = await services.create_linked_user()
    created = await create_milestone(services, name)
    await add_ride(services, name, athlete_id, 3000)
    clock = RecordingClock()
    engine = replace(services.engine, repository=ConflictingRepository(services.store), clock=clock)
    with pytest.raises(Unavailable, match="change too often") as raised:
        await engine.recompute(name, created.milestone.milestone_id)
    assert raised.value.retry_after == 1
    assert len(clock.slept) == MAX_ATTEMPTS
    assert max(clock.slept) <= MAX_BACKOFF_SECONDS
    assert await services.milestones.get(name, created.milestone.milestone_id) == created


async def test_too_many_workouts_are_a_conflict_and_nothing_is_written(
    services: ServiceHarness, engine: Engine
) -> None:
    """For recompute, and for a new milestone whose period has started."""
    name, athlete_id = await services.create_linked_user()
    created = await create_milestone(services, name)
    await add_ride(services, name, athlete_id, 3000)
    await write_workouts(engine, [factories.workout(name) for _ in range(3000)])
    for attempt in (
        services.engine.recompute(name, created.milestone.milestone_id),
        create_milestone(services, name),
    ):
        with pytest.raises(Conflict, match="More than 3000 workouts of the sport RIDE"):
            await attempt
    assert await services.milestones.all(name) == [created]


async def test_a_milestone_counts_from_the_start_of_its_period(services: ServiceHarness) -> None:
    """By default from now on; a period in the past counts existing workouts immediately."""
    name, athlete_id = await services.create_linked_user()
    await add_ride(services, name, athlete_id, 4000)
    current = await services.milestones.create(
        name, Goal(services.model.meta.model_id, Sport.RIDE, Metric.DISTANCE_METERS, 8000)
    )
    past = await create_milestone(services, name)
    assert (current.milestone.progress, past.milestone.progress) == (0, 4000)
    assert past.ledger == {1, 2, 3, 4}
    assert await services.milestones.all(name) == [current, past]


async def test_a_model_that_excludes_manual_workouts_does_not_count_them(engine: Engine) -> None:
    """The milestone keeps the rule of the model it was created with."""
    model = factories.model(8)
    strict = replace(model, meta=replace(model.meta, counts_manual=False))
    async with open_services(engine, SystemClock(), parts=8) as services:
        await services.repository.put_model(strict)
    stored = await services.repository.model(strict.meta.model_id)
    assert stored == strict
    async with open_services(engine, SystemClock(), model=strict) as services:
        name, athlete_id = await services.create_linked_user()
        created = await create_milestone(services, name)
        assert not created.milestone.counts_manual
        for metres, is_manual in ((3000, True), (1000, False)):
            ride = factories.workout(name, distance=metres, is_manual=is_manual)
            assert await put_workout(services.repository, ride, athlete_id, None)
        await services.engine.advance_all(name)
        now = await services.milestones.get(name, created.milestone.milestone_id)
        assert now.milestone.progress == 1000


async def test_a_just_written_workout_counts_while_the_index_lacks_it(
    services: ServiceHarness,
) -> None:
    """Global indexes of DynamoDB are eventually consistent."""
    name, _ = await services.create_linked_user()
    created = await create_milestone(services, name)
    ride = factories.workout(name, distance=2500, version=1)
    await services.engine.advance_all(name, [ride])
    now = await services.milestones.get(name, created.milestone.milestone_id)
    assert now.ledger == {1, 2}


async def test_archiving_and_minting_at_once_lose_nothing(services: ServiceHarness) -> None:
    """The version decides the order; the ledger equals the counter in any case."""
    name, athlete_id = await services.create_linked_user()
    for _ in range(5):
        created = await create_milestone(services, name)
        milestone_id = created.milestone.milestone_id
        await add_ride(services, name, athlete_id, 100)
        await asyncio.gather(
            services.engine.advance_all(name),
            services.milestones.archive(name, milestone_id),
            services.milestones.archive(name, milestone_id),
        )
        now = await services.milestones.get(name, milestone_id)
        assert now.milestone.archived_at is not None
        assert now.milestone.parts_minted == len(now.awards)
        await services.engine.advance_all(name)
        assert await services.milestones.get(name, milestone_id) == now


async def test_a_target_below_the_progress_completes_the_milestone(
    services: ServiceHarness,
) -> None:
    """All parts are minted in the same transaction."""
    name, athlete_id = await services.create_linked_user()
    created = await create_milestone(services, name, 1_000_000)
    await add_ride(services, name, athlete_id, 900)
    await services.engine.advance_all(name)
    done = await services.milestones.change_target(name, created.milestone.milestone_id, 800)
    assert done.milestone.status is MilestoneStatus.COMPLETED
    assert (done.milestone.percent, done.milestone.progress, done.milestone.version) == (
        100,
        900,
        3,
    )
    assert len(done.awards) == 8


async def test_a_lowered_target_and_a_run_mint_each_part_once(services: ServiceHarness) -> None:
    """Either the target changes first, or the run mints first and the change is refused."""
    name, athlete_id = await services.create_linked_user()
    created = await create_milestone(services, name)
    milestone_id = created.milestone.milestone_id
    await add_ride(services, name, athlete_id, 1000)
    outcomes = await asyncio.gather(
        services.engine.advance_all(name),
        services.milestones.change_target(name, milestone_id, 4000),
        services.engine.recompute(name, milestone_id),
        return_exceptions=True,
    )
    failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert all(isinstance(failure, Conflict) for failure in failures)
    await services.engine.advance_all(name)
    now = await services.milestones.get(name, milestone_id)
    assert now.milestone.total_target == (8000 if failures else 4000)
    assert now.ledger == ({1} if failures else {1, 2})
    assert sorted(await services.minted(name)) == sorted(now.ledger)


@pytest.mark.parametrize(
    "changes",
    [{"total_target": 0}, {"period_start": "soon"}, {"period_end": "2020-01-01T00:00:00Z"}],
)
async def test_an_invalid_goal_is_rejected(
    services: ServiceHarness, changes: dict[str, object]
) -> None:
    """Nothing is written."""
    name, _ = await services.create_linked_user()
    goal = Goal(services.model.meta.model_id, Sport.RIDE, Metric.DISTANCE_METERS, 8000)
    with pytest.raises(Invalid):
        await services.milestones.create(name, replace(goal, **changes))  # type: ignore[arg-type]
    assert await services.milestones.all(name) == []


async def test_unknown_models_and_milestones_are_not_found(services: ServiceHarness) -> None:
    """Also for key prefixes and milestones of other users."""
    name, _ = await services.create_linked_user()
    other, _ = await services.create_linked_user()
    created = await create_milestone(services, name)
    with pytest.raises(NotFound, match="model"):
        await services.milestones.create(
            name, Goal("no-such-model", Sport.RUN, Metric.DISTANCE_METERS, 5)
        )
    for user_id, milestone_id in (
        (name, ""),
        (name, "0"),
        (name, "A" * 26),
        (other, created.milestone.milestone_id),
    ):
        with pytest.raises(NotFound, match="milestone"):
            await services.milestones.get(user_id, milestone_id)


async def test_every_minted_part_is_audited_once(
    services: ServiceHarness,
) -> None:
    """Five parts of one request are five events."""
    name, athlete_id = await services.create_linked_user()
    await create_milestone(services, name)
    await add_ride(services, name, athlete_id, 5000)
    with logs.bound(request_id="one-request", correlation_id=f"corr-{name}"):
        await services.engine.advance_all(name)
    await services.audit.flush()
    events, _ = await services.audit_log.by_correlation(f"corr-{name}", 50, None)
    assert sorted(event.facts["part"] for event in events) == [1, 2, 3, 4, 5]
    assert {event.event_type for event in events} == {"MILESTONE_PART_MINTED"}
