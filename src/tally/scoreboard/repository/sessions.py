"""The tables `sessions` and `known_addresses`.

A session is found by the hash of its access token. Opening one records the player's address.
"""

import ipaddress
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tally.scoreboard.model.accounts import (
    MAX_USER_AGENT_LENGTH,
    ClientInfo,
    PasswordChange,
    PlayerSession,
    RefreshState,
)
from tally.scoreboard.repository.database import Database, Row

_COLUMNS: Final = (
    "id, user_id, token_hash, refresh_hash, refresh_secret, generation, renewed_at, ip_address,"
    " user_agent, expires_at, created_at, revoked_at"
)

# The lock makes a concurrent change of the password either precede this statement, which then
# creates nothing, or find the new session and revoke it.
_CREATE: Final = f"""
WITH account AS MATERIALIZED (
    SELECT id FROM users WHERE id = $2 AND ($13::text IS NULL OR password_hash = $13) FOR SHARE
), address AS (
    INSERT INTO known_addresses (user_id, network, seen_at)
    SELECT id, CASE family($8::inet) WHEN 6 THEN network(set_masklen($8::inet, 64))::inet
        ELSE $8::inet END, $11 FROM account WHERE $8::inet IS NOT NULL
    ON CONFLICT (user_id, network) DO UPDATE SET seen_at = excluded.seen_at
)
INSERT INTO sessions ({_COLUMNS})
SELECT $1, id, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12 FROM account
RETURNING id
"""
_FIND_ACTIVE: Final = f"""
SELECT {_COLUMNS} FROM sessions WHERE user_id = $1 AND revoked_at IS NULL AND expires_at > $2
ORDER BY created_at DESC, id LIMIT $3
"""
_FIND_ACTIVE_IDS: Final = """
SELECT id FROM sessions WHERE id = ANY($1::uuid[]) AND revoked_at IS NULL AND expires_at > $2
"""
# One of several concurrent refreshes finds the previous hash.
_RENEW: Final = f"""
UPDATE sessions SET token_hash = $3, refresh_hash = $4, generation = $5, renewed_at = $6
WHERE id = $1 AND refresh_hash = $2 AND revoked_at IS NULL AND expires_at > $6
RETURNING {_COLUMNS}
"""
_REVOKE: Final = f"""
UPDATE sessions SET revoked_at = $3
WHERE id = $1 AND user_id = $2 AND revoked_at IS NULL AND expires_at > $3
RETURNING {_COLUMNS}
"""
_REVOKE_ALL: Final = f"""
UPDATE sessions SET revoked_at = $2
WHERE user_id = $1 AND revoked_at IS NULL AND id IS DISTINCT FROM $3
RETURNING {_COLUMNS}
"""
_REPLACE_HASH: Final = """
UPDATE users SET password_hash = $3, updated_at = $4 WHERE id = $1 AND password_hash = $2
RETURNING id
"""
# Any other token of the player ends with the first that is used, and with a change of password.
_DELETE_RESET_TOKENS: Final = "DELETE FROM password_reset_tokens WHERE user_id = $1"
# The player is locked before the token, in the order of a change of password.
_LOCK_RESET_PLAYER: Final = """
SELECT id FROM users WHERE id = (
    SELECT user_id FROM password_reset_tokens WHERE token_hash = $1
) FOR NO KEY UPDATE
"""
_USE_RESET: Final = """
DELETE FROM password_reset_tokens WHERE token_hash = $1 AND expires_at > $2 RETURNING user_id
"""
_SET_HASH: Final = "UPDATE users SET password_hash = $2, updated_at = $3 WHERE id = $1"
_DELETE_EXPIRED: Final = """
DELETE FROM sessions WHERE id = ANY(ARRAY(
    SELECT id FROM sessions WHERE expires_at < $1
    ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED
)) RETURNING id
"""
_DELETE_REVOKED: Final = """
DELETE FROM sessions WHERE id = ANY(ARRAY(
    SELECT id FROM sessions WHERE revoked_at < $1
    ORDER BY revoked_at LIMIT $2 FOR UPDATE SKIP LOCKED
)) RETURNING id
"""
_DELETE_OLD_ADDRESSES: Final = """
DELETE FROM known_addresses WHERE (user_id, network) IN (
    SELECT user_id, network FROM known_addresses WHERE seen_at < $1
    ORDER BY seen_at LIMIT $2 FOR UPDATE SKIP LOCKED
) RETURNING user_id
"""


