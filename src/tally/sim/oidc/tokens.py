"""Where applications go without a browser: `/oauth2/token`, `/oauth2/revoke` and `/oauth2/userInfo`."""

import base64
import binascii
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import jwt
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tally.sim.oidc.grants import OAuthClient, OAuthError
from tally.sim.oidc.pool import UserPool
from tally.sim.request_parsing import read_form

NO_STORE: Final = {"Cache-Control": "no-store", "Pragma": "no-cache"}


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    pool: UserPool

    def routes(self) -> list[Route]:
        return [
            Route("/oauth2/token", self.token, methods=["POST"]),
            Route("/oauth2/revoke", self.revoke, methods=["POST"]),
            Route("/oauth2/userInfo", self.user_info),
        ]

    async def token(self, request: Request) -> Response:
        try:
            sent = await read_form(request)
            return JSONResponse(self._granted(self._client(request, sent), sent), headers=NO_STORE)
        except OAuthError as error:
            return _refused(error)

    async def revoke(self, request: Request) -> Response:
        try:
            sent = await read_form(request)
            self._client(request, sent)
        except OAuthError as error:
            return _refused(error)
        self.pool.grants.revoke(sent.get("token", ""))
        return Response(status_code=200)

    async def user_info(self, request: Request) -> Response:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        person = (
            self.pool.users.find(verify_access_token(self.pool, token) or "")
            if scheme.lower() == "bearer"
            else None
        )
        if person is None:
            challenge = {
                "WWW-Authenticate": 'error="invalid_token", error_description="Access token is not valid"'
            }
            return JSONResponse({"error": "invalid_token"}, 401, challenge)
        about = {
            "sub": person.sub,
            "email": person.email,
            "email_verified": "true",
            "name": person.name,
        }
        return JSONResponse(about | {"username": person.sub})

    def _granted(self, client: OAuthClient, sent: Mapping[str, str]) -> dict[str, Any]:
        grants = self.pool.grants
        kind = sent.get("grant_type")
        if kind == "authorization_code":
            code, redirect_uri, verifier = (
                sent.get(name) for name in ("code", "redirect_uri", "code_verifier")
            )
            authorization = grants.redeem(code or "", client.client_id, redirect_uri, verifier)
        elif kind == "refresh_token":
            authorization = grants.refresh(sent.get("refresh_token", ""), client.client_id)
        else:
            raise OAuthError("unsupported_grant_type")
        person = self.pool.users.find(authorization.sub)
        if person is None:
            raise OAuthError("invalid_grant")
        made = self.pool.tokens(person, authorization)
        # As with Cognito, a refresh brings no new refresh token.
        return made | (
            {"refresh_token": grants.issue_refresh_token(authorization)}
            if kind != "refresh_token"
            else {}
        )

    def _client(self, request: Request, sent: Mapping[str, str]) -> OAuthClient:
        """Which application asks, by HTTP Basic or in the form; one with a secret must know it."""
        client_id, secret = _basic(request) or (
            sent.get("client_id", ""),
            sent.get("client_secret"),
        )
        client = self.pool.clients.get(client_id)
        if client is None or sent.get("client_id", client_id) != client_id:
            raise OAuthError("invalid_client")
        if client.secret is not None and not hmac.compare_digest(
            (secret or "").encode(), client.secret.encode()
        ):
            raise OAuthError("invalid_client", "invalid_client_secret")
        return client


def verify_access_token(pool: UserPool, token: str) -> str | None:
    """Whose access token of this pool it is, if it holds."""
    try:
        key = pool.keys.find(jwt.get_unverified_header(token).get("kid", ""))
        if key is None:
            return None
        # The times are those of the simulator's clock.
        options: Any = {"verify_exp": False, "verify_iat": False}
        claims = jwt.decode(token, key.public_key(), ["RS256"], issuer=pool.issuer, options=options)
    except jwt.PyJWTError:
        return None
    is_good = claims.get("token_use") == "access" and claims["exp"] > pool.clock.seconds()
    return claims.get("sub") if is_good else None


def _refused(error: OAuthError) -> Response:
    told = {"error": error.error} | (
        {"error_description": error.description} if error.description else {}
    )
    return JSONResponse(told, 400, NO_STORE)


def _basic(request: Request) -> tuple[str, str] | None:
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, _, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise OAuthError("invalid_client") from error
    return name, secret
