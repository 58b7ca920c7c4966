"""Reads teams, and updates them for administrators."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tally.cricket.model.errors import nothing_to_change, team_not_found
from tally.cricket.model.records import Team, TeamSeason
from tally.cricket.repository.team_seasons import TeamSeasonRepository
from tally.cricket.repository.teams import TeamRepository
from tally.kit.clock import Clock
from tally.kit.ttl_cache import TTLCache

CACHE_SECONDS: Final = 60.0
ALL: Final = "*"


@dataclass(frozen=True, slots=True)
class TeamService:
    """`cache` contains all teams: there are about a hundred, and every match needs two."""

    teams: TeamRepository
    seasons: TeamSeasonRepository
    clock: Clock
    cache: TTLCache[str, Mapping[str, Team]]

    async def all(self) -> list[Team]:
        return list((await self.by_id()).values())

    async def by_id(self) -> Mapping[str, Team]:
        """Return all teams by id; up to a minute old."""
        teams = self.cache.get(ALL)
        if teams is None:
            teams = {team.team_id: team for team in await self.teams.all()}
            self.cache.put(ALL, teams)
        return teams

    async def get(self, team_id: str) -> Team:
        team = await self.teams.get(team_id)
        if team is None:
            raise team_not_found()
        return team

    async def season_teams(self, season_id: str) -> list[TeamSeason]:
        return await self.seasons.list_by_season(season_id)

    async def update(self, team_id: str, changes: Mapping[str, Any]) -> Team:
        """Change fields of a team; later syncs do not overwrite them."""
        if not changes:
            raise nothing_to_change()
        now = self.clock.milliseconds()
        team = await self.teams.update(team_id, **changes, updated_at=now, edited_at=now)
        if team is None:
            raise team_not_found()
        self.cache.remove(ALL)
        return team
