"""Builds the query services with their caches."""

from typing import Final

from tally.cricket.repository.repositories import Repositories
from tally.cricket.service.live import replays
from tally.cricket.service.live.replays import ReplayService
from tally.cricket.service.queries import feeds, leagues, matches, teams
from tally.cricket.service.queries.admin import AdminService
from tally.cricket.service.queries.display import DisplayService
from tally.cricket.service.queries.feeds import FeedCache
from tally.cricket.service.queries.leagues import LeagueService
from tally.cricket.service.queries.matches import MatchService
from tally.cricket.service.queries.teams import TeamService
from tally.cricket.service.queries.timeline import TimelineService
from tally.cricket.service.services import QueryServices
from tally.kit.clock import Clock
from tally.kit.ids import SortableIds
from tally.kit.ttl_cache import TTLCache

MAX_CACHED_FEEDS: Final = 10_000
MAX_CACHED_PAGES: Final = 200
MAX_CACHED_RECORDINGS: Final = 20


def build_queries(repositories: Repositories, clock: Clock) -> QueryServices:
    """Build the services that read."""
    team_service = TeamService(
        repositories.teams, repositories.seasons, clock, TTLCache(clock, teams.CACHE_SECONDS, 1)
    )
    league_service = LeagueService(
        repositories.leagues, clock, TTLCache(clock, leagues.CACHE_SECONDS, 2)
    )
    feed_cache = FeedCache(
        repositories.cache, clock, TTLCache(clock, feeds.MEMORY_TTL_SECONDS, MAX_CACHED_FEEDS)
    )
    match_service = MatchService(
        repositories.fixtures,
        feed_cache,
        team_service,
        league_service,
        clock,
        TTLCache(clock, matches.CACHE_SECONDS, MAX_CACHED_PAGES),
    )
    return QueryServices(
        teams=team_service,
        leagues=league_service,
        feeds=feed_cache,
        matches=match_service,
        displays=DisplayService(match_service, repositories.displays, repositories.matches, clock),
        timelines=TimelineService(
            match_service, repositories.matches, repositories.timelines, clock
        ),
        admin=AdminService(
            fixtures=repositories.fixtures,
            active=repositories.matches,
            processing=repositories.processing,
            hashes=repositories.hashes,
            activities=repositories.activities,
            follows=repositories.follows,
            clock=clock,
        ),
    )


def build_replays(repositories: Repositories, feed_cache: FeedCache, clock: Clock) -> ReplayService:
    """Build the service that replays recorded matches."""
    recordings: TTLCache[str, replays.Recording] = TTLCache(
        clock, replays.RECORDING_CACHE_SECONDS, MAX_CACHED_RECORDINGS
    )
    return ReplayService(
        repositories.fixtures,
        repositories.processing,
        feed_cache,
        clock,
        SortableIds(clock),
        recordings,
    )
