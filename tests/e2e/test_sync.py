"""Fixtures are synced completely and once, despite faults of the store and SportMonks."""

import random
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from tally.cricket.repository.fixture_cache import CRICKET_FIXTURE_CACHE, FixtureCacheRepository
from tally.cricket.repository.fixtures import CRICKET_FIXTURES, FixtureRepository
from tally.cricket.repository.follows import FollowRepository
from tally.cricket.repository.leagues import CRICKET_LEAGUES, LeagueRepository
from tally.cricket.repository.team_seasons import CRICKET_TEAM_SEASONS, TeamSeasonRepository
from tally.cricket.repository.teams import CRICKET_TEAMS, TeamRepository
from tally.cricket.service.ports import ReferenceData
from tally.cricket.service.queries.feeds import FeedCache
from tally.cricket.service.queries.leagues import LeagueService
from tally.cricket.service.sync.reference_data import SyncCounts, SyncService
from tally.errors import RateLimited, Unavailable
from tally.kit.clock import Clock, ManualClock
from tally.kit.ttl_cache import TTLCache
from tally.sim.fault_injection import InjectedFault
from tally.store.api import Engine, Scan
from tally.store.schema import Table
from tally.store.store import Store
from tests.cricket.pipeline_harness import open_cricket_engine
from tests.cricket.sportmonks_harness import SportMonksHarness, open_sportmonks
from tests.e2e.faulty_stores import PartialBatchEngine, open_throttling_proxy
from tests.store.emulators import dynamodb_local, engine_at
from tests.store.fake_dynamodb import InstantClock

SYNCED = (
    CRICKET_LEAGUES,
    CRICKET_TEAMS,
    CRICKET_TEAM_SEASONS,
    CRICKET_FIXTURES,
    CRICKET_FIXTURE_CACHE,
)
FIXTURE_COUNT = 10_000
FIXTURES = "/api/v2.0/fixtures"


def sync_service(store: Store, source: ReferenceData, clock: Clock) -> SyncService:
    leagues, cache = LeagueRepository(store), FixtureCacheRepository(store)
    return SyncService(
        source=source,
        leagues=leagues,
        league_service=LeagueService(leagues, clock, TTLCache(clock, 0, 10)),
        teams=TeamRepository(store),
        seasons=TeamSeasonRepository(store),
        fixtures=FixtureRepository(store),
        cache=cache,
        follows=FollowRepository(store),
        feeds=FeedCache(cache, clock, TTLCache(clock, 0, 10)),
        clock=clock,
    )


async def sync_all(sync: SyncService) -> None:
    """Sync the leagues first, because the others belong to them."""
    await sync.sync_leagues()
    await sync.sync_teams()
    await sync.sync_fixtures()


async def match_ids(engine: Engine, table: Table) -> Counter[str]:
    """Count the records of each match in a table."""
    counts: Counter[str] = Counter()
    page = await engine.scan(Scan(table))
    counts.update(item["matchId"] for item in page.items)
    while page.next is not None:
        page = await engine.scan(Scan(table, start=page.next))
        counts.update(item["matchId"] for item in page.items)
    return counts


