"""Sign-in with the OIDC authorization-code flow, and browser sessions.

A session id is random and stored as a hash. Every sign-in creates a new id, which prevents session
fixation. A session is valid while its epoch equals that of the profile: a new epoch, and the
deletion of the profile, end all sessions of a user at once, whether or not their items still exist.
A cookie binds a sign-in in progress to the browser that started it.
"""

import base64
import hashlib
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tally.collect.model.records import (
    LAST_USE_SECONDS,
    SESSION_SECONDS,
    STATE_SECONDS,
    BrowserSession,
    OidcIdentity,
    PendingState,
    Profile,
)
from tally.collect.repository.main import CollectRepository
from tally.collect.repository.sessions import BrowserSessionRepository
from tally.collect.service.audit import AuditTrail
from tally.collect.service.ports import IdentityProvider
from tally.errors import Conflict, Invalid, Unauthenticated, Unavailable
from tally.kit import logs
from tally.kit.clock import Clock, rfc3339
from tally.kit.encryption import DecryptionError, Encryptor
from tally.kit.metrics import Metrics

LOGIN_PURPOSE: Final = "login"
FREE_PLAN: Final = "free"
DELETION_PENDING: Final = "account_deletion_pending"
MAX_STATE_LENGTH: Final = 128
MAX_PATH_LENGTH: Final = 512

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class LoginRedirect:
    """The URL of the provider, and the secret for the login cookie."""

    url: str
    browser_secret: str


@dataclass(frozen=True, slots=True)
class LoginResult:
    """The new session and the path to redirect to."""

    session_id: str
    user_id: str
    return_to: str


