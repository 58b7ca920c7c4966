"""Strava connections: links an athlete with OAuth, refreshes tokens and disconnects.

An athlete belongs to one user. Tokens are encrypted before they are stored and refreshed shortly
before they expire. Of several concurrent refreshes, the newest tokens win. A link whose refresh
token Strava rejects is marked, and the user has to link again.
"""

import secrets
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from tally.collect.model.records import (
    STATE_SECONDS,
    BrowserSession,
    PendingState,
    StravaConnection,
    StravaTokens,
    TokensRevoked,
    TokensUnreadable,
)
from tally.collect.repository.main import CollectRepository
from tally.collect.repository.sessions import BrowserSessionRepository
from tally.collect.service.audit import AuditTrail
from tally.collect.service.event_retries import EventRetries
from tally.collect.service.ports import StravaClient
from tally.collect.service.sign_in import check_return_path, consume_state
from tally.errors import (
    Conflict,
    Forbidden,
    NotFound,
    RateLimited,
    TallyError,
    Unauthenticated,
    Unavailable,
)
from tally.kit import logs
from tally.kit.clock import Clock, rfc3339
from tally.kit.encryption import DecryptionError, Encryptor
from tally.kit.ids import new_uuid
from tally.kit.retry import RetryPolicy

STRAVA_PURPOSE: Final = "strava"
REFRESH_MARGIN_SECONDS: Final = 300
# Longer than a request to Strava (10 s) and the attempts to store the tokens take.
REFRESH_LEASE_SECONDS: Final = 60
# Strava has invalidated the former tokens, so giving up would cost the link.
STORE_TOKENS: Final = RetryPolicy(attempts=1000, base=0.1, cap=2, deadline=45)
MAX_UNSAVED: Final = 10_000
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
    retries: EventRetries
    # Refreshed tokens that this process could not store yet, by the encrypted ones they replace.
    unsaved: dict[str, StravaTokens] = field(default_factory=dict, repr=False)

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
                link_id=new_uuid(),
                linked_ms=self.clock.milliseconds(),
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
                await self._retry_parked(linked)
                if former is not None and former.athlete_id != linked.athlete_id:
                    await self._revoke(former)
                return
            await self._raise_if_permanent(connection)
        raise Unavailable("The connection is being changed concurrently; retry", retry_after=1)

    async def _retry_parked(self, connection: StravaConnection) -> None:
        """Return the events that waited for this link to the inbox, on a best-effort basis."""
        try:
            await self.retries.retry_parked(connection.athlete_id)
        except Unavailable as error:  # they stay parked; an operator can retry them
            _log.warning(
                "Parked events not retried", action="parked_events_not_retried", error=error
            )

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
        """Return the connection; unreadable tokens need a new link, like revoked ones."""
        connection = await self.repository.connection(user_id)
        if connection is None or connection.needs_relink:
            return connection
        try:
            self._decrypt(connection)
        except TokensUnreadable:
            return replace(connection, needs_relink=True)
        return connection

    async def disconnect(self, user_id: str) -> None:
        """Revoke the tokens at Strava and delete the connection; NotFound if there is none."""
        connection = await self.repository.connection(user_id)
        if connection is None:
            raise NotFound("Strava is not linked", code="strava_not_connected")
        await self._revoke(connection)
        await self.forget(connection)
        facts: dict[str, str | int] = {"athlete": connection.athlete_id}
        self.audit.record("STRAVA_DISCONNECTED", user_id, facts)

    async def forget(self, connection: StravaConnection) -> None:
        """Delete a link and the ownership. Idempotent; a newer link of the user is kept."""
        if not await self.repository.unlink(connection):
            # Another user owns the athlete, or the user has linked again: keep those.
            await self.repository.delete_connection(connection)

    async def revoke(self, connection: StravaConnection) -> None:
        """Revoke the authorization at Strava. Nothing is left to revoke with unreadable tokens."""
        try:
            await self.strava.revoke(self._decrypt(connection).refresh)
        except TokensRevoked:
            return

    async def access_token(self, connection: StravaConnection, *, stale: str | None = None) -> str:
        """Return an access token that is valid for some minutes.

        `stale` is a token that Strava has just rejected. A link that has to be made again raises
        TokensRevoked without a call to Strava.
        """
        for _ in range(MAX_ATTEMPTS):
            if connection.needs_relink:
                raise TokensRevoked
            tokens = self._decrypt(connection)
            is_fresh = connection.expires_at - self.clock.seconds() > REFRESH_MARGIN_SECONDS
            if is_fresh and tokens.access != stale:
                return tokens.access
            refreshed = await self._refresh(connection, tokens)
            if refreshed is not None:
                return refreshed
            newer = await self.repository.connection(connection.user_id)
            if newer is None or newer.link_id != connection.link_id:
                raise TokensRevoked
            connection = newer
        raise Unavailable("The tokens are being refreshed concurrently", retry_after=5)

    async def is_rejected(self, connection: StravaConnection) -> bool:
        """Use the refresh token of a link and return whether Strava rejects it.

        Tokens that cannot be used are not rejected ones: only Strava's answer counts.
        """
        for _ in range(MAX_ATTEMPTS):
            try:
                if await self._refresh(connection, self._decrypt(connection)) is not None:
                    return False
            except TokensUnreadable:
                return False
            except TokensRevoked:
                return True
            newer = await self.repository.connection(connection.user_id)
            if newer is None or newer.link_id != connection.link_id:
                return False
            connection = newer
        raise Unavailable("The tokens are being refreshed concurrently", retry_after=5)

    async def _refresh(self, connection: StravaConnection, tokens: StravaTokens) -> str | None:
        """Refresh and store the tokens; return the access token.

        None means that another refresh was faster and the connection must be read again. One
        refresh at a time: Strava rejects a token that another refresh has just rotated.
        """
        now = self.clock.seconds()
        if not await self.repository.claim_refresh(connection, now, now + REFRESH_LEASE_SECONDS):
            return None
        try:
            unsaved = self.unsaved.get(connection.encrypted_tokens)
            newer = unsaved or await self.strava.refresh(tokens.refresh)
        except TokensRevoked:
            current = await self.repository.connection(connection.user_id)
            if current is not None and _has_other_tokens(current, connection):
                return None  # linked again, or refreshed by another instance after the lease
            await self._require_relink(connection)
            raise
        except TallyError:
            await self.repository.claim_refresh(connection, now + REFRESH_LEASE_SECONDS, 0)
            raise
        return newer.access if await self._store(connection, newer) else None

    async def _store(self, connection: StravaConnection, tokens: StravaTokens) -> bool:
        """Store refreshed tokens, also if the store fails for a moment.

        If it fails for longer, the next refresh stores them instead of asking Strava.
        """
        encrypted = self._encrypt(connection.user_id, connection.athlete_id, tokens)
        if len(self.unsaved) >= MAX_UNSAVED:
            del self.unsaved[next(iter(self.unsaved))]
        self.unsaved[connection.encrypted_tokens] = tokens
        is_stored = await STORE_TOKENS.call(
            lambda: self.repository.store_tokens(connection, encrypted, tokens.expires_at),
            self.clock,
        )
        self.unsaved.pop(connection.encrypted_tokens, None)
        return is_stored

    async def _require_relink(self, connection: StravaConnection) -> None:
        if await self.repository.require_relink(connection):
            facts: dict[str, str | int] = {"athlete": connection.athlete_id}
            self.audit.record("STRAVA_RELINK_REQUIRED", connection.user_id, facts)
            _log.warning("Strava rejected a refresh token", action="strava_relink_required")

    async def _revoke(self, connection: StravaConnection) -> None:
        """Revoke the authorization at Strava, on a best-effort basis."""
        try:
            await self.revoke(connection)
        except (Unavailable, RateLimited) as error:
            _log.warning("Strava revocation failed", action="strava_revoke_failed", error=error)

    def _encrypt(self, user_id: str, athlete_id: int, tokens: StravaTokens) -> str:
        return encrypt_tokens(self.encryptor, user_id, athlete_id, tokens)

    def _decrypt(self, connection: StravaConnection) -> StravaTokens:
        """Decrypt the tokens. After a change of the secret, they count as revoked."""
        try:
            text = self.encryptor.decrypt(
                connection.encrypted_tokens, f"{connection.user_id} {connection.athlete_id}"
            )
        except DecryptionError as error:
            raise TokensUnreadable from error
        access, refresh, expires_at = msgspec.json.decode(text, type=tuple[str, str, int])
        return StravaTokens(access, refresh, expires_at)


def _has_other_tokens(current: StravaConnection, read: StravaConnection) -> bool:
    return (current.link_id, current.version) != (read.link_id, read.version)


def encrypt_tokens(
    encryptor: Encryptor, user_id: str, athlete_id: int, tokens: StravaTokens
) -> str:
    """Encrypt tokens for storage, bound to one user and athlete."""
    text = msgspec.json.encode([tokens.access, tokens.refresh, tokens.expires_at]).decode()
    return encryptor.encrypt(text, f"{user_id} {athlete_id}")
