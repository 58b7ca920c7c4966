"""Authorization codes and refresh tokens.

The rules are Cognito's: a code is valid once, for five minutes, for one client and one redirect
URI. If the request had a PKCE challenge, redeeming the code requires the verifier.
"""

import base64
import hashlib
import random
import uuid
from typing import Final

import msgspec

from tally.kit.clock import Clock

CODE_SECONDS: Final = 5 * 60
REFRESH_SECONDS: Final = 30 * 24 * 3600


class OAuthError(Exception):
    """An OAuth error response: `invalid_grant`, `invalid_client`, …"""

    def __init__(self, error: str, description: str | None = None) -> None:
        super().__init__(description or error)
        self.error = error
        self.description = description


class OAuthClient(msgspec.Struct, frozen=True):
    """A registered application.

    Without a secret it is a public client. Without URIs, any URI on this machine is allowed.
    """

    client_id: str
    secret: str | None = None
    redirect_uris: tuple[str, ...] | None = None
    logout_uris: tuple[str, ...] | None = None


class OidcAuthorization(msgspec.Struct, frozen=True):
    """A user's authorization of a client."""

    client_id: str
    sub: str
    scope: str
    redirect_uri: str
    auth_time: int
    nonce: str | None = None
    code_challenge: str | None = None


class GrantStore:
    """The valid codes and refresh tokens."""

    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng
        self._codes: dict[str, tuple[OidcAuthorization, int]] = {}
        self._refresh_tokens: dict[str, tuple[OidcAuthorization, int]] = {}
        # Whether a refresh token is valid once, as an option of Cognito; by default it is not.
        self.rotates_refresh_tokens = False

    def new_id(self) -> str:
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))

    def issue_code(self, authorization: OidcAuthorization) -> str:
        code = self.new_id()
        self._codes[code] = authorization, self._clock.seconds() + CODE_SECONDS
        return code

    def redeem(
        self, code: str, client_id: str, redirect_uri: str | None, verifier: str | None
    ) -> OidcAuthorization:
        """Exchange `code` for its authorization, once."""
        # Removed even if a check fails: an attacker gets one guess at the verifier.
        authorization, expires_at = self._codes.pop(code, (None, 0))
        if authorization is None or expires_at <= self._clock.seconds():
            raise OAuthError("invalid_grant")
        if (authorization.client_id, authorization.redirect_uri) != (client_id, redirect_uri):
            raise OAuthError("invalid_grant")
        if (
            authorization.code_challenge is not None
            and pkce_challenge(verifier or "") != authorization.code_challenge
        ):
            raise OAuthError("invalid_grant")
        return authorization

    def issue_refresh_token(self, authorization: OidcAuthorization) -> str:
        token = f"refresh.{self._rng.getrandbits(256):064x}"
        self._refresh_tokens[token] = authorization, self._clock.seconds() + REFRESH_SECONDS
        return token

    def refresh(self, token: str, client_id: str) -> OidcAuthorization:
        authorization, expires_at = self._refresh_tokens.get(token, (None, 0))
        if (
            authorization is None
            or authorization.client_id != client_id
            or expires_at <= self._clock.seconds()
        ):
            raise OAuthError("invalid_grant")
        if self.rotates_refresh_tokens:
            self.revoke(token)
        return authorization

    def revoke(self, token: str) -> None:
        self._refresh_tokens.pop(token, None)

    def revoke_user(self, sub: str) -> None:
        """Revoke all codes and refresh tokens of a user."""
        for grants in (self._codes, self._refresh_tokens):
            for key in [key for key, (grant, _) in grants.items() if grant.sub == sub]:
                del grants[key]


def pkce_challenge(verifier: str) -> str:
    """The S256 code challenge of a PKCE verifier."""
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
