"""The part of the backend that answers questions, put together: matches, display states, reference data, and look-ups."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from tally.cricket.model.records import NEUTRAL
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
from tally.kit.clock import Clock
from tally.kit.ids import SortableIds
from tally.kit.ttl_cache import TTLCache

MAX_KNOWN: Final = 10_000
MAX_PAGES: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Services that only look, and what they remember for a moment."""

    teams: TeamService
    leagues: LeagueService
    feeds: FeedCache
    matches: MatchService
    displays: DisplayService
    replays: ReplayService
    admin: AdminService

    @classmethod
    def of(cls, tables: Repositories, clock: Clock) -> Self:
        team_service = TeamService(
            tables.teams, tables.seasons, clock, TTLCache(clock, teams.KNOWN_SECONDS, 1)
        )
        league_service = LeagueService(
            tables.leagues, clock, TTLCache(clock, leagues.KNOWN_SECONDS, 2)
        )
        feed_cache = FeedCache(tables.cache, clock, TTLCache(clock, feeds.KNOWN_SECONDS, MAX_KNOWN))
        match_service = MatchService(
            tables.fixtures,
            feed_cache,
            team_service,
            league_service,
            clock,
            TTLCache(clock, matches.KNOWN_SECONDS, MAX_PAGES),
        )
        recordings: TTLCache[str, replays.Recording] = TTLCache(
            clock, replays.RECORDING_CACHE_SECONDS, 20
        )
        return cls(
            teams=team_service,
            leagues=league_service,
            feeds=feed_cache,
            matches=match_service,
            displays=DisplayService(match_service, tables.displays, clock),
            replays=ReplayService(
                tables.fixtures,
                tables.processing,
                feed_cache,
                clock,
                SortableIds(clock),
                recordings,
            ),
            admin=AdminService(
                fixtures=tables.fixtures,
                active=tables.matches,
                processing=tables.processing,
                hashes=tables.hashes,
                activities=tables.activities,
                follows=tables.follows,
                clock=clock,
            ),
        )

    async def show(self, match_id: str, view: str) -> Mapping[str, Any]:
        """The display state of a match as one side sees it, or nobody in particular."""
        return (await self.displays.get(match_id, None if view == NEUTRAL else view)).content
