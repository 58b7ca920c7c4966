"""The tables `password_reset_requests` and `password_reset_tokens`.

A request is stored for any address, so that the response tells nothing; a worker takes requests one
at a time, in whichever process. Of a token only the hash is stored.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tally.scoreboard.repository.database import Database

_ADD: Final = """
INSERT INTO password_reset_requests (email, requested_at, due_at) VALUES (lower($1), $2, $2)
ON CONFLICT DO NOTHING
"""
# A process that dies has taken the request only until it is due again.
_TAKE: Final = """
UPDATE password_reset_requests SET attempts = attempts + 1,
    due_at = $1 + $2::interval * power(2, least(attempts, 6))
WHERE email = (
    SELECT email FROM password_reset_requests WHERE due_at <= $1
    ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED
)
RETURNING email, attempts
"""
# The lock makes a concurrent change of the address or the password, which deletes all tokens of the
# account, either precede this statement or find the new token.
_ADD_FOR_ACCOUNT: Final = """
WITH account AS MATERIALIZED (
    SELECT id, username, email FROM users WHERE lower(email) = $1 FOR SHARE
), token AS (
    INSERT INTO password_reset_tokens (token_hash, user_id, expires_at)
    SELECT $2, id, $3 FROM account
)
SELECT username, email FROM account
"""
_FIND_ACCOUNT: Final = """
SELECT u.id, u.username FROM password_reset_tokens t JOIN users u ON u.id = t.user_id
WHERE t.token_hash = $1 AND t.expires_at > $2
"""
_DELETE_EXPIRED: Final = """
DELETE FROM password_reset_tokens WHERE token_hash = ANY(ARRAY(
    SELECT token_hash FROM password_reset_tokens WHERE expires_at < $1
    ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED
)) RETURNING token_hash
"""


@dataclass(frozen=True, slots=True)
class PendingReset:
    """A request that was taken, for an address that may have no account."""

    email: str
    attempts: int


@dataclass(frozen=True, slots=True)
class ResetAccount:
    """The account that a token is for, without its secrets."""

    username: str
    email: str


@dataclass(frozen=True, slots=True)
class PasswordResetRepository:
    """Requests by address, and tokens by hash."""

    database: Database

    async def add(self, email: str, now: datetime) -> None:
        """Store a request, unless one of the same address waits."""
        await self.database.value("add_password_reset", _ADD, email, now)

    async def take(self, now: datetime, retry_after: timedelta) -> PendingReset | None:
        """Return a request that is due; it is due again later, unless it is finished."""
        row = await self.database.row("take_password_reset", _TAKE, now, retry_after)
        return None if row is None else PendingReset(row["email"], row["attempts"])

    async def finish(self, email: str) -> None:
        await self.database.value(
            "finish_password_reset", "DELETE FROM password_reset_requests WHERE email = $1", email
        )

    async def add_token(
        self, email: str, token_hash: str, expires_at: datetime
    ) -> ResetAccount | None:
        """Store a token for the account with this address, if there is one."""
        row = await self.database.row(
            "add_reset_token", _ADD_FOR_ACCOUNT, email, token_hash, expires_at
        )
        return None if row is None else ResetAccount(row["username"], row["email"])

    async def find_username(self, token_hash: str, now: datetime) -> str | None:
        """Return the name of the player of a valid token."""
        row = await self.database.row("find_reset_token", _FIND_ACCOUNT, token_hash, now)
        return None if row is None else str(row["username"])

    async def delete_expired(self, before: datetime, limit: int) -> int:
        """Delete up to `limit` tokens expired before a time, oldest first; return the count."""
        return len(await self.database.rows("delete_reset_tokens", _DELETE_EXPIRED, before, limit))
