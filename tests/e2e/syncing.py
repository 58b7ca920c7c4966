"""The syncs, put together on a store, reading from a gateway."""

from tally.cricket.repository.fixture_cache import FixtureCacheRepository
from tally.cricket.repository.fixtures import FixtureRepository
from tally.cricket.repository.leagues import LeagueRepository
from tally.cricket.repository.team_seasons import TeamSeasonRepository
from tally.cricket.repository.teams import TeamRepository
from tally.cricket.service.ports import ReferenceData
from tally.cricket.service.queries.feeds import FeedCache
from tally.cricket.service.queries.leagues import LeagueService
from tally.cricket.service.sync.reference_data import SyncService
from tally.kit.clock import Clock
from tally.kit.ttl_cache import TTLCache
from tally.store.store import Store


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
        feeds=FeedCache(cache, clock, TTLCache(clock, 0, 10)),
        clock=clock,
    )


async def sync_all(sync: SyncService) -> None:
    """Leagues first, since the others are of those."""
    await sync.sync_leagues()
    await sync.sync_teams()
    await sync.sync_fixtures()
