"""Bounds the calls to Strava that webhook events cause, per athlete and in total.

Events are unverified claims: a sender who knows the callback can invent them. Calls are counted in
windows of 15 minutes over all instances. Events beyond the limits wait for the next window.
"""

from dataclasses import dataclass
from typing import Final

from tally.collect.repository.idempotency import IdempotencyRepository
from tally.kit.clock import Clock

WINDOW_SECONDS: Final = 900


@dataclass(frozen=True, slots=True)
class EventBudget:
    """The limits per window; 0 means no limit."""

    repository: IdempotencyRepository
    clock: Clock
    per_athlete: int
    total: int

    async def reserve(self, athlete_id: int, wanted: int) -> int:
        """Reserve up to `wanted` events to read now; return how many are granted."""
        window = self.clock.seconds() // WINDOW_SECONDS
        granted = await self._reserve(f"{window}#ATHLETE#{athlete_id}", wanted, self.per_athlete)
        return await self._reserve(f"{window}#TOTAL", granted, self.total)

    def next_window(self) -> int:
        """Return when the next window starts, in epoch seconds."""
        return (self.clock.seconds() // WINDOW_SECONDS + 1) * WINDOW_SECONDS

    async def _reserve(self, key: str, wanted: int, limit: int) -> int:
        if not limit or not wanted:
            return wanted
        expires_at = self.next_window() + WINDOW_SECONDS
        return await self.repository.reserve(key, wanted, limit, expires_at)
