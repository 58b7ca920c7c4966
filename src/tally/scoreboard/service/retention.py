"""Letting go of what is too old, a little at a time, so that nobody waits behind it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tally.kit import logs
from tally.kit.clock import Clock
from tally.scoreboard.repository.actions import ActionRepository
from tally.scoreboard.repository.events import EventRepository
from tally.scoreboard.repository.scores import ScoreRepository
from tally.scoreboard.repository.sessions import PlayerSessionRepository

BITE: Final = 500
PAUSE_SECONDS: Final = 0.05
SESSION_TIME: Final = timedelta(hours=24)
TOKEN_TIME: Final = timedelta(hours=1)

_log = logs.logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """PlayerSessions a day after their end, used tokens an hour after theirs, history and actions after so many days."""

    sessions: PlayerSessionRepository
    events: EventRepository
    scores: ScoreRepository
    actions: ActionRepository
    clock: Clock
    events_days: int

    async def run(self) -> None:
        now = self.clock.now()
        old = now - timedelta(days=self.events_days)
        gone = {
            "sessions": await self._all(self.sessions.delete_expired, now - SESSION_TIME),
            "consumedTokens": await self._all(self.scores.delete_expired_tokens, now - TOKEN_TIME),
            "scoreEvents": await self._all(self.events.delete_old, old),
            "completedActions": await self._all(self.actions.delete_old, old),
        }
        if any(gone.values()):
            _log.info("Old rows deleted", action="retention", **gone)

    async def _all(
        self, delete: Callable[[datetime, int], Awaitable[int]], before: datetime
    ) -> int:
        total = deleted = await delete(before, BITE)
        while deleted == BITE:
            await self.clock.sleep(PAUSE_SECONDS)
            deleted = await delete(before, BITE)
            total += deleted
        return total
