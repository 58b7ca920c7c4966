"""Every backend has a tile; a failing backend is reported and does not affect the others."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tally.app import CATALOGUE, Application, open_application
from tally.collect.model.records import Metric, Sport
from tally.collect.service.milestones import Goal
from tally.collect.wiring import Collect
from tally.console.context import ConsoleContext
from tally.console.dashboard import QUERY_TIMEOUT_SECONDS, BackendHealth, Dashboard
from tally.console.live_updates import LiveUpdates
from tally.console.traffic import TrafficHistory
from tally.cricket.model.feed import MatchStatus
from tally.cricket.model.records import ActivityStatus, LiveActivity
from tally.cricket.wiring.backend import Cricket
from tally.devices.model.records import Capabilities
from tally.kit.clock import ManualClock, rfc3339
from tally.kit.ids import new_uuid
from tally.kit.jobs import JobOutcome, JobRun
from tally.kit.recent_logs import RecentLogs
from tally.settings import Settings
from tests.collect import factories
from tests.collect.service_harness import put_workout
from tests.cricket import factories as cricket_factories
from tests.instance.test_console_sessions import make_sessions


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def application(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Application]:
    settings = Settings(data_dir=tmp_path / "data", backends=("collect", "cricket", "devices"))
    async with open_application(settings, clock) as application:
        yield application


@pytest.fixture
def context(application: Application, clock: ManualClock) -> ConsoleContext:
    return ConsoleContext(
        settings=application.settings,
        clock=application.clock,
        store=application.store,
        engine=application.engine,
        catalogue=CATALOGUE,
        backends=application.backends,
        runner=application.job_runner(),
        administration=application.administration,
        recent_logs=RecentLogs(),
        traffic=TrafficHistory(application.metrics, application.clock),
        patterns=list,
        operators=application.operators,
        sessions=make_sessions(application.store, clock),
        updates=LiveUpdates(application.store, application.hub, application.clock),
    )


async def test_an_unused_backend_has_a_headline(context: ConsoleContext) -> None:
    tiles = await Dashboard(context).tiles.get()
    assert {
        name: tile.headline and f"{tile.headline.value} {tile.headline.unit}"
        for name, tile in tiles.items()
    } == {
        "cricket": "0 matches live",
        "collect": "0 parts minted this month",
        "devices": "0 devices active",
    }
    assert {tile.health for tile in tiles.values()} == {BackendHealth.HEALTHY}


async def test_the_collect_tile_names_the_latest_part(
    context: ConsoleContext, application: Application
) -> None:
    """A workout covers a twelfth of the goal and mints the first part."""
    collect = application.backends["collect"]
    assert isinstance(collect, Collect)
    main, user = collect.services.milestones.repository, factories.new_user_id()
    linked = factories.connection(user)
    assert await main.create_profile(factories.profile(user))
    assert await main.link(linked, None)
    await collect.services.milestones.create(
        user, Goal("fox", Sport.RIDE, Metric.DISTANCE_METERS, 12_000)
    )
    assert await put_workout(
        main,
        factories.workout(user, distance=1_000, started_at=rfc3339(application.clock.now())),
        linked.athlete_id,
        None,
    )
    await collect.services.engine.advance_all(user)
    await collect.audit.flush()
    tile = (await Dashboard(context).tiles.get())["collect"]
    assert tile.headline is not None
    assert (tile.headline.value, tile.headline.unit) == ("1", "part minted this month")
    assert tile.headline.details[0] == "latest: an athlete, Meadow of Fox"


async def test_the_cricket_tile_shows_the_ages_of_scores_and_pushes_and_the_confirmed_share(
    context: ConsoleContext, application: Application, clock: ManualClock
) -> None:
    """Only what this instance knows: it polls, and has swept the activities of the match."""
    cricket, dashboard = application.backends["cricket"], Dashboard(context)
    assert isinstance(cricket, Cricket)
    match = cricket_factories.fixture(
        status=MatchStatus.IN_PLAY, live_updated_at=clock.milliseconds()
    )
    await cricket.live.poller.fixtures.write_batch([match])
    tile = (await dashboard.tiles.get())["cricket"]
    assert tile.headline is not None
    assert not {detail for detail in tile.headline.details if "polled" in detail}

    async def activities() -> AsyncIterator[LiveActivity]:
        for number in range(4):
            status = ActivityStatus.PENDING if number == 0 else ActivityStatus.ACTIVE
            yield cricket_factories.activity(match.match_id, status=status)

    metrics = cricket.live.poller.metrics
    metrics.record_poll(1)
    metrics.record_update(match.match_id, 7, clock.milliseconds() - 1_500)
    metrics.record_delivery(match.match_id, 7)
    counts = cricket.live.orchestrator.sweeper.counts
    assert len([swept async for swept in counts.counted(match.match_id, activities())]) == 4
    await clock.advance(30)
    tile = (await dashboard.tiles.get())["cricket"]
    assert tile.headline is not None
    assert tile.headline.details[-3:] == (
        "scores polled 30 s ago",
        "last update pushed in 1.5 s",
        "75% of Live Activities confirmed",
    )


async def test_a_device_is_active_for_five_minutes_after_its_last_request(
    context: ConsoleContext, application: Application, clock: ManualClock
) -> None:
    dashboard, devices = Dashboard(context), application.backends["devices"].services.devices  # type: ignore[attr-defined]
    await devices.register("02:00:00:00:00:01", new_uuid(), "1.0", Capabilities())
    tile = (await dashboard.tiles.get())["devices"]
    assert tile.headline is not None
    assert (tile.headline.value, tile.headline.unit) == ("1", "device active")
    await clock.advance(301)
    tile = (await dashboard.tiles.get())["devices"]
    assert tile.headline is not None
    assert tile.headline.value == "0"


async def test_tiles_report_a_closed_store_and_the_others_stay_healthy(
    context: ConsoleContext, application: Application
) -> None:
    dashboard = Dashboard(context)
    (store,) = await dashboard.engines.get()
    assert (store.key, store.kind, store.state) == (
        "store",
        "SQLite, embedded in this process",
        "available",
    )
    assert {name for name, _ in store.facts} == {
        "File",
        "Write-ahead log",
        "Tables",
        "Reads",
        "Writes",
        "Mean time",
    }
    await application.engine.close()
    tiles = await dashboard.tiles.get()
    assert (tiles["collect"].health, tiles["collect"].status) == (
        BackendHealth.FAILING,
        "The store is unavailable",
    )
    assert tiles["cricket"].headline is None
    assert tiles["devices"].health is BackendHealth.HEALTHY
    (store,) = await Dashboard(context).engines.get()
    assert (store.state, store.is_healthy, store.facts) == ("unavailable", False, ())


async def test_a_hanging_or_failing_backend_does_not_delay_the_other_tiles(
    context: ConsoleContext, clock: ManualClock
) -> None:
    dashboard = Dashboard(context)

    async def broken() -> None:
        raise ZeroDivisionError

    dashboard._queries |= {"cricket": asyncio.Event().wait, "collect": broken}  # type: ignore[dict-item]
    loading = asyncio.create_task(dashboard.tiles.get())
    await clock.advance(QUERY_TIMEOUT_SECONDS)
    tiles = await loading
    assert (tiles["cricket"].health, tiles["cricket"].status) == (
        BackendHealth.FAILING,
        "No response within 2 s",
    )
    assert tiles["collect"].status == "Internal error; see the log"
    assert tiles["devices"].health is BackendHealth.HEALTHY


async def test_failed_requests_and_jobs_degrade_a_backend(
    context: ConsoleContext, application: Application, clock: ManualClock
) -> None:
    context.runner.last_runs["collect-inbox"] = JobRun(
        clock.now(), 0.1, JobOutcome.FAILED, "it broke"
    )
    context.traffic.sample()
    for _ in range(3):
        application.metrics.observe_request("POST", "/devices/data", 503, 0.01)
    await clock.advance(1)
    context.traffic.sample()
    tiles = await Dashboard(context).tiles.get()
    assert (tiles["collect"].health, tiles["collect"].status) == (
        BackendHealth.DEGRADED,
        "collect-inbox failed",
    )
    assert (tiles["devices"].health, tiles["devices"].status) == (
        BackendHealth.DEGRADED,
        "3.0 failures/s",
    )
    assert tiles["cricket"].health is BackendHealth.HEALTHY
