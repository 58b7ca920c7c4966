"""The gateway to an OIDC provider: Cognito, or any other with a discovery document.

Sign-in uses the authorization-code flow with PKCE. An ID token is accepted only with a valid
signature, issuer, audience, lifetime and nonce, and only if it is an ID token.
"""

import hmac
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlencode

import msgspec
from pyreqwest.client import Client

from tally.collect.model.records import OidcIdentity
from tally.collect.model.validation import check_user_id
from tally.errors import Invalid, Unauthenticated, Unavailable
from tally.kit.auth import KeySet, TokenVerifier, http_key_fetcher
from tally.kit.clock import Clock
from tally.kit.fetch import HttpResponse, fetch
from tally.settings import Secret

SERVICE: Final = "The OIDC provider"
SCOPE: Final = "openid email"
# Cognito deletes a user only with an access token that has this scope.
DELETE_SCOPE: Final = "aws.cognito.signin.user.admin"
DISCOVERY_CACHE_SECONDS: Final = 3600.0
MAX_EMAIL_LENGTH: Final = 320
DELETE_TARGET: Final = "AWSCognitoIdentityProviderService.DeleteUser"


class _Discovery(msgspec.Struct, frozen=True):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str


class _TokenResponse(msgspec.Struct):
    id_token: str | None = None
    access_token: str | None = None
    refresh_token: str | None = None


class _OAuthErrorBody(msgspec.Struct):
    error: str | None = None


class OidcGateway:
    """A client of one OIDC provider."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        issuer: str | None,
        client_id: str,
        client_secret: Secret | None = None,
        delete_url: str | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._issuer = issuer
        self._client_id = client_id
        self._client_secret = client_secret
        self._delete_url = delete_url
        self._cached: tuple[float, _Discovery, TokenVerifier] | None = None

    async def authorize_url(self, redirect_uri: str, state: str, nonce: str, challenge: str) -> str:
        discovery, _ = await self._discover()
        parameters = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": redirect_uri,
            "scope": SCOPE if self._delete_url is None else f"{SCOPE} {DELETE_SCOPE}",
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return f"{discovery.authorization_endpoint}?{urlencode(parameters)}"

    async def identify(
        self, code: str, redirect_uri: str, nonce: str, verifier: str
    ) -> OidcIdentity:
        """Return the signed-in user; Unauthenticated if the code or the ID token is invalid."""
        discovery, token_verifier = await self._discover()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        tokens = await self._request_tokens(discovery, form)
        if tokens.id_token is None:
            raise _rejected("The OIDC provider sent no ID token")
        claims = await token_verifier.verify(tokens.id_token)
        claimed = claims.get("nonce")
        if not isinstance(claimed, str) or not hmac.compare_digest(
            claimed.encode(), nonce.encode()
        ):
            raise _rejected("The ID token has an unexpected nonce")
        if claims.get("token_use", "id") != "id" or "aud" not in claims:
            raise _rejected("The token is not an ID token")
        try:
            user_id = check_user_id(claims["sub"])
        except Invalid as error:
            raise _rejected(error.message) from error
        email = claims.get("email")
        is_email = isinstance(email, str) and len(email) <= MAX_EMAIL_LENGTH
        refresh_token = tokens.refresh_token if self._delete_url else None
        return OidcIdentity(user_id, email if is_email else None, refresh_token)

    async def delete_identity(
        self, refresh_token: str, keep_token: Callable[[str], Awaitable[None]]
    ) -> None:
        """Delete the identity that the token belongs to. Idempotent.

        A provider may replace a refresh token when it is used. `keep_token` stores the new one
        before the deletion, which may fail: the next attempt needs it.
        """
        if self._delete_url is None:
            return
        discovery, _ = await self._discover()
        grant = {"grant_type": "refresh_token", "refresh_token": refresh_token}
        response = await self._send_grant(discovery, grant)
        if response.status == 400 and _oauth_error(response) == "invalid_grant":
            return  # the token was revoked, or the identity is already deleted
        tokens = _require_ok(response).decode(_TokenResponse, SERVICE)
        if tokens.refresh_token is not None:
            await keep_token(tokens.refresh_token)
        headers = {"X-Amz-Target": DELETE_TARGET, "Content-Type": "application/x-amz-json-1.1"}
        body = msgspec.json.encode({"AccessToken": tokens.access_token})
        # If the identity has just been deleted, the next attempt gets `invalid_grant`.
        _require_ok(
            await fetch(
                self._client.post(self._delete_url).headers(headers).body_bytes(body), SERVICE
            )
        )

    async def _request_tokens(self, discovery: _Discovery, grant: dict[str, str]) -> _TokenResponse:
        response = await self._send_grant(discovery, grant)
        if response.status in {400, 401, 403}:
            raise _rejected("The OIDC provider rejected the code")
        return _require_ok(response).decode(_TokenResponse, SERVICE)

    async def _send_grant(self, discovery: _Discovery, grant: dict[str, str]) -> HttpResponse:
        request = self._client.post(discovery.token_endpoint)
        if self._client_secret is not None:
            request = request.basic_auth(self._client_id, self._client_secret.reveal())
        return await fetch(request.form({"client_id": self._client_id, **grant}), SERVICE)

    async def _discover(self) -> tuple[_Discovery, TokenVerifier]:
        """Return the endpoints and the token verifier, cached for an hour.

        While the provider is unavailable, the stale cache is used.
        """
        if self._issuer is None or not self._client_id:
            raise Unavailable("Sign-in is not configured", code="login_not_set_up")
        now = self._clock.monotonic()
        if self._cached is not None and now < self._cached[0]:
            return self._cached[1:]
        try:
            discovery = await self._read_discovery(self._issuer)
        except Unavailable:
            if self._cached is None:
                raise
            return self._cached[1:]
        verifier = self._verifier(discovery)
        self._cached = (now + DISCOVERY_CACHE_SECONDS, discovery, verifier)
        return discovery, verifier

    async def _read_discovery(self, issuer: str) -> _Discovery:
        url = f"{issuer}/.well-known/openid-configuration"
        response = await fetch(self._client.get(url), SERVICE)
        discovery = _require_ok(response).decode(_Discovery, SERVICE)
        if discovery.issuer.rstrip("/") != issuer:
            raise Unavailable("The discovery document names another issuer")
        return discovery

    def _verifier(self, discovery: _Discovery) -> TokenVerifier:
        if self._cached is not None and self._cached[1] == discovery:
            return self._cached[2]
        keys = KeySet(http_key_fetcher(self._client, discovery.jwks_uri), self._clock)
        return TokenVerifier(keys, self._clock, issuer=discovery.issuer, audience=self._client_id)


def _rejected(message: str) -> Unauthenticated:
    return Unauthenticated(message, code="login_refused")


def _oauth_error(response: HttpResponse) -> str | None:
    return response.decode(_OAuthErrorBody, SERVICE).error


def _require_ok(response: HttpResponse) -> HttpResponse:
    if response.status != 200:
        raise Unavailable(f"The OIDC provider responded with status {response.status}")
    return response
