"""Lists and finds athletes without an index of accounts: by the audit events of 90 days.

Every athlete who signs in, connects Strava or earns a part has such an event. Other athletes are
found by their user ID or Strava ID, which are keys of the table.
"""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from tally.collect.service.audit import AuditKey
from tally.collect.wiring import Collect
from tally.console.cached_loader import CachedLoader
from tally.console.context import ConsoleContext
from tally.console.mint_counter import PART_MINTED
from tally.console.search import contains_words
from tally.errors import NotFound

EVENTS: Final = ("AUTH_REGISTERED", "AUTH_LOGIN", "STRAVA_CONNECTED", PART_MINTED)
# Events are kept for 90 days, so they lie in at most four months.
MONTHS: Final = 4
PAGE_SIZE: Final = 200
MAX_ATHLETES: Final = 200
CACHE_SECONDS: Final = 4.0


@dataclass(frozen=True, slots=True)
class Athlete:
    """An account. `last_active_at` is None without an event in the last 90 days."""

    user_id: str
    name: str
    email: str | None
    last_active_at: datetime | None


class AthleteDirectory:
    """The athletes that all visitors of the console see."""

    def __init__(self, collect: Collect, context: ConsoleContext) -> None:
        self._profiles = collect.services.milestones.repository
        self._audit = collect.services.audit_search
        self._context = context
        self._active = CachedLoader(context.clock, CACHE_SECONDS, self._load)

    async def get(self, user_id: str) -> Athlete:
        """Return the athlete; raises NotFound."""
        athlete = await self._read(user_id, None)
        if athlete is None:
            raise NotFound(f"Athlete {user_id} does not exist", code="user_not_found")
        return athlete

    async def find(self, text: str) -> list[Athlete]:
        """Return the athletes who match the text, the most recently active first."""
        found = [
            athlete
            for athlete in await self._active.get()
            if contains_words(text, athlete.user_id, athlete.name, athlete.email)
        ]
        others = await self._find_by_key(text) if text and not found else None
        return [others] if others is not None else found

    async def _find_by_key(self, text: str) -> Athlete | None:
        if text.isascii() and text.isdigit() and len(text) < 20:
            owner = await self._profiles.owner(int(text))
            return None if owner is None else await self._read(owner, None)
        return await self._read(text, None)

    async def _load(self) -> list[Athlete]:
        times: dict[str, datetime] = {}
        for month in _recent_months(self._context.clock.now()):
            for event in EVENTS:
                key = self._audit.complete_key(AuditKey(event=event, month=month))
                events, _ = await self._audit.page(key, PAGE_SIZE, None)
                for entry in events:
                    at = datetime.fromtimestamp(entry.epoch, UTC)
                    times[entry.user_id] = max(at, times.get(entry.user_id, at))
            if len(times) >= MAX_ATHLETES:
                break
        newest = sorted(times.items(), key=lambda pair: pair[1], reverse=True)[:MAX_ATHLETES]
        athletes = await asyncio.gather(*(self._read(user_id, at) for user_id, at in newest))
        return [athlete for athlete in athletes if athlete is not None]

    async def _read(self, user_id: str, last_active_at: datetime | None) -> Athlete | None:
        """Return the athlete, or None if there is no such account (any more)."""
        profile = await self._profiles.profile(user_id)
        if profile is None:
            return None
        name = self._context.athlete_names().get(user_id) or profile.email or user_id
        return Athlete(user_id, name, profile.email, last_active_at)


def _recent_months(now: datetime) -> list[str]:
    """Return the current month and the ones before, such as 202601."""
    months, day = [], now
    for _ in range(MONTHS):
        months.append(f"{day:%Y%m}")
        day = day.replace(day=1) - timedelta(days=1)
    return months
