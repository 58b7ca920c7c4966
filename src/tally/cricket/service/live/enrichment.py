"""What people see of a match besides its scores: names and pictures of its league and its sides, kept with the cached fixture.

The score service tells them only where it is asked to, and an operator may have chosen others. They
are put beside a cached fixture around its match, so that whoever reads the cache can show the match
without another look-up.
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
class Enricher:
    """Adds what our own tables know."""

    cache: FixtureCacheRepository
    teams: TeamService
    leagues: LeagueService
    clock: Clock

    async def enrich(self, feed: MatchFeed) -> bool:
        """Whether it was added: the match is near, and cached."""
        return await self.cache.update_enrichment(
            feed.match_id, await self._known(feed), self.clock.milliseconds()
        )

    async def _known(self, feed: MatchFeed) -> Mapping[str, Any]:
        teams, leagues = await self.teams.by_id(), await self.leagues.by_id()
        league = leagues.get(feed.league_id)
        sides = {}
        for side in feed.teams:
            known_as = teams.get(side.team_id) or side
            sides[side.team_id] = {
                "name": known_as.name,
                "code": known_as.code,
                "imageUrl": known_as.image_url,
            }
        known = (
            {}
            if league is None
            else {
                "league": {"name": league.name, "code": league.code, "imageUrl": league.image_url}
            }
        )
        return known | {"teams": sides}
