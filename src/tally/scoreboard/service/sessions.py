"""Player sessions: short-lived access tokens, single-use refresh tokens and immediate revocation.

An access token is a JWT that is valid for minutes. Besides its signature, each request checks the
token's session, found by the token's SHA-256 in Redis or, on a miss, in PostgreSQL. A revoked
session is therefore rejected immediately, regardless of the token's expiry. `refresh_tokens`
describes the chain of refresh tokens.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from tally.errors import NotFound, Unauthenticated
from tally.kit import logs
from tally.kit.clock import Clock
from tally.kit.ids import new_uuid
from tally.kit.token_issuer import TokenIssuer
from tally.scoreboard.model.accounts import (
    CachedSession,
    ClientInfo,
    PasswordChange,
    PlayerSession,
    RefreshState,
    User,
)
from tally.scoreboard.repository.cache import SessionCache
from tally.scoreboard.repository.sessions import PlayerSessionRepository
from tally.scoreboard.service.action_tokens import hash_token, truncate_to_second
from tally.scoreboard.service.backlog import Backlog
from tally.scoreboard.service.redis_breaker import RedisBreaker, no_value
from tally.scoreboard.service.refresh_tokens import (
    generations_behind,
    new_refresh_token,
    next_refresh_token,
    refresh_session_id,
)

ISSUER: Final = "tally"
AUDIENCE: Final = "scoreboard"
REFRESH_GRACE: Final = timedelta(seconds=30)
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

    async def open(
        self, user: User, client: ClientInfo, password_hash: str | None = None
    ) -> SessionTokens:
        """Create a session for an authenticated user.

        Raises Unauthenticated if `password_hash` is no longer that of the account.
        """
        now, session_id = self.clock.now(), new_uuid()
        refresh_token = new_refresh_token(session_id)
        session = PlayerSession(
            session_id=session_id,
            user_id=user.user_id,
            token_hash="",
            refresh=RefreshState(hash_token(refresh_token), uuid.uuid4().bytes, 0, now),
            created_at=now,
            expires_at=now + timedelta(days=self.session_days),
            client=client,
        )
        tokens = self._tokens(session, refresh_token)
        if not await self.sessions.create(tokens.session, password_hash):
            raise Unauthenticated("The password was changed meanwhile", code="invalid_credentials")
        return tokens

    async def authenticate(self, access_token: str) -> AuthenticatedPlayer:
        """Return the token's player.

        Raises Unauthenticated with code `invalid_token`, `token_expired` or `session_revoked`.
        """
        claims, token_hash = self.tokens.verify(access_token), hash_token(access_token)
        session = await self.breaker.call_or_else(lambda: self.cache.find(token_hash), no_value)
        if session is None:
            session = await self._load(token_hash, min(int(claims["exp"]), _MAX_EXPIRY))
        return self.authenticate_cached(token_hash, session)

    def authenticate_cached(
        self, token_hash: str, session: CachedSession | None
    ) -> AuthenticatedPlayer:
        """Return the player of a verified token, whose session was looked up."""
        if (
            session is None
            or session.is_revoked
            or session.expires_at <= self.clock.now()
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
        """Replace the session's tokens; the previous ones become invalid.

        For `REFRESH_GRACE` the previous refresh token returns the current tokens again: two tabs
        may refresh at once, and a client repeats a request whose response was lost. Later use of
        an earlier token means that it was copied, and revokes the session.
        """
        session, behind = await self._find_by_refresh(refresh_token)
        if behind == 0:
            tokens = await self._renew(session, refresh_token)
            if tokens is not None:
                return tokens
            # A concurrent refresh with the same token was faster.
            session, behind = await self._find_by_refresh(refresh_token)
        is_in_grace = self.clock.now() - session.refresh.renewed_at < REFRESH_GRACE
        if behind == 1 and is_in_grace:
            return await self._repeat(session, refresh_token)
        await self.sessions.revoke(session.session_id, session.user_id, self.clock.now())
        await self.revoke_tokens((session.token_hash,))
        _log.warning("Refresh token reused; session revoked", action="refresh_token_reused")
        raise _invalid_refresh_token()

    async def _find_by_refresh(self, refresh_token: str) -> tuple[PlayerSession, int]:
        """Return the active session of a token, and by how many refreshes the token is old."""
        session_id = refresh_session_id(refresh_token)
        if session_id is None:
            session = await self.sessions.find_by_refresh(hash_token(refresh_token))
        else:
            session = await self.sessions.find_by_id(session_id)
        if session is None or not session.is_active(self.clock.now()):
            raise _invalid_refresh_token()
        behind = generations_behind(session, refresh_token)
        if behind is None:
            raise _invalid_refresh_token()
        logs.bind(user_id=session.user_id)
        return session, behind

    async def _renew(self, session: PlayerSession, refresh_token: str) -> SessionTokens | None:
        """Store and return the next tokens; None if `refresh_token` is no longer the current one.

        The new tokens are a function of the session and the time.
        """
        current, next_token = session.refresh, next_refresh_token(session, refresh_token)
        refresh = replace(
            current,
            token_hash=hash_token(next_token),
            generation=current.generation + 1,
            renewed_at=self.clock.now(),
        )
        tokens = self._tokens(replace(session, refresh=refresh), next_token)
        if await self.sessions.renew(tokens.session, hash_token(refresh_token)) is None:
            return None
        await self.revoke_tokens((session.token_hash,))
        return tokens

    async def _repeat(self, session: PlayerSession, refresh_token: str) -> SessionTokens:
        """Return the tokens that the last refresh returned.

        If the signing key has changed since, the access token differs, and the session is renewed.
        """
        current_token = next_refresh_token(session, refresh_token)
        tokens = self._tokens(session, current_token)
        if tokens.session == session:
            return tokens
        renewed = await self._renew(session, current_token)
        if renewed is None:
            raise _invalid_refresh_token()
        return renewed

    async def list_active(self, player: AuthenticatedPlayer) -> list[PlayerSession]:
        """Return the player's active sessions, newest first."""
        return await self.sessions.find_active(player.user_id, self.clock.now())

    async def find_active_ids(self, session_ids: Sequence[str]) -> set[str]:
        """Return those of the sessions that are active."""
        return await self.sessions.find_active_ids(session_ids, self.clock.now())

    async def revoke(self, player: AuthenticatedPlayer, session_id: str) -> None:
        """Revoke one of the player's sessions; raises NotFound."""
        revoked = await self.sessions.revoke(session_id, player.user_id, self.clock.now())
        if revoked is None:
            raise NotFound(f"Session {session_id} does not exist", code="session_not_found")
        await self.revoke_tokens((revoked.token_hash,))

    async def revoke_all(self, user_id: str) -> None:
        """Revoke all sessions of a player."""
        revoked = await self.sessions.revoke_all(user_id, self.clock.now())
        await self.revoke_tokens([session.token_hash for session in revoked])

    async def change_password(self, change: PasswordChange) -> bool:
        """Replace the password hash and revoke the player's other sessions.

        False if the password was changed meanwhile.
        """
        revoked = await self.sessions.change_password(change, self.clock.now())
        if revoked is None:
            return False
        await self.revoke_tokens([session.token_hash for session in revoked])
        return True

    async def reset_password(self, token_hash: str, new_hash: str) -> bool:
        """Use a reset token: set the password hash, and revoke all sessions of the player."""
        used = await self.sessions.reset_password(token_hash, new_hash, self.clock.now())
        if used is None:
            return False
        user_id, revoked = used
        logs.bind(user_id=user_id)
        await self.revoke_tokens([session.token_hash for session in revoked])
        return True

    async def revoke_tokens(self, token_hashes: Sequence[str]) -> None:
        """Revoke access tokens in Redis, or queue the revocations."""
        now = self.clock.now()
        revoked = CachedSession(
            "", "", now + timedelta(seconds=self.access_seconds), is_revoked=True
        )
        for token_hash in token_hashes:
            if not await self.breaker.try_call(
                partial(self.cache.revoke, token_hash, revoked, now)
            ):
                self.backlog.add_revoked_token(token_hash, revoked.expires_at)

    def _tokens(self, session: PlayerSession, refresh_token: str) -> SessionTokens:
        """Return the tokens of a session: the same ones until it is renewed again."""
        issued_at = truncate_to_second(session.refresh.renewed_at)
        expires_at = min(
            issued_at + timedelta(seconds=self.access_seconds),
            truncate_to_second(session.expires_at),
        )
        access_token = self.tokens.issue(
            session.user_id,
            issued_at=round(issued_at.timestamp()),
            seconds=round((expires_at - issued_at).total_seconds()),
            sid=session.session_id,
            jti=str(uuid.uuid5(uuid.UUID(session.session_id), str(session.refresh.generation))),
        )
        renewed = replace(session, token_hash=hash_token(access_token))
        return SessionTokens(renewed, access_token, expires_at, refresh_token)


def _invalid_refresh_token() -> Unauthenticated:
    return Unauthenticated("Invalid refresh token", code="invalid_token")
