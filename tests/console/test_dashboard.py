"""A tile for each backend, whatever state that is in: one in trouble says so, and the others stand."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tally.app import CATALOGUE, Application, open_application
from tally.collect.model import Metric, Sport
from tally.collect.service.milestones import Goal
from tally.collect.wiring import Collect
from tally.console.context import ConsoleContext
from tally.console.dashboard import QUERY_TIMEOUT_SECONDS, BackendHealth, Dashboard
from tally.console.traffic import TrafficHistory
from tally.devices.model import Capabilities
from tally.kit.clock import ManualClock, rfc3339
from tally.kit.ids import new_uuid
from tally.kit.jobs import JobOutcome, JobRun
from tally.settings import Settings
from tests.collect import people


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def parts(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Application]:
    settings = Settings(data_dir=tmp_path / "data", backends=("collect", "cricket", "devices"))
    async with open_application(settings, clock) as parts:
        yield parts


@pytest.fixture
def context(parts: Application) -> ConsoleContext:
    return ConsoleContext(
        settings=parts.settings,
        clock=parts.clock,
        store=parts.store,
        catalogue=CATALOGUE,
        backends=parts.backends,
        probes=parts.probes,
        runner=parts.job_runner(),
        traffic=TrafficHistory(parts.metrics, parts.clock),
        patterns=list,
    )


async def test_a_backend_that_nobody_uses_yet_has_a_headline_too(context: ConsoleContext) -> None:
    tiles = await Dashboard(context).tiles.get()
    assert {
        name: tile.headline and f"{tile.headline.figure} {tile.headline.words}"
        for name, tile in tiles.items()
    } == {
        "cricket": "0 matches live",
        "collect": "0 parts minted this month",
        "devices": "0 boards awake",
    }
    assert {tile.health for tile in tiles.values()} == {BackendHealth.HEALTHY}


async def test_a_part_that_was_minted_is_told_by_its_name(
    context: ConsoleContext, parts: Application
) -> None:
    """By a real workout: a twelfth of the goal, and so the first part."""
    collect = parts.backends["collect"]
    assert isinstance(collect, Collect)
    main, user = collect.handlers.milestones.main, people.user_id()
    linked = people.connection(user)
    assert await main.create_profile(people.profile(user))
    assert await main.link(linked, None)
    await collect.handlers.milestones.create(
        user, Goal("fox", Sport.RIDE, Metric.DISTANCE_METERS, 12_000)
    )
    assert await main.put_workout(
        people.workout(user, distance=1_000, started_at=rfc3339(parts.clock.now())),
        linked.athlete_id,
    )
    await collect.handlers.engine.move_all(user)
    await collect.audit.flush()
    tile = (await Dashboard(context).tiles.get())["collect"]
    assert tile.headline is not None
    assert (tile.headline.figure, tile.headline.words) == ("1", "part minted this month")
    assert tile.headline.details[0] == "latest: somebody, Meadow of Fox"


async def test_a_board_is_awake_for_some_minutes_after_it_was_heard_of(
    context: ConsoleContext, parts: Application, clock: ManualClock
) -> None:
    dashboard, registry = Dashboard(context), parts.backends["devices"].handlers.registry  # type: ignore[attr-defined]
    await registry.register("02:00:00:00:00:01", new_uuid(), "1.0", Capabilities())
    tile = (await dashboard.tiles.get())["devices"]
    assert tile.headline is not None
    assert (tile.headline.figure, tile.headline.words) == ("1", "board awake")
    await clock.advance(301)
    tile = (await dashboard.tiles.get())["devices"]
    assert tile.headline is not None
    assert tile.headline.figure == "0"


async def test_without_the_store_tiles_say_so_and_those_that_need_it_not_are_as_ever(
    context: ConsoleContext, parts: Application
) -> None:
    dashboard = Dashboard(context)
    (store,) = await dashboard.engines.get()
    assert (store.key, store.kind, store.state) == (
        "store",
        "SQLite, embedded in this process",
        "works",
    )
    assert {name for name, _ in store.facts} == {
        "File",
        "Log",
        "Tables",
        "Reads",
        "Writes",
        "Mean time",
    }
    await parts.store.engine.close()
    tiles = await dashboard.tiles.get()
    assert (tiles["collect"].health, tiles["collect"].said) == (
        BackendHealth.FAILING,
        "The store cannot answer now",
    )
    assert tiles["cricket"].headline is None
    assert tiles["devices"].health is BackendHealth.HEALTHY
    (store,) = await Dashboard(context).engines.get()
    assert (store.state, store.is_well, store.facts) == ("away", False, ())


async def test_a_backend_that_hangs_or_breaks_does_not_hold_up_the_others(
    context: ConsoleContext, clock: ManualClock
) -> None:
    dashboard = Dashboard(context)

    async def broken() -> None:
        raise ZeroDivisionError

    dashboard._asks |= {"cricket": asyncio.Event().wait, "collect": broken}  # type: ignore[dict-item]
    asking = asyncio.create_task(dashboard.tiles.get())
    await clock.advance(QUERY_TIMEOUT_SECONDS)
    tiles = await asking
    assert (tiles["cricket"].health, tiles["cricket"].said) == (
        BackendHealth.FAILING,
        "It does not answer",
    )
    assert tiles["collect"].said == "Something is wrong: the log has more"
    assert tiles["devices"].health is BackendHealth.HEALTHY


async def test_failed_requests_and_jobs_are_a_worry(
    context: ConsoleContext, parts: Application, clock: ManualClock
) -> None:
    context.runner.last_runs["collect-inbox"] = JobRun(
        clock.now(), 0.1, JobOutcome.FAILED, "it broke"
    )
    context.traffic.sample()
    for _ in range(3):
        parts.metrics.observe_request("POST", "/devices/data", 503, 0.01)
    await clock.advance(1)
    context.traffic.sample()
    tiles = await Dashboard(context).tiles.get()
    assert (tiles["collect"].health, tiles["collect"].said) == (
        BackendHealth.DEGRADED,
        "collect-inbox failed",
    )
    assert (tiles["devices"].health, tiles["devices"].said) == (
        BackendHealth.DEGRADED,
        "3.0 failures/s",
    )
    assert tiles["cricket"].health is BackendHealth.HEALTHY
