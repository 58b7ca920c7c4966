"""Adds reference data to cached fixtures: the league, the teams and their season.

The score service sends them only on request, and an operator may have changed them. Readers of the
cache can display a match without further look-ups.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tally.cricket.model.feed import MatchFeed
from tally.cricket.repository.fixture_cache import FixtureCacheRepository
from tally.cricket.repository.leagues import LeagueRepository
from tally.cricket.repository.team_seasons import TeamSeasonRepository
from tally.cricket.repository.teams import TeamRepository
from tally.kit.clock import Clock


@dataclass(frozen=True, slots=True)
class FixtureEnricher:
    """Adds the reference data of our own tables."""

    cache: FixtureCacheRepository
    teams: TeamRepository
    leagues: LeagueRepository
    seasons: TeamSeasonRepository
    clock: Clock

    async def enrich(self, feed: MatchFeed) -> bool:
        """Enrich the cached fixture; return False if it is not cached or the match is not near."""
        return await self.cache.update_enrichment(
            feed.match_id, await self._enrichment(feed), self.clock.milliseconds()
        )

    async def _enrichment(self, feed: MatchFeed) -> Mapping[str, Any]:
        league, season, *teams = await asyncio.gather(
            self.leagues.get(feed.league_id),
            self._season_stats(feed.season_id),
            *(self.teams.get(side.team_id) for side in feed.teams),
        )
        enrichment: dict[str, Any] = {}
        if league is not None:
            enrichment["league"] = {
                "name": league.name,
                "code": league.code,
                "imageUrl": league.image_url,
            }
        enrichment["teams"] = {
            side.team_id: {
                "name": named.name,
                "code": named.code,
                "imageUrl": named.image_url,
                "stats": season.get(side.team_id, {}),
            }
            for side, team in zip(feed.teams, teams, strict=True)
            for named in (team or side,)
        }
        return enrichment

    async def _season_stats(self, season_id: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the statistics of the season's teams by team id."""
        if not season_id:
            return {}
        return {team.team_id: team.stats for team in await self.seasons.list_by_season(season_id)}
