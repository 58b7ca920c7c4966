"""Sides: all of them, one, those of a season, and what an administrator changes about one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tally.cricket.model.records import Team, TeamSeason
from tally.cricket.repository.team_seasons import TeamSeasonRepository
from tally.cricket.repository.teams import TeamRepository
from tally.errors import Invalid, NotFound
from tally.kit.clock import Clock
from tally.kit.ttl_cache import TTLCache

KNOWN_SECONDS: Final = 60.0
ALL: Final = "*"


@dataclass(frozen=True, slots=True)
class TeamService:
    """`known` holds the whole list, read a moment ago: there are a hundred sides, and every request wants two."""

    teams: TeamRepository
    seasons: TeamSeasonRepository
    clock: Clock
    known: TTLCache[str, Mapping[str, Team]]

    async def all(self) -> list[Team]:
        return list((await self.by_id()).values())

    async def by_id(self) -> Mapping[str, Team]:
        """All sides by id, as they were at most a minute ago."""
        found = self.known.get(ALL)
        if found is None:
            found = {team.team_id: team for team in await self.teams.all()}
            self.known.put(ALL, found)
        return found

    async def get(self, team_id: str) -> Team:
        team = await self.teams.get(team_id)
        if team is None:
            raise NotFound("There is no such team", code="team_not_found")
        return team

    async def of_season(self, season_id: str) -> list[TeamSeason]:
        return await self.seasons.of_season(season_id)

    async def change(self, team_id: str, changes: Mapping[str, Any]) -> Team:
        """The side with these of its fields changed; from then on a sync leaves it alone."""
        if not changes:
            raise Invalid("There is nothing to change", code="nothing_to_change")
        now = self.clock.milliseconds()
        team = await self.teams.update(team_id, **changes, updated_at=now, edited_at=now)
        if team is None:
            raise NotFound("There is no such team", code="team_not_found")
        self.known.remove(ALL)
        return team
