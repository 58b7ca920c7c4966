"""A crash between any two writes leaves a state that the next run completes."""

import asyncio
import contextlib
import tempfile
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tally.collect.model.records import Metric, MilestoneStatus, MilestoneWithAwards, Sport
from tally.collect.model.rules import parts_earned
from tally.collect.model.workouts import SPORT_FAMILIES
from tally.collect.service.milestones import Goal
from tally.collect.service.webhook import WebhookDelivery
from tally.kit.clock import ManualClock
from tally.store.api import Engine
from tests.collect import factories
from tests.collect.conftest import TABLES
from tests.collect.worker_harness import (
    PATH_SECRET,
    Crash,
    CrashingEngine,
    FakeStrava,
    WorkerHarness,
    activity,
    create_linked_user,
    delivery,
    open_worker,
    pending_events_of,
)
from tests.store.emulators import open_engine

MAX_WRITES = 40


async def goal(worker_harness: WorkerHarness, name: str) -> MilestoneWithAwards:
    parameters = Goal(
        worker_harness.services.model.meta.model_id,
        Sport.RIDE,
        Metric.DISTANCE_METERS,
        8000,
        factories.TIME,
    )
    return await worker_harness.services.milestones.create(name, parameters)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_an_event_survives_a_crash_at_any_write(engine: Engine, after: bool) -> None:
    """The event is neither lost nor applied twice."""
    for writes in range(MAX_WRITES):
        clock, strava = ManualClock(datetime.now(UTC)), FakeStrava()
        async with open_worker(engine, clock, strava) as worker_harness:
            name, athlete_id = await create_linked_user(worker_harness)
            current = await goal(worker_harness, name)
            number = factories.new_id()
            strava.activities[number] = activity(number, 5000)
            await worker_harness.webhook.receive(
                PATH_SECRET, delivery(athlete_id, number, "create", 1_767_225_600)
            )
            crashing_engine = CrashingEngine(engine, writes, after=after)
            crashed = False
            try:
                async with open_worker(
                    crashing_engine, clock, strava, model=worker_harness.services.model
                ) as crashing:
                    await crashing.worker.run()
            except (Crash, BaseExceptionGroup):
                crashed = True
            clock._elapsed += 61  # the lease expires
            await worker_harness.worker.run()
            found = await worker_harness.services.milestones.get(
                name, current.milestone.milestone_id
            )
            assert (
                found.milestone.progress,
                found.milestone.parts_minted,
                found.milestone.version,
            ) == (5000, 5, 2)
            assert found.ledger == {1, 2, 3, 4, 5}
            assert await pending_events_of(worker_harness, athlete_id) == []
            workouts, _ = await worker_harness.services.repository.workouts(name, 10, None)
            assert [workout.activity_id for workout in workouts] == [number]
        if not crashed:
            return
    pytest.fail(f"an event takes more than {MAX_WRITES} writes")


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("create"),
            st.integers(0, 4),
            st.integers(0, 4000),
            st.sampled_from(["Ride", "EBikeRide", "Run"]),
        ),
        st.tuples(st.just("delete"), st.integers(0, 4), st.just(0), st.just("")),
        st.tuples(st.just("redeliver"), st.integers(0, 30), st.just(0), st.just("")),
        st.tuples(st.just("run"), st.just(0), st.just(0), st.just("")),
    ),
    max_size=25,
)


@settings(max_examples=15)
@given(STEPS)
def test_ledger_and_counter_agree_after_any_history(
    steps: list[tuple[str, int, int, str]],
) -> None:
    """For any events, progress never decreases and each part is minted once."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check_history(Path(folder), steps))


async def check_history(folder: Path, steps: list[tuple[str, int, int, str]]) -> None:
    clock, strava = ManualClock(), FakeStrava()
    async with contextlib.AsyncExitStack() as stack:
        engine = await stack.enter_async_context(open_engine("sqlite", folder, TABLES))
        worker_harness = await stack.enter_async_context(
            open_worker(engine, clock, strava, parts=12)
        )
        name, athlete_id = await create_linked_user(worker_harness)
        before = await goal(worker_harness, name)
        ids = [factories.new_id() for _ in range(5)]
        # The maximum distance of each activity. Their sum bounds the progress.
        peaks = dict.fromkeys(ids, 0)
        sent: list[WebhookDelivery] = []
        for kind, which, metres, sport_type in [*steps, ("run", 0, 0, "")]:
            clock._elapsed += 1
            if kind == "run":
                await worker_harness.worker.run()
                rides = [
                    ride
                    for ride in strava.activities.values()
                    if SPORT_FAMILIES.get(ride.sport_type) is Sport.RIDE
                ]
                before = await _checked(
                    worker_harness,
                    before,
                    (sum(ride.distance for ride in rides), sum(peaks.values())),
                )
            elif kind == "redeliver":
                if sent:
                    await worker_harness.webhook.receive(PATH_SECRET, sent[which % len(sent)])
            else:
                peaks[ids[which]] = max(peaks[ids[which]], metres)
                aspect = _change(strava, kind, ids[which], metres, sport_type)
                sent.append(delivery(athlete_id, ids[which], aspect, clock.seconds()))
                await worker_harness.webhook.receive(PATH_SECRET, sent[-1])
        known = {
            workout.activity_id
            for workout in (await worker_harness.services.repository.workouts(name, 100, None))[0]
        }
        assert known == set(strava.activities)
        assert await pending_events_of(worker_harness, athlete_id) == []


def _change(strava: FakeStrava, kind: str, number: int, metres: int, sport: str) -> str:
    """Change an activity at Strava; return the aspect type of the event."""
    is_known = number in strava.activities
    if kind == "delete":
        strava.activities.pop(number, None)
        return "delete"
    strava.activities[number] = activity(number, metres, sport)
    return "update" if is_known else "create"


async def _checked(
    worker_harness: WorkerHarness, before: MilestoneWithAwards, bounds: tuple[int | Decimal, int]
) -> MilestoneWithAwards:
    now = await worker_harness.services.milestones.get(
        before.milestone.user_id, before.milestone.milestone_id
    )
    minimum, maximum = bounds
    if before.milestone.status is MilestoneStatus.COMPLETED:
        assert now.milestone == before.milestone
    else:
        # Workouts after completion do not count.
        assert (
            now.milestone.status is MilestoneStatus.COMPLETED or now.milestone.progress >= minimum
        )
        assert now.milestone.progress <= maximum
    assert now.milestone.progress >= before.milestone.progress
    assert now.milestone.percent >= before.milestone.percent
    assert now.ledger >= before.ledger
    earned = parts_earned(now.milestone.progress, 8000, 12)
    assert now.ledger == set(range(1, earned + 1))
    assert now.milestone.parts_minted == len(now.awards) == earned
    assert (now.milestone.status is MilestoneStatus.COMPLETED) == (earned == 12)
    return now
