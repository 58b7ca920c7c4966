"""The gateway to the OIDC issuer: Cognito's Hosted UI, or any other that publishes a discovery document.

Sign-in is the authorization-code flow with PKCE. The ID token is believed only if it is signed by
the issuer's key, for us, in time, for this sign-in (nonce), and is an ID token at all.
"""

import hmac
from typing import Final
from urllib.parse import urlencode

import msgspec
from pyreqwest.client import Client

from tally.collect.model import Identity, check_user_id
from tally.errors import Invalid, Unauthenticated, Unavailable
from tally.kit.auth import KeySet, TokenVerifier, http_key_fetcher
from tally.kit.clock import Clock
from tally.kit.fetch import HttpResponse, fetch
from tally.settings import Secret

WHO: Final = "The issuer"
SCOPE: Final = "openid email"
KNOWN_SECONDS: Final = 3600.0
DELETE_TARGET: Final = "AWSCognitoIdentityProviderService.DeleteUser"


class _Discovery(msgspec.Struct, frozen=True):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str


class _Tokens(msgspec.Struct):
    id_token: str | None = None
    access_token: str | None = None
    refresh_token: str | None = None


class OidcIssuer:
    """One issuer, for one client of ours there."""

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
        self._known: tuple[float, _Discovery, TokenVerifier] | None = None

    async def authorize_url(self, redirect_uri: str, state: str, nonce: str, challenge: str) -> str:
        discovered, _ = await self._discover()
        asked = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": redirect_uri,
            "scope": SCOPE,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return f"{discovered.authorization_endpoint}?{urlencode(asked)}"

    async def identify(self, code: str, redirect_uri: str, nonce: str, verifier: str) -> Identity:
        """Who has signed in; Unauthenticated where the code or the ID token does not hold."""
        discovered, tokens_of = await self._discover()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        told = await self._token(discovered, form)
        if told.id_token is None:
            raise _refused("The issuer sent no ID token")
        claims = await tokens_of.verify(told.id_token)
        given = claims.get("nonce")
        if not isinstance(given, str) or not hmac.compare_digest(given.encode(), nonce.encode()):
            raise _refused("The ID token was made for another sign-in")
        if claims.get("token_use", "id") != "id" or "aud" not in claims:
            raise _refused("The token is no ID token")
        try:
            user_id = check_user_id(claims["sub"])
        except Invalid as error:
            raise _refused(error.message) from error
        email = claims.get("email")
        refresh = told.refresh_token if self._delete_url else None
        return Identity(
            user_id, email if isinstance(email, str) and len(email) <= 320 else None, refresh
        )

    async def delete_identity(self, refresh_token: str) -> None:
        """Delete the identity that the token came with; one that is gone already is no error."""
        if self._delete_url is None:
            return
        discovered, _ = await self._discover()
        try:
            told = await self._token(
                discovered, {"grant_type": "refresh_token", "refresh_token": refresh_token}
            )
        except Unauthenticated:
            return  # the issuer knows neither the token nor, by now, the person
        headers = {"X-Amz-Target": DELETE_TARGET, "Content-Type": "application/x-amz-json-1.1"}
        body = msgspec.json.encode({"AccessToken": told.access_token})
        answer = await fetch(
            self._client.post(self._delete_url).headers(headers).body_bytes(body), WHO
        )
        if answer.status >= 500 or answer.status == 429:
            raise Unavailable("The issuer could not delete the identity")

    async def _token(self, discovered: _Discovery, form: dict[str, str]) -> _Tokens:
        request = self._client.post(discovered.token_endpoint)
        if self._client_secret is not None:
            request = request.basic_auth(self._client_id, self._client_secret.reveal())
        answer = await fetch(request.form({"client_id": self._client_id, **form}), WHO)
        if answer.status in {400, 401, 403}:
            raise _refused("The issuer does not accept the code")
        return _expect(answer).decode(_Tokens, WHO)

    async def _discover(self) -> tuple[_Discovery, TokenVerifier]:
        """The issuer's endpoints and keys, read again once an hour; what is known serves while it cannot be reached."""
        if self._issuer is None or not self._client_id:
            raise Unavailable("Sign-in is not set up here", code="login_not_set_up")
        now = self._clock.monotonic()
        if self._known is not None and now < self._known[0]:
            return self._known[1:]
        try:
            discovered = await self._read(self._issuer)
        except Unavailable:
            if self._known is None:
                raise
            return self._known[1:]
        verifier = self._verifier(discovered)
        self._known = (now + KNOWN_SECONDS, discovered, verifier)
        return discovered, verifier

    async def _read(self, issuer: str) -> _Discovery:
        answer = await fetch(self._client.get(f"{issuer}/.well-known/openid-configuration"), WHO)
        discovered = _expect(answer).decode(_Discovery, WHO)
        if discovered.issuer.rstrip("/") != issuer:
            raise Unavailable("The issuer calls itself by another name")
        return discovered

    def _verifier(self, discovered: _Discovery) -> TokenVerifier:
        if self._known is not None and self._known[1] == discovered:
            return self._known[2]
        keys = KeySet(http_key_fetcher(self._client, discovered.jwks_uri), self._clock)
        return TokenVerifier(keys, self._clock, issuer=discovered.issuer, audience=self._client_id)


def _refused(message: str) -> Unauthenticated:
    return Unauthenticated(message, code="login_refused")


def _expect(answer: HttpResponse) -> HttpResponse:
    if answer.status != 200:
        raise Unavailable(f"The issuer answered with {answer.status}")
    return answer
