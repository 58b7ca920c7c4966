"""The table `sessions`. A session is found by the hash of its access token."""

import ipaddress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tally.scoreboard.model import (
    MAX_USER_AGENT_LENGTH,
    ClientInfo,
    PlayerSession,
    SessionRenewal,
)
from tally.scoreboard.repository.database import Database, Row

_COLUMNS: Final = (
    "id, user_id, token_hash, refresh_hash, ip_address, user_agent, expires_at, created_at,"
    " revoked_at"
)

_CREATE: Final = f"""
INSERT INTO sessions ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
"""
_FIND_ACTIVE: Final = f"""
SELECT {_COLUMNS} FROM sessions WHERE user_id = $1 AND revoked_at IS NULL AND expires_at > $2
ORDER BY created_at DESC, id LIMIT $3
"""
_RENEW: Final = f"""
WITH active AS (
    SELECT id, token_hash AS revoked_hash FROM sessions
    WHERE refresh_hash = $1 AND revoked_at IS NULL AND expires_at > $4 FOR UPDATE
)
UPDATE sessions SET token_hash = $2, refresh_hash = $3, previous_refresh_hash = $1
FROM active WHERE sessions.id = active.id
RETURNING {", ".join(f"sessions.{name}" for name in _COLUMNS.split(", "))}, revoked_hash
"""
# A refresh token that was used before has been copied: revoke the session of both holders.
_REVOKE_REUSED: Final = """
UPDATE sessions SET revoked_at = $2 WHERE previous_refresh_hash = $1 AND revoked_at IS NULL
RETURNING token_hash
"""
_REVOKE: Final = f"""
UPDATE sessions SET revoked_at = $3
WHERE id = $1 AND user_id = $2 AND revoked_at IS NULL AND expires_at > $3
RETURNING {_COLUMNS}
"""
_REVOKE_ALL: Final = f"""
UPDATE sessions SET revoked_at = $2 WHERE user_id = $1 AND revoked_at IS NULL
RETURNING {_COLUMNS}
"""
_DELETE_EXPIRED: Final = """
DELETE FROM sessions WHERE id = ANY(ARRAY(
    SELECT id FROM sessions WHERE expires_at < $1
    ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED
)) RETURNING id
"""


@dataclass(frozen=True, slots=True)
class PlayerSessionRepository:
    """Sessions by token and by player."""

    database: Database

    async def create(self, session: PlayerSession) -> None:
        agent = session.client.user_agent
        await self.database.value(
            "create_session",
            _CREATE,
            session.session_id,
            session.user_id,
            session.token_hash,
            session.refresh_hash,
            _parse_address(session.client.ip_address),
            agent and agent[:MAX_USER_AGENT_LENGTH],
            session.expires_at,
            session.created_at,
            session.revoked_at,
        )

    async def find(self, token_hash: str) -> PlayerSession | None:
        """Return the session of an access token, whether or not it is active."""
        row = await self.database.row(
            "find_session", f"SELECT {_COLUMNS} FROM sessions WHERE token_hash = $1", token_hash
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

    async def renew(
        self, refresh_hash: str, token_hash: str, new_refresh_hash: str, now: datetime
    ) -> SessionRenewal:
        """Replace the session's token hashes; a reused refresh token revokes the session."""
        async with self.database.use("renew_session") as connection:
            row = await connection.fetchrow(_RENEW, refresh_hash, token_hash, new_refresh_hash, now)
            if row is not None:
                return SessionRenewal(_session(row), (row["revoked_hash"],))
            reused = await connection.fetch(_REVOKE_REUSED, refresh_hash, now)
        return SessionRenewal(
            None, tuple(row["token_hash"] for row in reused), is_reuse=bool(reused)
        )

    async def revoke(self, session_id: str, user_id: str, now: datetime) -> PlayerSession | None:
        """Revoke an active session of the player; None if there is none."""
        row = await self.database.row("revoke_session", _REVOKE, session_id, user_id, now)
        return None if row is None else _session(row)

    async def revoke_all(self, user_id: str, now: datetime) -> list[PlayerSession]:
        """Revoke all sessions of the player and return them."""
        rows = await self.database.rows("revoke_sessions", _REVOKE_ALL, user_id, now)
        return [_session(row) for row in rows]

    async def delete_expired(self, before: datetime, limit: int) -> int:
        """Delete up to `limit` sessions expired before a time, oldest first; return the count."""
        rows = await self.database.rows("delete_expired_sessions", _DELETE_EXPIRED, before, limit)
        return len(rows)


def _parse_address(text: str | None) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return None for what a proxy or socket reports in place of an IP address."""
    try:
        return None if text is None else ipaddress.ip_address(text)
    except ValueError:
        return None


def _session(row: Row) -> PlayerSession:
    return PlayerSession(
        session_id=str(row["id"]),
        user_id=str(row["user_id"]),
        token_hash=row["token_hash"],
        refresh_hash=row["refresh_hash"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
        client=ClientInfo(
            None if row["ip_address"] is None else str(row["ip_address"]), row["user_agent"]
        ),
    )
