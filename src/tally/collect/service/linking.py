"""Strava connections: links an athlete with OAuth, refreshes tokens and disconnects.

An athlete belongs to one user. Tokens are encrypted before they are stored and refreshed shortly
before they expire. Of several concurrent refreshes, the newest tokens win.
"""

import secrets
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from tally.collect.model.records import (
    STATE_SECONDS,
    BrowserSession,
    PendingState,
    StravaConnection,
    StravaTokens,
    TokensRevoked,
)
from tally.collect.repository.main import CollectRepository
from tally.collect.repository.sessions import BrowserSessionRepository
from tally.collect.service.audit import AuditTrail
from tally.collect.service.ports import StravaClient
from tally.collect.service.sign_in import check_return_path, consume_state
from tally.errors import Conflict, Forbidden, NotFound, RateLimited, Unauthenticated, Unavailable
from tally.kit import logs
from tally.kit.clock import Clock, rfc3339
from tally.kit.encryption import DecryptionError, Encryptor

STRAVA_PURPOSE: Final = "strava"
REFRESH_MARGIN_SECONDS: Final = 300
MAX_ATTEMPTS: Final = 3
ACTIVITY_SCOPES: Final = frozenset({"activity:read", "activity:read_all"})

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class LinkingService:
    """Manages the Strava connections of users."""

    repository: CollectRepository
    sessions: BrowserSessionRepository
    strava: StravaClient
    encryptor: Encryptor
    audit: AuditTrail
    clock: Clock

    async def begin(self, session: BrowserSession, redirect_uri: str, return_to: str) -> str:
        """Start the OAuth flow and return the consent URL."""
        state, path = secrets.token_urlsafe(32), check_return_path(return_to)
        url = self.strava.authorize_url(redirect_uri, state)
        expires = self.clock.seconds() + STATE_SECONDS
        await self.sessions.begin(
            PendingState(state, STRAVA_PURPOSE, session.session_hash, expires, path)
        )
        return url

    async def finish(
        self, session: BrowserSession, *, state: str, code: str, scope: str, error: str
    ) -> str:
        """Link the athlete and return the path to redirect to.

        Fails without the activity scope, and if another user has linked the athlete.
        """
        pending = await consume_state(
            self.sessions, state, STRAVA_PURPOSE, session.session_hash, self.clock.seconds()
        )
        if error or not code:
            raise Forbidden("Access to Strava was denied", code="strava_access_denied")
        granted = {part.strip() for part in scope.replace(" ", ",").split(",")}
        if not granted & ACTIVITY_SCOPES:
            raise Forbidden("Access to activities was not granted", code="activity_access_missing")
        grant = await self.strava.exchange(code)
        await self._link(
            StravaConnection(
                session.user_id,
                grant.athlete_id,
                self._encrypt(session.user_id, grant.athlete_id, grant.tokens),
                grant.tokens.expires_at,
                ",".join(sorted(granted))[:200],
                rfc3339(self.clock.now()),
            )
        )
        return pending.return_to

    async def _link(self, connection: StravaConnection) -> None:
        for _ in range(MAX_ATTEMPTS):
            former = await self.repository.connection(connection.user_id)
            linked = replace(connection, version=1 if former is None else former.version + 1)
            if await self.repository.link(linked, former):
                facts: dict[str, str | int] = {"athlete": linked.athlete_id}
                self.audit.record("STRAVA_CONNECTED", linked.user_id, facts)
                if former is not None and former.athlete_id != linked.athlete_id:
                    await self._revoke(former)
                return
            await self._raise_if_permanent(connection)
        raise Unavailable("The connection is being changed concurrently; retry", retry_after=1)

    async def _raise_if_permanent(self, connection: StravaConnection) -> None:
        """Raise the reason why linking failed, unless a retry may succeed."""
        owner = await self.repository.owner(connection.athlete_id)
        if owner is not None and owner != connection.user_id:
            facts: dict[str, str | int] = {"athlete": connection.athlete_id}
            self.audit.record("STRAVA_CONNECT_REFUSED", connection.user_id, facts)
            raise Conflict(
                "The athlete is linked to another account", code="athlete_already_connected"
            )
        if await self.repository.profile(connection.user_id) is None:
            raise Unauthenticated("The account is being deleted", code="invalid_session")

    async def status(self, user_id: str) -> StravaConnection | None:
        return await self.repository.connection(user_id)

    async def disconnect(self, user_id: str) -> None:
        """Revoke the tokens at Strava and delete the connection; NotFound if there is none."""
        connection = await self.repository.connection(user_id)
        if connection is None:
            raise NotFound("Strava is not linked", code="strava_not_connected")
        await self._revoke(connection)
        await self.forget(user_id, connection.athlete_id)
        facts: dict[str, str | int] = {"athlete": connection.athlete_id}
        self.audit.record("STRAVA_DISCONNECTED", user_id, facts)

    async def forget(self, user_id: str, athlete_id: int) -> None:
        """Delete the connection of a user to an athlete, and the ownership. Idempotent."""
        if not await self.repository.unlink(user_id, athlete_id):
            # Another user owns the athlete, or the user has linked another athlete: keep those.
            await self.repository.delete_connection(user_id, athlete_id)

    async def access_token(self, connection: StravaConnection, *, stale: str | None = None) -> str:
        """Return an access token that is valid for some minutes.

        `stale` is a token that Strava has just rejected.
        """
        for _ in range(MAX_ATTEMPTS):
            tokens = self._decrypt(connection)
            is_fresh = connection.expires_at - self.clock.seconds() > REFRESH_MARGIN_SECONDS
            if is_fresh and tokens.access != stale:
                return tokens.access
            refreshed = await self._refresh(connection, tokens)
            if refreshed is not None:
                return refreshed
            newer = await self.repository.connection(connection.user_id)
            if newer is None or newer.athlete_id != connection.athlete_id:
                raise TokensRevoked
            connection = newer
        raise Unavailable("The tokens are being refreshed concurrently", retry_after=5)

    async def _refresh(self, connection: StravaConnection, tokens: StravaTokens) -> str | None:
        """Refresh and store the tokens; return the access token.

        None means that another refresh was faster and the connection must be read again.
        """
        try:
            newer = await self.strava.refresh(tokens.refresh)
        except TokensRevoked:
            current = await self.repository.connection(connection.user_id)
            if current is None or current.version == connection.version:
                raise
            return None
        encrypted = self._encrypt(connection.user_id, connection.athlete_id, newer)
        return (
            newer.access
            if await self.repository.store_tokens(connection, encrypted, newer.expires_at)
            else None
        )

    async def _revoke(self, connection: StravaConnection) -> None:
        """Revoke the tokens at Strava, on a best-effort basis."""
        try:
            await self.strava.deauthorize(await self.access_token(connection))
        except (TokensRevoked, Unavailable, RateLimited) as error:
            _log.warning(
                "Strava deauthorization failed", action="strava_deauthorize_failed", error=error
            )

    def _encrypt(self, user_id: str, athlete_id: int, tokens: StravaTokens) -> str:
        return encrypt_tokens(self.encryptor, user_id, athlete_id, tokens)

    def _decrypt(self, connection: StravaConnection) -> StravaTokens:
        """Decrypt the tokens. After a change of the secret, they count as revoked."""
        try:
            text = self.encryptor.decrypt(
                connection.encrypted_tokens, f"{connection.user_id} {connection.athlete_id}"
            )
        except DecryptionError as error:
            raise TokensRevoked from error
        access, refresh, expires_at = msgspec.json.decode(text, type=tuple[str, str, int])
        return StravaTokens(access, refresh, expires_at)


def encrypt_tokens(
    encryptor: Encryptor, user_id: str, athlete_id: int, tokens: StravaTokens
) -> str:
    """Encrypt tokens for storage, bound to one user and athlete."""
    text = msgspec.json.encode([tokens.access, tokens.refresh, tokens.expires_at]).decode()
    return encryptor.encrypt(text, f"{user_id} {athlete_id}")
