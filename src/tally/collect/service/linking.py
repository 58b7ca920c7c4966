"""Links to Strava: made with consent, kept fresh, and undone.

One athlete belongs to one person. Tokens are sealed before they are stored; when they are about to
expire they are refreshed, and of several refreshes at once the newest tokens stay.
"""

import secrets
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from tally.collect.model import STATE_SECONDS, Connection, PendingState, Session, Tokens
from tally.collect.repository.main import CollectRepository
from tally.collect.repository.sessions import SessionRepository
from tally.collect.service.audit import AuditTrail
from tally.collect.service.ports import Revoked, Strava
from tally.collect.service.sign_in import check_return_path, use_state
from tally.errors import Conflict, Forbidden, NotFound, RateLimited, Unauthenticated, Unavailable
from tally.kit import logs
from tally.kit.clock import Clock, rfc3339
from tally.kit.encryption import DecryptionError, Encryptor

STRAVA: Final = "strava"
FRESH_SECONDS: Final = 300
ATTEMPTS: Final = 3
ACTIVITY_SCOPES: Final = frozenset({"activity:read", "activity:read_all"})

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class Linking:
    """Who is linked to which athlete."""

    main: CollectRepository
    sessions: SessionRepository
    strava: Strava
    sealer: Encryptor
    audit: AuditTrail
    clock: Clock

    async def begin(self, session: Session, redirect_uri: str, return_to: str) -> str:
        """Where to send the browser for consent."""
        state, path = secrets.token_urlsafe(32), check_return_path(return_to)
        url = self.strava.authorize_url(redirect_uri, state)
        expires = self.clock.seconds() + STATE_SECONDS
        await self.sessions.begin(PendingState(state, STRAVA, session.session_hash, expires, path))
        return url

    async def finish(
        self, session: Session, *, state: str, code: str, scope: str, error: str
    ) -> str:
        """Link, if consent was given for activities and nobody else has the athlete; the path to go to afterwards."""
        pending = await use_state(
            self.sessions, state, STRAVA, session.session_hash, self.clock.seconds()
        )
        if error or not code:
            raise Forbidden("Strava was not allowed to share anything", code="strava_access_denied")
        granted = {part.strip() for part in scope.replace(" ", ",").split(",")}
        if not granted & ACTIVITY_SCOPES:
            raise Forbidden(
                "Without access to activities there is nothing to collect",
                code="activity_access_missing",
            )
        grant = await self.strava.exchange(code)
        tokens = self._seal(session.user_id, grant.athlete_id, grant.tokens)
        now = rfc3339(self.clock.now())
        told_scope = ",".join(sorted(granted))[:200]
        wanted = Connection(
            session.user_id, grant.athlete_id, tokens, grant.tokens.expires_at, told_scope, now
        )
        await self._link(wanted)
        return pending.return_to

    async def _link(self, wanted: Connection) -> None:
        for _ in range(ATTEMPTS):
            former = await self.main.connection(wanted.user_id)
            linked = replace(wanted, version=1 if former is None else former.version + 1)
            if await self.main.link(linked, former):
                facts: dict[str, str | int] = {"athlete": linked.athlete_id}
                self.audit.record("STRAVA_CONNECTED", linked.user_id, facts)
                if former is not None and former.athlete_id != linked.athlete_id:
                    await self._revoke(former)
                return
            await self._explain(wanted)
        raise Unavailable("The link is being changed elsewhere; try again", retry_after=1)

    async def _explain(self, wanted: Connection) -> None:
        """Raise what stood in the way, if it will stand there the next time too."""
        owner = await self.main.owner(wanted.athlete_id)
        if owner is not None and owner != wanted.user_id:
            facts: dict[str, str | int] = {"athlete": wanted.athlete_id}
            self.audit.record("STRAVA_CONNECT_REFUSED", wanted.user_id, facts)
            raise Conflict(
                "This athlete is linked to another account", code="athlete_already_connected"
            )
        if await self.main.profile(wanted.user_id) is None:
            raise Unauthenticated("This account is being deleted", code="invalid_session")

    async def status(self, user_id: str) -> Connection | None:
        return await self.main.connection(user_id)

    async def disconnect(self, user_id: str) -> None:
        """Revoke at Strava and forget; NotFound where there is no link."""
        connection = await self.main.connection(user_id)
        if connection is None:
            raise NotFound("Strava is not linked", code="strava_not_connected")
        await self._revoke(connection)
        await self.forget(user_id, connection.athlete_id)
        facts: dict[str, str | int] = {"athlete": connection.athlete_id}
        self.audit.record("STRAVA_DISCONNECTED", user_id, facts)

    async def forget(self, user_id: str, athlete_id: int) -> None:
        """Leave no connection of this person to this athlete, and no claim on the athlete; safe to run again."""
        if not await self.main.unlink(user_id, athlete_id):
            # The athlete is another's, or another athlete has been linked: neither is ours to
            # touch.
            await self.main.delete_connection(user_id, athlete_id)

    async def access_token(self, connection: Connection, *, stale: str | None = None) -> str:
        """A token that works for some minutes.

        `stale` is one that Strava has just refused, so that it is not used again.
        """
        for _ in range(ATTEMPTS):
            tokens = self._open(connection)
            is_fresh = connection.expires_at - self.clock.seconds() > FRESH_SECONDS
            if is_fresh and tokens.access != stale:
                return tokens.access
            refreshed = await self._refresh(connection, tokens)
            if refreshed is not None:
                return refreshed
            newer = await self.main.connection(connection.user_id)
            if newer is None or newer.athlete_id != connection.athlete_id:
                raise Revoked
            connection = newer
        raise Unavailable("The tokens are being refreshed elsewhere", retry_after=5)

    async def _refresh(self, connection: Connection, tokens: Tokens) -> str | None:
        """The new access token, now stored; None where another refresh was first, and the connection is to be read again."""
        try:
            newer = await self.strava.refresh(tokens.refresh)
        except Revoked:
            current = await self.main.connection(connection.user_id)
            if current is None or current.version == connection.version:
                raise
            return None
        sealed = self._seal(connection.user_id, connection.athlete_id, newer)
        return (
            newer.access
            if await self.main.keep_tokens(connection, sealed, newer.expires_at)
            else None
        )

    async def _revoke(self, connection: Connection) -> None:
        """Best effort: whether or not Strava hears of it, nothing of it stays here."""
        try:
            await self.strava.deauthorize(await self.access_token(connection))
        except (Revoked, Unavailable, RateLimited) as error:
            _log.warning(
                "Strava was not told of the disconnect", action="strava_deauthorize", error=error
            )

    def _seal(self, user_id: str, athlete_id: int, tokens: Tokens) -> str:
        return sealed_tokens(self.sealer, user_id, athlete_id, tokens)

    def _open(self, connection: Connection) -> Tokens:
        """The tokens in the clear.

        What cannot be opened, since the key was changed, is as good as revoked.
        """
        try:
            text = self.sealer.decrypt(
                connection.sealed, f"{connection.user_id} {connection.athlete_id}"
            )
        except DecryptionError as error:
            raise Revoked from error
        access, refresh, expires_at = msgspec.json.decode(text, type=tuple[str, str, int])
        return Tokens(access, refresh, expires_at)


def sealed_tokens(sealer: Encryptor, user_id: str, athlete_id: int, tokens: Tokens) -> str:
    """The tokens as they are stored: of no use without the key, nor on anybody else's connection."""
    text = msgspec.json.encode([tokens.access, tokens.refresh, tokens.expires_at]).decode()
    return sealer.encrypt(text, f"{user_id} {athlete_id}")