def schedule(scores: SportMonksHarness, count: int) -> Counter[str]:
    """Schedule matches in two leagues over the coming weeks; return their ids."""
    interval = timedelta(days=28).total_seconds() / count * 2
    scheduled = [
        match_id
        for league in ("First League", "Second League")
        for match_id in scores.sportmonks.schedule(count // 2, league_name=league, apart=interval)
    ]
    return Counter(map(str, scheduled))


@pytest.mark.judge
async def test_ten_thousand_fixtures_are_synced_despite_partial_batches(
    tmp_path: Path,
) -> None:
    async with open_cricket_engine(tmp_path) as engine, open_sportmonks() as scores:
        scheduled = schedule(scores, FIXTURE_COUNT)
        faulty_engine = PartialBatchEngine(engine, random.Random(1))
        sync = sync_service(Store(faulty_engine, InstantClock()), scores.gateway, scores.clock)
        await sync_all(sync)
        assert faulty_engine.unprocessed > FIXTURE_COUNT / 10
        assert await match_ids(engine, CRICKET_FIXTURES) == scheduled
        assert await match_ids(engine, CRICKET_FIXTURE_CACHE) == scheduled


async def test_fixtures_are_synced_despite_throttling() -> None:
    """DynamoDB Local behind a proxy that throttles every seventh request."""
    with dynamodb_local() as local:
        async with (
            open_throttling_proxy(local, random.Random(2), 1 / 7) as proxy,
            engine_at(proxy.url) as engine,
            open_sportmonks() as scores,
        ):
            for table in SYNCED:
                await engine.create_table(table)
            scheduled = schedule(scores, 300)
            await sync_all(sync_service(Store(engine), scores.gateway, scores.clock))
            assert proxy.throttled > 5
            assert await match_ids(engine, CRICKET_FIXTURES) == scheduled


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (InjectedFault(path=FIXTURES, status=503, times=None), Unavailable),
        (InjectedFault(path=FIXTURES, drop="before", times=None), Unavailable),
        (InjectedFault(path=FIXTURES, status=200, body="[]", times=None), Unavailable),
        (InjectedFault(path=FIXTURES, status=429, times=1), RateLimited),
    ],
)
async def test_the_next_sync_completes_a_failed_one(
    tmp_path: Path, fault: InjectedFault, error: type[Exception]
) -> None:
    """Nothing is lost or duplicated."""
    async with open_cricket_engine(tmp_path) as engine, open_sportmonks() as scores:
        scheduled = schedule(scores, 500)
        sync = sync_service(Store(engine), scores.gateway, scores.clock)
        await sync.sync_leagues()
        scores.sportmonks.faults.add(InjectedFault(path=FIXTURES, delay=0, times=2))
        scores.sportmonks.faults.add(fault)
        with pytest.raises(error):
            await scores.run_with_clock(sync.sync_fixtures())
        assert 0 < len(await match_ids(engine, CRICKET_FIXTURES)) < 500
        scores.sportmonks.faults.clear()
        await scores.clock.advance(3700)
        await sync.sync_fixtures()
        assert await match_ids(engine, CRICKET_FIXTURES) == scheduled
        assert await sync.sync_fixtures() == SyncCounts(unchanged=500)


async def test_an_unreadable_fixture_does_not_affect_the_others(tmp_path: Path) -> None:
    async with open_cricket_engine(tmp_path) as engine, open_sportmonks() as scores:
        scheduled = schedule(scores, 300)
        bad = random.Random(3).sample(list(scores.sportmonks.scheduled), 20)
        for number, match_id in enumerate(bad):
            scores.sportmonks.scheduled[match_id] |= (
                {"localteam_id": None},
                {"starting_at": 7},
                {"runs": 5},
            )[number % 3]
        await sync_all(sync_service(Store(engine), scores.gateway, scores.clock))
        assert await match_ids(engine, CRICKET_FIXTURES) == scheduled - Counter(map(str, bad))


async def test_a_postponed_match_is_updated(tmp_path: Path) -> None:
    """It keeps its id and gets its new start time."""
    async with open_cricket_engine(tmp_path) as engine, open_sportmonks() as scores:
        schedule(scores, 10)
        sync = sync_service(Store(engine), scores.gateway, scores.clock)
        await sync_all(sync)
        match_id = next(iter(scores.sportmonks.scheduled))
        later = (ManualClock().now() + timedelta(days=5)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        scores.sportmonks.scheduled[match_id] |= {"starting_at": later, "status": "Delayed"}
        assert await sync.sync_fixtures() == SyncCounts(updated=1, unchanged=9)
        fixture = await sync.fixtures.get(str(match_id))
        assert fixture is not None
        assert (fixture.start_time, fixture.status.value) == ("2026-01-06T00:00:00Z", "delayed")
