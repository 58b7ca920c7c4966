"""The table `sessions`: who is signed in where.

A session is found by the hash of its access token, which only the client has.
"""

import ipaddress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tally.scoreboard.model import MAX_USER_AGENT_LENGTH, PlayerSession, SessionRenewal
from tally.scoreboard.repository.database import Database, Row

_COLUMNS: Final = "id, user_id, token_hash, refresh_hash, ip_address, user_agent, expires_at, created_at, revoked_at"

# A refresh token that was already traded in tells that two have it: the session ends for both.
_REVOKE_STOLEN: Final = """
UPDATE sessions SET revoked_at = $2 WHERE previous_refresh_hash = $1 AND revoked_at IS NULL RETURNING token_hash
"""

_RENEW: Final = f"""
WITH held AS (
    SELECT id, token_hash AS void_hash FROM sessions
    WHERE refresh_hash = $1 AND revoked_at IS NULL AND expires_at > $4 FOR UPDATE
)
UPDATE sessions SET token_hash = $2, refresh_hash = $3, previous_refresh_hash = $1
FROM held WHERE sessions.id = held.id
RETURNING {", ".join(f"sessions.{name}" for name in _COLUMNS.split(", "))}, void_hash
"""


@dataclass(frozen=True, slots=True)
class PlayerSessionRepository:
    """PlayerSessions by token and by person."""

    database: Database

    async def create(self, session: PlayerSession) -> None:
        await self.database.value(
            "create_session",
            f"INSERT INTO sessions ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            session.session_id,
            session.user_id,
            session.token_hash,
            session.refresh_hash,
            _address(session.ip_address),
            session.user_agent and session.user_agent[:MAX_USER_AGENT_LENGTH],
            session.expires_at,
            session.created_at,
            session.revoked_at,
        )

    async def find(self, token_hash: str) -> PlayerSession | None:
        """The session of an access token, whether or not it still holds: ask `is_active`."""
        row = await self.database.row(
            "find_session", f"SELECT {_COLUMNS} FROM sessions WHERE token_hash = $1", token_hash
        )
        return None if row is None else _session(row)

    async def find_by_refresh(self, refresh_hash: str) -> PlayerSession | None:
        """The session that a refresh token would renew, whether or not it still holds."""
        row = await self.database.row(
            "find_session_by_refresh",
            f"SELECT {_COLUMNS} FROM sessions WHERE refresh_hash = $1",
            refresh_hash,
        )
        return None if row is None else _session(row)

    async def active_of(self, user_id: str, now: datetime, limit: int = 100) -> list[PlayerSession]:
        """A person's sessions that hold, newest first."""
        rows = await self.database.rows(
            "list_sessions",
            f"SELECT {_COLUMNS} FROM sessions WHERE user_id = $1 AND revoked_at IS NULL AND expires_at > $2"
            " ORDER BY created_at DESC, id LIMIT $3",
            user_id,
            now,
            limit,
        )
        return [_session(row) for row in rows]

    async def renew(
        self, refresh_hash: str, token_hash: str, new_refresh_hash: str, now: datetime
    ) -> SessionRenewal:
        """Trade a refresh token in: the session goes on under `token_hash` and `new_refresh_hash`.

        Each refresh token works once. One that comes a second time has been copied, and ends the
        session.
        """
        async with self.database.use("renew_session") as connection:
            row = await connection.fetchrow(_RENEW, refresh_hash, token_hash, new_refresh_hash, now)
            if row is not None:
                return SessionRenewal(_session(row), (row["void_hash"],))
            stolen = await connection.fetch(_REVOKE_STOLEN, refresh_hash, now)
        return SessionRenewal(
            None, tuple(found["token_hash"] for found in stolen), is_reuse=bool(stolen)
        )

    async def revoke(self, session_id: str, user_id: str, now: datetime) -> PlayerSession | None:
        """End a session of this person's; None if there is none that holds."""
        row = await self.database.row(
            "revoke_session",
            "UPDATE sessions SET revoked_at = $3 WHERE id = $1 AND user_id = $2 AND revoked_at IS NULL AND expires_at > $3"
            f" RETURNING {_COLUMNS}",
            session_id,
            user_id,
            now,
        )
        return None if row is None else _session(row)

    async def revoke_all(self, user_id: str, now: datetime) -> list[PlayerSession]:
        """End all sessions of this person's, and say which they were."""
        rows = await self.database.rows(
            "revoke_sessions",
            f"UPDATE sessions SET revoked_at = $2 WHERE user_id = $1 AND revoked_at IS NULL RETURNING {_COLUMNS}",
            user_id,
            now,
        )
        return [_session(row) for row in rows]

    async def delete_expired(self, before: datetime, limit: int) -> int:
        """Delete up to `limit` sessions that expired before that moment, the oldest first, and say how many."""
        return len(
            await self.database.rows(
                "delete_expired_sessions",
                "DELETE FROM sessions WHERE id = ANY(ARRAY("
                "SELECT id FROM sessions WHERE expires_at < $1 ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED"
                ")) RETURNING id",
                before,
                limit,
            )
        )


def _address(text: str | None) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An address, or None for what a proxy or a socket calls one and is none."""
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
        ip_address=None if row["ip_address"] is None else str(row["ip_address"]),
        user_agent=row["user_agent"],
    )
