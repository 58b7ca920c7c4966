"""Reads leagues, and updates and deletes them for administrators."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tally.cricket.model.errors import league_not_found, nothing_to_change
from tally.cricket.model.records import League
from tally.cricket.repository.leagues import LeagueRepository
from tally.kit.clock import Clock
from tally.kit.ttl_cache import TTLCache

CACHE_SECONDS: Final = 60.0
ALL: Final = "*"
ACTIVE: Final = "active"


@dataclass(frozen=True, slots=True)
class LeagueService:
    """`cache` contains the list of all leagues and the list of active ones."""

    leagues: LeagueRepository
    clock: Clock
    cache: TTLCache[str, tuple[League, ...]]

    async def all(self) -> tuple[League, ...]:
        leagues = self.cache.get(ALL)
        if leagues is None:
            leagues = tuple(await self.leagues.all())
            self.cache.put(ALL, leagues)
        return leagues

    async def active(self) -> tuple[League, ...]:
        """Return the leagues whose matches are synced; up to a minute old."""
        leagues = self.cache.get(ACTIVE)
        if leagues is None:
            leagues = tuple(await self.leagues.active())
            self.cache.put(ACTIVE, leagues)
        return leagues

    async def by_id(self) -> Mapping[str, League]:
        return {league.league_id: league for league in await self.all()}

    async def get(self, league_id: str) -> League:
        league = await self.leagues.get(league_id)
        if league is None:
            raise league_not_found()
        return league

    async def find(self, code_or_id: str) -> League:
        """Return the league with this code (in any case) or id."""
        wanted = code_or_id.casefold()
        for league in await self.all():
            if wanted in {league.league_id, league.code.casefold()}:
                return league
        raise league_not_found()

    async def update(self, league_id: str, changes: Mapping[str, Any]) -> League:
        """Change fields of a league; syncs do not overwrite a changed name or image."""
        if not changes:
            raise nothing_to_change()
        now = self.clock.milliseconds()
        edited = {"edited_at": now} if {"name", "image_url"} & changes.keys() else {}
        league = await self.leagues.update(league_id, **changes, **edited, updated_at=now)
        if league is None:
            raise league_not_found()
        self.clear_cache()
        return league

    async def delete(self, league_id: str) -> None:
        """Delete a league. The next sync creates it again if SportMonks still lists it."""
        if not await self.leagues.delete(league_id):
            raise league_not_found()
        self.clear_cache()

    def clear_cache(self) -> None:
        self.cache.remove(ALL)
        self.cache.remove(ACTIVE)
