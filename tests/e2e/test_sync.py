"""Ten thousand fixtures come into the store, all of them and none twice, whatever the store and the score service do."""

import random
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from tally.cricket.repository.fixture_cache import CRICKET_FIXTURE_CACHE
from tally.cricket.repository.fixtures import CRICKET_FIXTURES
from tally.cricket.repository.leagues import CRICKET_LEAGUES
from tally.cricket.repository.team_seasons import CRICKET_TEAM_SEASONS
from tally.cricket.repository.teams import CRICKET_TEAMS
from tally.cricket.service.sync.reference_data import SyncCounts
from tally.errors import RateLimited, Unavailable
from tally.kit.clock import ManualClock
from tally.sim.fault_injection import InjectedFault
from tally.store.api import Engine, Scan
from tally.store.schema import Table
from tally.store.store import Store
from tests.cricket.pipeline_harness import open_cricket_engine
from tests.cricket.scores import Scores, open_scores
from tests.e2e.reluctant import Reluctant, throttling
from tests.e2e.syncing import sync_all, sync_service
from tests.store.emulators import dynamodb_local, engine_at
from tests.store.misbehaving import HurriedClock

SYNCED = (
    CRICKET_LEAGUES,
    CRICKET_TEAMS,
    CRICKET_TEAM_SEASONS,
    CRICKET_FIXTURES,
    CRICKET_FIXTURE_CACHE,
)
MANY = 10_000
FIXTURES = "/api/v2.0/fixtures"


async def ids_in(engine: Engine, table: Table) -> Counter[str]:
    """How often each match is there."""
    found: Counter[str] = Counter()
    page = await engine.scan(Scan(table))
    found.update(item["matchId"] for item in page.items)
    while page.next is not None:
        page = await engine.scan(Scan(table, start=page.next))
        found.update(item["matchId"] for item in page.items)
    return found


def schedule(scores: Scores, count: int) -> Counter[str]:
    """So many matches in the coming weeks, in two leagues; their ids, each once."""
    apart = timedelta(days=28).total_seconds() / count * 2
    made = [
        match_id
        for league in ("First League", "Second League")
        for match_id in scores.sportmonks.schedule(count // 2, league_name=league, apart=apart)
    ]
    return Counter(map(str, made))


async def test_ten_thousand_fixtures_are_synced_though_batches_come_back_by_halves(
    tmp_path: Path,
) -> None:
    async with open_cricket_engine(tmp_path) as engine, open_scores() as scores:
        made = schedule(scores, MANY)
        reluctant = Reluctant(engine, random.Random(1))
        sync = sync_service(Store(reluctant, HurriedClock()), scores.gateway, scores.clock)
        await sync_all(sync)
        assert reluctant.left_undone > MANY / 10
        assert await ids_in(engine, CRICKET_FIXTURES) == made
        assert await ids_in(engine, CRICKET_FIXTURE_CACHE) == made


async def test_fixtures_are_synced_though_the_store_wants_us_to_slow_down() -> None:
    """On DynamoDB Local, with every seventh request sent away as the service does under load."""
    with dynamodb_local() as local:
        async with (
            throttling(local, random.Random(2), 1 / 7) as throttle,
            engine_at(throttle.url) as engine,
            open_scores() as scores,
        ):
            for table in SYNCED:
                await engine.create_table(table)
            made = schedule(scores, 300)
            await sync_all(sync_service(Store(engine), scores.gateway, scores.clock))
            assert throttle.refused > 5
            assert await ids_in(engine, CRICKET_FIXTURES) == made


@pytest.mark.parametrize(
    ("fault", "trouble"),
    [
        (InjectedFault(path=FIXTURES, status=503, times=None), Unavailable),
        (InjectedFault(path=FIXTURES, drop="before", times=None), Unavailable),
        (InjectedFault(path=FIXTURES, status=200, body="[]", times=None), Unavailable),
        (InjectedFault(path=FIXTURES, status=429, times=1), RateLimited),
    ],
)
async def test_a_sync_that_fails_half_way_is_completed_by_the_next(
    tmp_path: Path, fault: InjectedFault, trouble: type[Exception]
) -> None:
    """What was read is kept; nothing is lost, and nothing is there twice."""
    async with open_cricket_engine(tmp_path) as engine, open_scores() as scores:
        made = schedule(scores, 500)
        sync = sync_service(Store(engine), scores.gateway, scores.clock)
        await sync.sync_leagues()
        scores.sportmonks.faults.add(InjectedFault(path=FIXTURES, delay=0, times=2))
        scores.sportmonks.faults.add(fault)
        with pytest.raises(trouble):
            await scores.sit_out(sync.sync_fixtures())
        assert 0 < len(await ids_in(engine, CRICKET_FIXTURES)) < 500
        scores.sportmonks.faults.clear()
        await scores.clock.advance(3700)
        await sync.sync_fixtures()
        assert await ids_in(engine, CRICKET_FIXTURES) == made
        assert await sync.sync_fixtures() == SyncCounts(unchanged=500)


async def test_an_unreadable_fixture_stops_no_other(tmp_path: Path) -> None:
    async with open_cricket_engine(tmp_path) as engine, open_scores() as scores:
        made = schedule(scores, 300)
        bad = random.Random(3).sample(list(scores.sportmonks.scheduled), 20)
        for number, match_id in enumerate(bad):
            scores.sportmonks.scheduled[match_id] |= (
                {"localteam_id": None},
                {"starting_at": 7},
                {"runs": 5},
            )[number % 3]
        await sync_all(sync_service(Store(engine), scores.gateway, scores.clock))
        assert await ids_in(engine, CRICKET_FIXTURES) == made - Counter(map(str, bad))


async def test_a_start_that_moved_is_followed(tmp_path: Path) -> None:
    """A match that is put off keeps its id and has its new start after the next sync."""
    async with open_cricket_engine(tmp_path) as engine, open_scores() as scores:
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