@dataclass(frozen=True, slots=True)
class PlayerSessionRepository:
    """Sessions by token and by player."""

    database: Database

    async def create(self, session: PlayerSession, password_hash: str | None = None) -> bool:
        """Create a session; return False if the account is gone or has another password hash."""
        agent, refresh = session.client.user_agent, session.refresh
        created = await self.database.value(
            "create_session",
            _CREATE,
            session.session_id,
            session.user_id,
            session.token_hash,
            refresh.token_hash,
            uuid.UUID(bytes=refresh.secret),
            refresh.generation,
            refresh.renewed_at,
            _parse_address(session.client.ip_address),
            agent and agent[:MAX_USER_AGENT_LENGTH],
            session.expires_at,
            session.created_at,
            session.revoked_at,
            password_hash,
        )
        return created is not None

    async def find(self, token_hash: str) -> PlayerSession | None:
        """Return the session of an access token, whether or not it is active."""
        row = await self.database.row(
            "find_session", f"SELECT {_COLUMNS} FROM sessions WHERE token_hash = $1", token_hash
        )
        return None if row is None else _session(row)

    async def find_by_id(self, session_id: str) -> PlayerSession | None:
        """Return the session, whether or not it is active."""
        row = await self.database.row(
            "find_session_by_id", f"SELECT {_COLUMNS} FROM sessions WHERE id = $1", session_id
        )
        return None if row is None else _session(row)

    async def find_by_refresh(self, refresh_hash: str) -> PlayerSession | None:
        """Return the session of a refresh token, whether or not it is active."""
        row = await self.database.row(
            "find_session_by_refresh",
            f"SELECT {_COLUMNS} FROM sessions WHERE refresh_hash = $1",
            refresh_hash,
        )
        return None if row is None else _session(row)

    async def find_active(
        self, user_id: str, now: datetime, limit: int = 100
    ) -> list[PlayerSession]:
        """Return a player's active sessions, newest first."""
        rows = await self.database.rows("find_active_sessions", _FIND_ACTIVE, user_id, now, limit)
        return [_session(row) for row in rows]

    async def find_active_ids(self, session_ids: Sequence[str], now: datetime) -> set[str]:
        """Return those of the sessions that are active."""
        rows = await self.database.rows(
            "find_active_session_ids", _FIND_ACTIVE_IDS, list(session_ids), now
        )
        return {str(row["id"]) for row in rows}

    async def renew(self, renewed: PlayerSession, previous_hash: str) -> PlayerSession | None:
        """Store the next tokens of a session; None if `previous_hash` is no longer current."""
        refresh = renewed.refresh
        row = await self.database.row(
            "renew_session",
            _RENEW,
            renewed.session_id,
            previous_hash,
            renewed.token_hash,
            refresh.token_hash,
            refresh.generation,
            refresh.renewed_at,
        )
        return None if row is None else _session(row)

    async def revoke(self, session_id: str, user_id: str, now: datetime) -> PlayerSession | None:
        """Revoke an active session of the player; None if there is none."""
        row = await self.database.row("revoke_session", _REVOKE, session_id, user_id, now)
        return None if row is None else _session(row)

    async def revoke_all(
        self, user_id: str, now: datetime, keep: str | None = None
    ) -> list[PlayerSession]:
        """Revoke all sessions of the player except `keep`, and return them."""
        rows = await self.database.rows("revoke_sessions", _REVOKE_ALL, user_id, now, keep)
        return [_session(row) for row in rows]

    async def change_password(
        self, change: PasswordChange, now: datetime
    ) -> list[PlayerSession] | None:
        """Replace the password hash and revoke the other sessions, which are returned.

        None if the password was changed meanwhile.
        """
        async with self.database.use("change_password") as connection, connection.transaction():
            user_id = await connection.fetchval(
                _REPLACE_HASH, change.user_id, change.old_hash, change.new_hash, now
            )
            if user_id is None:
                return None
            # A new statement, so that it sees sessions created while the first one waited.
            rows = await connection.fetch(_REVOKE_ALL, user_id, now, change.session_id)
            await connection.execute(_DELETE_RESET_TOKENS, user_id)
        return [_session(row) for row in rows]

    async def reset_password(
        self, token_hash: str, new_hash: str, now: datetime
    ) -> tuple[str, list[PlayerSession]] | None:
        """Use a reset token to set the password hash and revoke all sessions of its player.

        Return the player and the sessions; None if the token is invalid, expired or was used.
        """
        async with self.database.use("reset_password") as connection, connection.transaction():
            await connection.execute(_LOCK_RESET_PLAYER, token_hash)
            user_id = await connection.fetchval(_USE_RESET, token_hash, now)
            if user_id is None:
                return None
            await connection.execute(_SET_HASH, user_id, new_hash, now)
            rows = await connection.fetch(_REVOKE_ALL, user_id, now, None)
            await connection.execute(_DELETE_RESET_TOKENS, user_id)
        return str(user_id), [_session(row) for row in rows]

    async def delete_expired(self, before: datetime, limit: int) -> int:
        """Delete up to `limit` sessions expired before a time, oldest first; return the count."""
        rows = await self.database.rows("delete_expired_sessions", _DELETE_EXPIRED, before, limit)
        return len(rows)

    async def delete_revoked(self, before: datetime, limit: int) -> int:
        """Delete up to `limit` sessions revoked before a time, oldest first; return the count."""
        rows = await self.database.rows("delete_revoked_sessions", _DELETE_REVOKED, before, limit)
        return len(rows)

    async def delete_old_addresses(self, before: datetime, limit: int) -> int:
        """Delete up to `limit` addresses last used before a time; return the count."""
        rows = await self.database.rows(
            "delete_old_addresses", _DELETE_OLD_ADDRESSES, before, limit
        )
        return len(rows)


def _parse_address(text: str | None) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return None for what a proxy or socket reports in place of an IP address."""
    try:
        address = None if text is None else ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _session(row: Row) -> PlayerSession:
    return PlayerSession(
        session_id=str(row["id"]),
        user_id=str(row["user_id"]),
        token_hash=row["token_hash"],
        refresh=RefreshState(
            row["refresh_hash"], row["refresh_secret"].bytes, row["generation"], row["renewed_at"]
        ),
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
        client=ClientInfo(
            None if row["ip_address"] is None else str(row["ip_address"]), row["user_agent"]
        ),
    )
