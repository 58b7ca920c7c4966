"""PlayerSessions: who is signed in where, by short access tokens that a refresh token renews, and how they end at once.

An access token is a JWT that holds for minutes. Besides its signature there is a row for its
session, found by the token's SHA-256: Redis is asked first, PostgreSQL where Redis does not know.
So a session that was ended is refused from that moment on, however long its token would have held.
A refresh token works once; whoever sends one a second time has a copy, and the session ends for
both.
"""

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from tally.errors import NotFound, Unauthenticated
from tally.kit import logs
from tally.kit.clock import Clock
from tally.kit.ids import new_uuid
from tally.kit.token_issuer import TokenIssuer
from tally.scoreboard.model import CachedSession, PlayerSession, User
from tally.scoreboard.repository.cache import SessionCache
from tally.scoreboard.repository.sessions import PlayerSessionRepository
from tally.scoreboard.service.action_tokens import hash_token, truncate_to_second
from tally.scoreboard.service.backlog import Backlog
from tally.scoreboard.service.redis_breaker import RedisBreaker

ISSUER: Final = "tally"
AUDIENCE: Final = "scoreboard"

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class Client:
    """Where a request came from, as far as it says so."""

    ip_address: str | None
    user_agent: str | None


@dataclass(frozen=True, slots=True)
class AuthenticatedPlayer:
    """Who is asking, by which session and which access token."""

    user_id: str
    session_id: str
    token_hash: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class SessionTokens:
    """What a player gets for signing in; the tokens are shown this once."""

    session: PlayerSession
    access_token: str
    access_expires_at: datetime
    refresh_token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayerSessions:
    """`access_seconds` is how long an access token holds, `session_days` how long it can be renewed."""

    sessions: PlayerSessionRepository
    cache: SessionCache
    guard: RedisBreaker
    backlog: Backlog
    tokens: TokenIssuer
    clock: Clock
    access_seconds: int
    session_days: int

    async def open(self, user: User, client: Client) -> SessionTokens:
        """A new session of a player who has shown who they are."""
        now = self.clock.now()
        expires_at = now + timedelta(days=self.session_days)
        session_id, refresh_token = new_uuid(), secrets.token_urlsafe(32)
        access_token, access_expires_at = self._access_token(user.user_id, session_id, expires_at)
        session = PlayerSession(
            session_id=session_id,
            user_id=user.user_id,
            token_hash=hash_token(access_token),
            refresh_hash=hash_token(refresh_token),
            created_at=now,
            expires_at=expires_at,
            ip_address=client.ip_address,
            user_agent=client.user_agent,
        )
        await self.sessions.create(session)
        return SessionTokens(session, access_token, access_expires_at, refresh_token)

    async def authenticate(self, access_token: str) -> AuthenticatedPlayer:
        """Who the token stands for, or Unauthenticated: `invalid_token`, `token_expired` or `session_revoked`."""
        claims = self.tokens.verify(access_token)
        token_hash, now = hash_token(access_token), self.clock.now()
        found = await self.guard.ask(lambda: self.cache.find(token_hash), otherwise=_unknown)
        if found is None:
            found = await self._from_rows(token_hash, min(int(claims["exp"]), 2**40))
        if (
            found is None
            or found.revoked
            or found.expires_at <= now
            or self.backlog.is_revoked_token(token_hash)
        ):
            raise Unauthenticated("The session has ended", code="session_revoked")
        logs.bind(user_id=found.user_id)
        return AuthenticatedPlayer(found.user_id, found.session_id, token_hash, found.expires_at)

    async def _from_rows(self, token_hash: str, token_expires: int) -> CachedSession | None:
        """What PostgreSQL says, kept in Redis for the next time unless it has heard of an end meanwhile."""
        session = await self.sessions.find(token_hash)
        if session is None or not session.is_active(self.clock.now()):
            return None
        ends = datetime.fromtimestamp(token_expires, session.expires_at.tzinfo)
        cached = CachedSession(session.user_id, session.session_id, min(session.expires_at, ends))
        await self.guard.tell(lambda: self.cache.remember(token_hash, cached, self.clock.now()))
        return cached

    async def refresh(self, refresh_token: str) -> SessionTokens:
        """The same session with new tokens; those before no longer hold."""
        # The session is not known before it is found, so the token is made for the row that is
        # about to be changed.
        held = await self.sessions.find_by_refresh(hash_token(refresh_token))
        next_refresh, now = secrets.token_urlsafe(32), self.clock.now()
        access_token, ends = "", now
        if held is not None:
            access_token, ends = self._access_token(held.user_id, held.session_id, held.expires_at)
        renewal = await self.sessions.renew(
            hash_token(refresh_token), hash_token(access_token), hash_token(next_refresh), now
        )
        await self._make_void(renewal.revoked_hashes)
        if renewal.is_reuse:
            _log.warning(
                "A refresh token came twice; its session was ended", action="refresh_reuse"
            )
        if renewal.session is None:
            raise Unauthenticated("Invalid refresh token", code="invalid_token")
        logs.bind(user_id=renewal.session.user_id)
        return SessionTokens(renewal.session, access_token, ends, next_refresh)

    async def of_user(self, identity: AuthenticatedPlayer) -> list[PlayerSession]:
        """The player's sessions that hold, newest first."""
        return await self.sessions.active_of(identity.user_id, self.clock.now())

    async def end(self, identity: AuthenticatedPlayer, session_id: str) -> None:
        """End one of the player's sessions, at once."""
        ended = await self.sessions.revoke(session_id, identity.user_id, self.clock.now())
        if ended is None:
            raise NotFound(f"There is no session {session_id}", code="session_not_found")
        await self._make_void((ended.token_hash,))

    async def end_all(self, user_id: str) -> None:
        """End all of a player's sessions."""
        ended = await self.sessions.revoke_all(user_id, self.clock.now())
        await self._make_void(tuple(session.token_hash for session in ended))

    async def _make_void(self, token_hashes: tuple[str, ...]) -> None:
        """Let Redis know, now or when it is back, that these tokens no longer hold."""
        now = self.clock.now()
        gone = CachedSession("", "", now + timedelta(seconds=self.access_seconds), revoked=True)
        for token_hash in token_hashes:
            if not await self.guard.tell(partial(self.cache.revoke, token_hash, gone, now)):
                self.backlog.add_revoked_token(token_hash, gone.expires_at)

    def _access_token(
        self, user_id: str, session_id: str, session_ends: datetime
    ) -> tuple[str, datetime]:
        now = truncate_to_second(self.clock.now())
        ends = min(now + timedelta(seconds=self.access_seconds), truncate_to_second(session_ends))
        seconds = round((ends - now).total_seconds())
        return self.tokens.issue(user_id, seconds=seconds, sid=session_id, jti=new_uuid()), ends


async def _unknown() -> None:
    return None
