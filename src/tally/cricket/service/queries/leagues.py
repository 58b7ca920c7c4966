"""Competitions: all of them, one, the active ones, and what an administrator changes about one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tally.cricket.model.records import League
from tally.cricket.repository.leagues import LeagueRepository
from tally.errors import Invalid, NotFound
from tally.kit.clock import Clock
from tally.kit.ttl_cache import TTLCache

KNOWN_SECONDS: Final = 60.0
ALL: Final = "*"
ACTIVE: Final = "active"


@dataclass(frozen=True, slots=True)
class LeagueService:
    """`known` holds all leagues and the active ones, read a moment ago."""

    leagues: LeagueRepository
    clock: Clock
    known: TTLCache[str, tuple[League, ...]]

    async def all(self) -> tuple[League, ...]:
        found = self.known.get(ALL)
        if found is None:
            found = tuple(await self.leagues.all())
            self.known.put(ALL, found)
        return found

    async def active(self) -> tuple[League, ...]:
        """Those whose matches are synced and announced, as they were at most a minute ago."""
        found = self.known.get(ACTIVE)
        if found is None:
            found = tuple(await self.leagues.active())
            self.known.put(ACTIVE, found)
        return found

    async def by_id(self) -> Mapping[str, League]:
        return {league.league_id: league for league in await self.all()}

    async def get(self, league_id: str) -> League:
        league = await self.leagues.get(league_id)
        if league is None:
            raise _no_league()
        return league

    async def named(self, code_or_id: str) -> League:
        """The league with this code or id: people type IPL, programs have the number."""
        wanted = code_or_id.casefold()
        league = next(
            (each for each in await self.all() if wanted in {each.league_id, each.code.casefold()}),
            None,
        )
        if league is None:
            raise _no_league()
        return league

    async def change(self, league_id: str, changes: Mapping[str, Any]) -> League:
        if not changes:
            raise Invalid("There is nothing to change", code="nothing_to_change")
        now = self.clock.milliseconds()
        edited = {"edited_at": now} if {"name", "image_url"} & changes.keys() else {}
        league = await self.leagues.update(league_id, **changes, **edited, updated_at=now)
        if league is None:
            raise _no_league()
        self.forget()
        return league

    async def delete(self, league_id: str) -> None:
        """Take a league away; the next sync brings it back if SportMonks still has it."""
        if not await self.leagues.delete(league_id):
            raise _no_league()
        self.forget()

    def forget(self) -> None:
        """Read anew at the next question."""
        self.known.remove(ALL)
        self.known.remove(ACTIVE)


def _no_league() -> NotFound:
    return NotFound("There is no such league", code="league_not_found")
