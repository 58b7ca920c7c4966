"""Console sessions: an operator signs in once and then sends a cookie.

Sessions are in the store, so that all instances share them. Only a hash of the cookie is stored. A
session ends by sign-out, when its operator is removed or expires, after the idle time-out and at
the end of its lifetime.
"""

from dataclasses import dataclass, replace
from hashlib import sha256
from secrets import token_urlsafe
from typing import Final

from tally.errors import Unavailable
from tally.instance.operators import OperatorAccounts
from tally.instance.repository.console_sessions import ConsoleSessionRepository, StoredSession
from tally.kit import logs
from tally.kit.clock import Clock
from tally.kit.operators import Operator

COOKIE_BYTES: Final = 32
# A session is extended when this share of its idle time-out has passed, to save writes.
EXTEND_AFTER_SHARE: Final = 0.1

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class ConsoleSession:
    """A valid session and its operator, as of now."""

    session_hash: str
    operator: Operator
    ends_at: int
    expires_at: int


@dataclass(frozen=True, slots=True)
class ConsoleSessions:
    """Starts, checks and ends sessions; time-outs are in seconds."""

    repository: ConsoleSessionRepository
    operators: OperatorAccounts
    clock: Clock
    idle_timeout: int
    lifetime: int

    async def start(self, operator: Operator) -> str:
        """Start a session with a new ID and return the value of its cookie."""
        cookie = token_urlsafe(COOKIE_BYTES)
        ends_at = self.clock.seconds() + self.lifetime
        await self.repository.create(
            StoredSession(
                session_hash=_hash(cookie),
                operator_name=operator.name,
                operator_token_id=operator.token_id,
                ends_at=ends_at,
                expires_at=self._expiry(ends_at),
            )
        )
        return cookie

    async def find(self, cookie: str) -> ConsoleSession | None:
        """Return the session of a cookie, or None if it has ended."""
        return await self.check(_hash(cookie))

    async def check(self, session_hash: str) -> ConsoleSession | None:
        """Return a session with the current role of its operator, or None if it has ended."""
        stored = await self.repository.get(session_hash)
        # The store deletes expired items late.
        if stored is None or self.clock.seconds() >= stored.expires_at:
            return None
        operator = await self.operators.get(stored.operator_name)
        if operator is None or operator.token_id != stored.operator_token_id:
            return None
        return ConsoleSession(session_hash, operator, stored.ends_at, stored.expires_at)

    async def extend(self, session: ConsoleSession) -> ConsoleSession:
        """Restart the idle time-out of a session in use."""
        expires_at = self._expiry(session.ends_at)
        if expires_at - session.expires_at <= self.idle_timeout * EXTEND_AFTER_SHARE:
            return session
        try:
            await self.repository.extend(session.session_hash, expires_at, self.clock.seconds())
        except Unavailable as error:
            # Operators must be able to inspect an instance whose disk is full.
            _log.warning(
                "Extending a console session failed", action="session_extend_failed", error=error
            )
            return session
        return replace(session, expires_at=expires_at)

    async def end(self, session: ConsoleSession) -> None:
        await self.repository.delete(session.session_hash)

    def _expiry(self, ends_at: int) -> int:
        return min(ends_at, self.clock.seconds() + self.idle_timeout)


def _hash(cookie: str) -> str:
    return sha256(cookie.encode()).hexdigest()
