"""The sessions of a user: listed, and ended one by one or all at once.

Users identify a session by a value derived from its hash. Neither the session id nor the hash,
which is the key of the item, leaves the server.
"""

import secrets
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from tally.collect.model.records import BrowserSession
from tally.collect.repository.main import CollectRepository
from tally.collect.repository.sessions import BrowserSessionRepository
from tally.collect.service.audit import AuditTrail
from tally.collect.service.sign_in import hash_secret
from tally.errors import NotFound, Unavailable
from tally.kit.clock import Clock

PUBLIC_ID_LENGTH: Final = 32


def public_session_id(session: BrowserSession) -> str:
    """Return the id by which users refer to a session; it grants nothing."""
    return hash_secret(f"public id of {session.session_hash}")[:PUBLIC_ID_LENGTH]


@dataclass(frozen=True, slots=True)
class SessionService:
    """Lists and ends the sessions of a user."""

    repository: CollectRepository
    sessions: BrowserSessionRepository
    audit: AuditTrail
    clock: Clock

    async def all(self, current: BrowserSession) -> list[BrowserSession]:
        """Return the valid sessions of the user, newest first."""
        found = await self.sessions.by_user(current.user_id, self.clock.seconds())
        valid = {
            session.session_hash: session for session in found if session.epoch == current.epoch
        }
        # On DynamoDB, the index may not contain a new session yet.
        valid.setdefault(current.session_hash, replace(current, encrypted_refresh_token=None))
        return sorted(
            valid.values(),
            key=lambda session: (session.created_at, session.session_hash),
            reverse=True,
        )

    async def end(self, current: BrowserSession, public_id: str, ip: str | None) -> BrowserSession:
        """End one session of the user and return it; NotFound if the user has no such session."""
        for session in await self.all(current):
            if public_session_id(session) == public_id:
                await self.sessions.delete(session.session_hash)
                self.audit.record("AUTH_SESSION_ENDED", current.user_id, ip=ip)
                return session
        raise NotFound("The session does not exist", code="session_not_found")

    async def end_all(self, current: BrowserSession, ip: str | None) -> None:
        """End all sessions of the user, at once and on every instance."""
        await self.repository.set_session_epoch(current.user_id, secrets.token_urlsafe(16))
        self.audit.record("AUTH_ALL_SESSIONS_ENDED", current.user_id, ip=ip)
        with suppress(Unavailable):  # the items are invalid already, and expire
            await self.sessions.delete(current.session_hash)
            await self.sessions.delete_batch(current.user_id)