@dataclass(frozen=True, slots=True)
class SignInService:
    """Starts, finishes and resolves sign-ins."""

    sessions: BrowserSessionRepository
    repository: CollectRepository
    provider: IdentityProvider
    encryptor: Encryptor
    audit: AuditTrail
    clock: Clock
    metrics: Metrics

    async def begin(self, redirect_uri: str, return_to: str) -> LoginRedirect:
        state, nonce, verifier, browser_secret = (secrets.token_urlsafe(32) for _ in range(4))
        path = check_return_path(return_to)
        digest = hashlib.sha256(verifier.encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        url = await self.provider.authorize_url(redirect_uri, state, nonce, challenge)
        encrypted = self.encryptor.encrypt(f"{nonce} {verifier}", state)
        expires = self.clock.seconds() + STATE_SECONDS
        await self.sessions.begin(
            PendingState(
                state, LOGIN_PURPOSE, hash_secret(browser_secret), expires, path, encrypted
            )
        )
        return LoginRedirect(url, browser_secret)

    async def finish(
        self,
        *,
        state: str,
        code: str,
        browser_secret: str | None,
        redirect_uri: str,
        former_session_id: str | None,
        ip: str | None,
    ) -> LoginResult:
        """Create a session for the user whom the provider identifies; end the former one."""
        pending = await consume_state(
            self.sessions,
            state,
            LOGIN_PURPOSE,
            hash_secret(browser_secret or ""),
            self.clock.seconds(),
        )
        nonce, verifier = self._decrypt(pending)
        try:
            identity = await self.provider.identify(code, redirect_uri, nonce, verifier)
        except Unauthenticated as error:
            self.audit.record("AUTH_LOGIN_REFUSED", None, {"why": error.code}, ip=ip)
            self.metrics.failed_sign_ins.labels("collect", error.code).inc()
            _log.warning("Sign-in failed", action="sign_in_failed", reason=error.code)
            raise
        profile, is_new = await self._find_or_create_profile(identity, ip)
        session_id = await self._create_session(identity, profile.session_epoch)
        if former_session_id:
            await self.sessions.delete(hash_secret(former_session_id))
        logs.bind(user_id=identity.user_id)
        self.audit.record("AUTH_REGISTERED" if is_new else "AUTH_LOGIN", identity.user_id, ip=ip)
        return LoginResult(session_id, identity.user_id, pending.return_to)

    async def _find_or_create_profile(
        self, identity: OidcIdentity, ip: str | None
    ) -> tuple[Profile, bool]:
        """Return the profile and whether it is new; Conflict while the account is being deleted."""
        user_id = identity.user_id
        known = await self.repository.profile(user_id)
        if known is not None:
            return known, False
        now = rfc3339(self.clock.now())
        created = Profile(user_id, identity.email, FREE_PLAN, now, secrets.token_urlsafe(16))
        if await self.repository.create_profile(created):
            return created, True
        known = await self.repository.profile(user_id)  # a concurrent sign-in may have created it
        if known is not None:
            return known, False
        deletion = await self.repository.deletion(user_id)
        if deletion is None:
            raise Unavailable("The account has just been deleted; sign in again", retry_after=1)
        self.audit.record("AUTH_LOGIN_REFUSED", user_id, {"why": DELETION_PENDING}, ip=ip)
        raise Conflict(
            f"The deletion of this account, requested at {deletion.requested_at}, is not complete"
            " yet; sign in again later",
            code=DELETION_PENDING,
        )

    async def _create_session(self, identity: OidcIdentity, epoch: str) -> str:
        session_id = secrets.token_urlsafe(32)
        encrypted = (
            None
            if identity.refresh_token is None
            else self.encryptor.encrypt(identity.refresh_token, identity.user_id)
        )
        now = self.clock.seconds()
        await self.sessions.create(
            BrowserSession(
                hash_secret(session_id),
                identity.user_id,
                rfc3339(self.clock.now()),
                now + SESSION_SECONDS,
                encrypted,
                epoch,
                now,
            )
        )
        return session_id

    def _decrypt(self, pending: PendingState) -> tuple[str, str]:
        try:
            text = self.encryptor.decrypt(pending.encrypted_secrets or "", pending.state)
        except DecryptionError as error:
            raise _invalid_state() from error
        nonce, _, verifier = text.partition(" ")
        return nonce, verifier

    async def resolve(self, session_id: str | None) -> BrowserSession:
        """Return the session for a cookie, or raise Unauthenticated."""
        found = None
        if session_id and len(session_id) <= MAX_STATE_LENGTH:
            found = await self.sessions.find(hash_secret(session_id), self.clock.seconds())
        if found is None or await self.repository.session_epoch(found.user_id) != found.epoch:
            raise Unauthenticated("Not signed in", code="invalid_session")
        logs.bind(user_id=found.user_id)
        await self._record_use(found)
        return found

    async def _record_use(self, session: BrowserSession) -> None:
        """Record the use of a session for its owner, at most once an hour."""
        now = self.clock.seconds()
        if session.last_used_at is None or now - session.last_used_at >= LAST_USE_SECONDS:
            with suppress(Unavailable):  # reading must work while the store rejects writes
                await self.sessions.record_use(session.session_hash, now)

    async def find_active(self, session_hashes: Sequence[str]) -> set[str]:
        """Return those of the sessions, by hash, that have neither ended nor expired."""
        found = await self.sessions.find_unexpired(session_hashes, self.clock.seconds())
        epochs = await self.repository.session_epochs({session.user_id for session in found})
        return {
            session.session_hash
            for session in found
            if epochs.get(session.user_id) == session.epoch
        }

    async def end(self, session: BrowserSession, ip: str | None) -> None:
        await self.sessions.delete(session.session_hash)
        self.audit.record("AUTH_LOGOUT", session.user_id, ip=ip)


async def consume_state(
    sessions: BrowserSessionRepository, state: str, purpose: str, bound_to: str, now: int
) -> PendingState:
    """Return and delete a pending state, or raise Invalid."""
    is_plausible = 0 < len(state) <= MAX_STATE_LENGTH and state.isascii()
    pending = await sessions.use(state, purpose, bound_to, now) if is_plausible else None
    if pending is None:
        raise _invalid_state()
    return pending


def _invalid_state() -> Invalid:
    return Invalid(
        "state is expired or belongs to another browser; start again",
        code="invalid_state",
        field="state",
    )


def hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def check_return_path(path: str) -> str:
    """Require a path of this site, which prevents open redirects."""
    is_local = path.startswith("/") and not path.startswith(("//", "/\\"))
    is_plain = path.isascii() and path.isprintable() and "\\" not in path and " " not in path
    if len(path) > MAX_PATH_LENGTH or not is_local or not is_plain:
        raise Invalid(
            f"return_to must be a path of this site with at most {MAX_PATH_LENGTH} characters",
            code="invalid_field",
            field="return_to",
        )
    return path
