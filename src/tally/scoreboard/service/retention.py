"""Deletion of old rows, in small batches so that other statements do not wait."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tally.kit import logs
from tally.kit.clock import Clock
from tally.scoreboard.repository.actions import ActionRepository
from tally.scoreboard.repository.events import EventRepository
from tally.scoreboard.repository.failed_sign_ins import FailedSignInRepository
from tally.scoreboard.repository.password_resets import PasswordResetRepository
from tally.scoreboard.repository.scores import ScoreRepository
from tally.scoreboard.repository.sessions import PlayerSessionRepository
from tally.scoreboard.service.account_throttle import BACK_OFF

BATCH_SIZE: Final = 500
PAUSE_SECONDS: Final = 0.05
SESSION_RETENTION: Final = timedelta(hours=24)
ADDRESS_RETENTION: Final = timedelta(days=30)
TOKEN_RETENTION: Final = timedelta(hours=1)

_log = logs.logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Deletes ended sessions and used tokens, and events and actions after `events_days`."""

    sessions: PlayerSessionRepository
    events: EventRepository
    scores: ScoreRepository
    actions: ActionRepository
    failed_sign_ins: FailedSignInRepository
    resets: PasswordResetRepository
    clock: Clock
    events_days: int

    async def run(self) -> None:
        now = self.clock.now()
        cutoff = now - timedelta(days=self.events_days)
        deleted = {
            "sessions": await self._delete(self.sessions.delete_expired, now - SESSION_RETENTION)
            + await self._delete(self.sessions.delete_revoked, now - SESSION_RETENTION),
            "knownAddresses": await self._delete(
                self.sessions.delete_old_addresses, now - ADDRESS_RETENTION
            ),
            # Not named after tokens, because the log masks what may be one.
            "usedActions": await self._delete(
                self.scores.delete_expired_tokens, now - TOKEN_RETENTION
            ),
            "scoreEvents": await self._delete(self.events.delete_old, cutoff),
            "completedActions": await self._delete(self.actions.delete_old, cutoff),
            # Not named after tokens either.
            "passwordResets": await self._delete(self.resets.delete_expired, now),
            "failedSignIns": await self._delete(
                self.failed_sign_ins.delete_old, now - BACK_OFF.forget_after
            ),
        }
        if any(deleted.values()):
            _log.info("Old rows deleted", action="rows_deleted", **deleted)

    async def _delete(
        self, delete_batch: Callable[[datetime, int], Awaitable[int]], before: datetime
    ) -> int:
        total = deleted = await delete_batch(before, BATCH_SIZE)
        while deleted == BATCH_SIZE:
            await self.clock.sleep(PAUSE_SECONDS)
            deleted = await delete_batch(before, BATCH_SIZE)
            total += deleted
        return total
