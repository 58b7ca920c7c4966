"""Player sessions: short-lived access tokens, single-use refresh tokens and immediate revocation.

An access token is a JWT that is valid for minutes. Besides its signature, each request checks the
token's session, found by the token's SHA-256 in Redis or, on a miss, in PostgreSQL. A revoked
session is therefore rejected immediately, regardless of the token's expiry. Reuse of a refresh
token means that it was copied, and revokes the session.
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
from tally.scoreboard.model import CachedSession, ClientInfo, PlayerSession, User
from tally.scoreboard.repository.cache import SessionCache
from tally.scoreboard.repository.sessions import PlayerSessionRepository
from tally.scoreboard.service.action_tokens import hash_token, truncate_to_second
from tally.scoreboard.service.backlog import Backlog
from tally.scoreboard.service.redis_breaker import RedisBreaker, no_value

ISSUER: Final = "tally"
AUDIENCE: Final = "scoreboard"
# Keeps the claim within the range of datetime.
_MAX_EXPIRY: Final = 2**40

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class AuthenticatedPlayer:
    """The player, session and access token of a request."""

    user_id: str
    session_id: str
    token_hash: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class SessionTokens:
    """A session and its tokens, which are not stored and cannot be read again."""

    session: PlayerSession
    access_token: str
    access_expires_at: datetime
    refresh_token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayerSessions:
    """Opens, authenticates, refreshes and revokes sessions.

    An access token is valid for `access_seconds`, a session for `session_days`.
    """

    sessions: PlayerSessionRepository
    cache: SessionCache
    breaker: RedisBreaker
    backlog: Backlog
    tokens: TokenIssuer
    clock: Clock
    access_seconds: int
    session_days: int

    async def open(self, user: User, client: ClientInfo) -> SessionTokens:
        """Create a session for an authenticated user."""
        now = self.clock.now()
        expires_at = now + timedelta(days=self.session_days)
        session_id, refresh_token = new_uuid(), secrets.token_urlsafe(32)
        access_token, access_expires_at = self._issue_access_token(
            user.user_id, session_id, expires_at
        )
        session = PlayerSession(
            session_id=session_id,
            user_id=user.user_id,
            token_hash=hash_token(access_token),
            refresh_hash=hash_token(refresh_token),
            created_at=now,
            expires_at=expires_at,
            client=client,
        )
        await self.sessions.create(session)
        return SessionTokens(session, access_token, access_expires_at, refresh_token)

    async def authenticate(self, access_token: str) -> AuthenticatedPlayer:
        """Return the token's player.

        Raises Unauthenticated with code `invalid_token`, `token_expired` or `session_revoked`.
        """
        claims = self.tokens.verify(access_token)
        token_hash, now = hash_token(access_token), self.clock.now()
        session = await self.breaker.call_or_else(lambda: self.cache.find(token_hash), no_value)
        if session is None:
            session = await self._load(token_hash, min(int(claims["exp"]), _MAX_EXPIRY))
        if (
            session is None
            or session.is_revoked
            or session.expires_at <= now
            or self.backlog.is_revoked_token(token_hash)
        ):
            raise Unauthenticated("The session has expired or was revoked", code="session_revoked")
        logs.bind(user_id=session.user_id)
        return AuthenticatedPlayer(
            session.user_id, session.session_id, token_hash, session.expires_at
        )

    async def _load(self, token_hash: str, token_expires: int) -> CachedSession | None:
        """Load an active session from PostgreSQL and cache it."""
        session = await self.sessions.find(token_hash)
        if session is None or not session.is_active(self.clock.now()):
            return None
        expires_at = datetime.fromtimestamp(token_expires, session.expires_at.tzinfo)
        cached = CachedSession(
            session.user_id, session.session_id, min(session.expires_at, expires_at)
        )
        await self.breaker.try_call(lambda: self.cache.store(token_hash, cached, self.clock.now()))
        return cached

    async def refresh(self, refresh_token: str) -> SessionTokens:
        """Replace the session's tokens; the previous ones become invalid."""
        # The access token names the session, so the session is read before it is renewed.
        current = await self.sessions.find_by_refresh(hash_token(refresh_token))
        next_refresh, now = secrets.token_urlsafe(32), self.clock.now()
        access_token, expires_at = "", now
        if current is not None:
            access_token, expires_at = self._issue_access_token(
                current.user_id, current.session_id, current.expires_at
            )
        renewal = await self.sessions.renew(
            hash_token(refresh_token), hash_token(access_token), hash_token(next_refresh), now
        )
        await self._revoke_tokens(renewal.revoked_hashes)
        if renewal.is_reuse:
            _log.warning("Refresh token reused; session revoked", action="refresh_token_reused")
        if renewal.session is None:
            raise Unauthenticated("Invalid refresh token", code="invalid_token")
        logs.bind(user_id=renewal.session.user_id)
        return SessionTokens(renewal.session, access_token, expires_at, next_refresh)

    async def list_active(self, player: AuthenticatedPlayer) -> list[PlayerSession]:
        """Return the player's active sessions, newest first."""
        return await self.sessions.find_active(player.user_id, self.clock.now())

    async def revoke(self, player: AuthenticatedPlayer, session_id: str) -> None:
        """Revoke one of the player's sessions; raises NotFound."""
        revoked = await self.sessions.revoke(session_id, player.user_id, self.clock.now())
        if revoked is None:
            raise NotFound(f"Session {session_id} does not exist", code="session_not_found")
        await self._revoke_tokens((revoked.token_hash,))

    async def revoke_all(self, user_id: str) -> None:
        """Revoke all sessions of a player."""
        revoked = await self.sessions.revoke_all(user_id, self.clock.now())
        await self._revoke_tokens(tuple(session.token_hash for session in revoked))

    async def _revoke_tokens(self, token_hashes: tuple[str, ...]) -> None:
        """Revoke the access tokens in Redis, or queue the revocations."""
        now = self.clock.now()
        revoked = CachedSession(
            "", "", now + timedelta(seconds=self.access_seconds), is_revoked=True
        )
        for token_hash in token_hashes:
            if not await self.breaker.try_call(
                partial(self.cache.revoke, token_hash, revoked, now)
            ):
                self.backlog.add_revoked_token(token_hash, revoked.expires_at)

    def _issue_access_token(
        self, user_id: str, session_id: str, session_expires_at: datetime
    ) -> tuple[str, datetime]:
        now = truncate_to_second(self.clock.now())
        expires_at = min(
            now + timedelta(seconds=self.access_seconds), truncate_to_second(session_expires_at)
        )
        seconds = round((expires_at - now).total_seconds())
        token = self.tokens.issue(user_id, seconds=seconds, sid=session_id, jti=new_uuid())
        return token, expires_at
