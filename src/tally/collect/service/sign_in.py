"""Sign-in and sessions: the code flow against an OIDC issuer, and cookies that stand for who has gone through it.

The id of a session is random, and stored as its hash. It changes with every sign-in, so that nobody
can be given one in advance. A sign-in that was begun is bound to the browser that began it by a
cookie of its own.
"""

import base64
import hashlib
import secrets
from dataclasses import dataclass
from typing import Final

from tally.collect.model import SESSION_SECONDS, STATE_SECONDS, PendingState, Profile, Session
from tally.collect.repository.main import CollectRepository
from tally.collect.repository.sessions import SessionRepository
from tally.collect.service.audit import AuditTrail
from tally.collect.service.ports import Issuer
from tally.errors import Invalid, Unauthenticated
from tally.kit import logs
from tally.kit.clock import Clock, rfc3339
from tally.kit.encryption import DecryptionError, Encryptor

LOGIN: Final = "login"
FREE: Final = "free"
MAX_STATE: Final = 128
MAX_PATH: Final = 512


@dataclass(frozen=True, slots=True)
class Begun:
    """Where to send the browser, and the secret that it has to bring back."""

    url: str
    browser: str


@dataclass(frozen=True, slots=True)
class SignedIn:
    session_id: str
    user_id: str
    return_to: str


@dataclass(frozen=True, slots=True)
class SignIn:
    """Who is who, and since when."""

    sessions: SessionRepository
    main: CollectRepository
    issuer: Issuer
    sealer: Encryptor
    audit: AuditTrail
    clock: Clock

    async def begin(self, redirect_uri: str, return_to: str) -> Begun:
        state, nonce, verifier, browser = (secrets.token_urlsafe(32) for _ in range(4))
        path = check_return_path(return_to)
        challenge = (
            base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest())
            .rstrip(b"=")
            .decode()
        )
        url = await self.issuer.authorize_url(redirect_uri, state, nonce, challenge)
        sealed = self.sealer.encrypt(f"{nonce} {verifier}", state)
        expires = self.clock.seconds() + STATE_SECONDS
        await self.sessions.begin(
            PendingState(state, LOGIN, hashed(browser), expires, path, sealed)
        )
        return Begun(url, browser)

    async def finish(
        self,
        *,
        state: str,
        code: str,
        browser: str | None,
        redirect_uri: str,
        former: str | None,
        ip: str | None,
    ) -> SignedIn:
        """A new session for whoever the issuer says it is; the one that the browser had before is over."""
        pending = await use_state(
            self.sessions, state, LOGIN, hashed(browser or ""), self.clock.seconds()
        )
        nonce, verifier = self._open(pending)
        try:
            identity = await self.issuer.identify(code, redirect_uri, nonce, verifier)
        except Unauthenticated as error:
            self.audit.record("AUTH_LOGIN_REFUSED", None, {"why": error.code}, ip=ip)
            raise
        now = rfc3339(self.clock.now())
        is_new = await self.main.create_profile(
            Profile(identity.user_id, identity.email, FREE, now)
        )
        session_id = secrets.token_urlsafe(32)
        kept = (
            None
            if identity.refresh_token is None
            else self.sealer.encrypt(identity.refresh_token, identity.user_id)
        )
        expires = self.clock.seconds() + SESSION_SECONDS
        await self.sessions.create(
            Session(hashed(session_id), identity.user_id, now, expires, kept)
        )
        if former:
            await self.sessions.delete(hashed(former))
        logs.bind(user_id=identity.user_id)
        self.audit.record("AUTH_REGISTERED" if is_new else "AUTH_LOGIN", identity.user_id, ip=ip)
        return SignedIn(session_id, identity.user_id, pending.return_to)

    def _open(self, pending: PendingState) -> tuple[str, str]:
        try:
            nonce, _, verifier = self.sealer.decrypt(pending.sealed or "", pending.state).partition(
                " "
            )
        except DecryptionError as error:
            raise _not_begun_here() from error
        return nonce, verifier

    async def resolve(self, session_id: str | None) -> Session:
        """The session behind a cookie, or Unauthenticated."""
        found = None
        if session_id and len(session_id) <= MAX_STATE:
            found = await self.sessions.find(hashed(session_id), self.clock.seconds())
        if found is None:
            raise Unauthenticated("Sign in first", code="invalid_session")
        logs.bind(user_id=found.user_id)
        return found

    async def end(self, session: Session, ip: str | None) -> None:
        await self.sessions.delete(session.session_hash)
        self.audit.record("AUTH_LOGOUT", session.user_id, ip=ip)


async def use_state(
    sessions: SessionRepository, state: str, purpose: str, bound_to: str, now: int
) -> PendingState:
    """The state that was begun here, used up with this; or Invalid."""
    is_plausible = 0 < len(state) <= MAX_STATE and state.isascii()
    pending = await sessions.use(state, purpose, bound_to, now) if is_plausible else None
    if pending is None:
        raise _not_begun_here()
    return pending


def _not_begun_here() -> Invalid:
    return Invalid(
        "This was not begun in this browser, or too long ago; begin again",
        code="invalid_state",
        field="state",
    )


def hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def check_return_path(path: str) -> str:
    """A path of this very site; Invalid for whatever a browser could take for another one."""
    is_local = path.startswith("/") and not path.startswith(("//", "/\\"))
    is_plain = path.isascii() and path.isprintable() and "\\" not in path and " " not in path
    if len(path) > MAX_PATH or not is_local or not is_plain:
        raise Invalid(
            "return_to must be a path of this site", code="invalid_field", field="return_to"
        )
    return path
