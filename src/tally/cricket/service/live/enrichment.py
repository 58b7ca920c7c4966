"""Adds reference data to cached fixtures: names, codes and images of the league and the teams.

The score service sends them only on request, and an operator may have changed them. Readers of the
cache can display a match without further look-ups.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tally.cricket.model.feed import MatchFeed
from tally.cricket.repository.fixture_cache import FixtureCacheRepository
from tally.cricket.service.queries.leagues import LeagueService
from tally.cricket.service.queries.teams import TeamService
from tally.kit.clock import Clock


@dataclass(frozen=True, slots=True)
class FixtureEnricher:
    """Adds the reference data of our own tables."""

    cache: FixtureCacheRepository
    teams: TeamService
    leagues: LeagueService
    clock: Clock

    async def enrich(self, feed: MatchFeed) -> bool:
        """Enrich the cached fixture; return False if it is not cached or the match is not near."""
        return await self.cache.update_enrichment(
            feed.match_id, await self._enrichment(feed), self.clock.milliseconds()
        )

    async def _enrichment(self, feed: MatchFeed) -> Mapping[str, Any]:
        teams, leagues = await self.teams.by_id(), await self.leagues.by_id()
        enrichment: dict[str, Any] = {}
        if (league := leagues.get(feed.league_id)) is not None:
            enrichment["league"] = {
                "name": league.name,
                "code": league.code,
                "imageUrl": league.image_url,
            }
        enrichment["teams"] = {
            side.team_id: {"name": team.name, "code": team.code, "imageUrl": team.image_url}
            for side in feed.teams
            for team in (teams.get(side.team_id) or side,)
        }
        return enrichment
