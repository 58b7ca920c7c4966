"""Throttles failed sign-ins per account, whatever addresses they come from.

Five attempts are free; then the wait doubles with each attempt, from one second to 15 minutes. An
attempt counts until its password proves right, so concurrent guesses gain nothing. An attacker who
keeps guessing delays every new client of the account, but not its owner: addresses from which the
player has signed in before have a count of their own. Unknown logins are throttled like accounts,
so that the response does not reveal which exist.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tally.errors import RateLimited
from tally.kit import logs
from tally.kit.clock import Clock
from tally.kit.metrics import Metrics
from tally.scoreboard.model.accounts import UserCredentials
from tally.scoreboard.repository.failed_sign_ins import BackOff, FailedSignInRepository
from tally.scoreboard.service.action_tokens import hash_token

BACK_OFF: Final = BackOff(
    free_attempts=5, max_wait=timedelta(minutes=15), forget_after=timedelta(days=1)
)
BACKEND: Final = "scoreboard"

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class AccountThrottle:
    """Admits attempts, and counts and logs those that fail."""

    attempts: FailedSignInRepository
    clock: Clock
    metrics: Metrics

    async def admit(self, subject: str) -> None:
        """Count an attempt or raise RateLimited."""
        now = self.clock.now()
        retry_at = await self.attempts.admit(subject, BACK_OFF, now)
        if retry_at is not None:
            self.metrics.failed_sign_ins.labels(BACKEND, "throttled").inc()
            raise RateLimited(
                "Too many failed sign-ins to this account; wait before the next attempt",
                retry_after=(retry_at - now).total_seconds(),
                code="too_many_sign_ins",
            )

    async def record_success(self, subject: str) -> None:
        await self.attempts.clear(subject)

    def record_failure(self, address: str) -> None:
        """Count and log a wrong password; the log names the account if there is one."""
        self.metrics.failed_sign_ins.labels(BACKEND, "invalid_credentials").inc()
        _log.warning("Sign-in failed", action="sign_in_failed", address=address)


def sign_in_subject(login: str, credentials: UserCredentials | None, address: str) -> str:
    """Return what the attempts of a sign-in are counted by."""
    if credentials is None:
        return f"login:{hash_token(login.lower())}"
    account = f"account:{credentials.user.user_id}"
    return f"{account}@{address}" if credentials.is_known_address else account


def password_change_subject(user_id: str) -> str:
    """Return what wrong current passwords are counted by, apart from sign-ins."""
    return f"change:{user_id}"
