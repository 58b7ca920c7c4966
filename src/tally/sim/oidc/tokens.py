"""The OAuth endpoints for applications: token, revocation and user info."""

import base64
import binascii
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import jwt
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tally.sim.oidc.grants import OAuthClient, OAuthError
from tally.sim.oidc.pool import UserPool
from tally.sim.request_parsing import read_bearer_token, read_form

NO_STORE: Final = {"Cache-Control": "no-store", "Pragma": "no-cache"}


class AccessClaims(NamedTuple):
    """Whose access token it is, and what it allows."""

    subject: str
    scopes: Sequence[str]


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """The routes `/oauth2/token`, `/oauth2/revoke` and `/oauth2/userInfo`."""

    pool: UserPool

    def routes(self) -> list[Route]:
        return [
            Route("/oauth2/token", self.token, methods=["POST"]),
            Route("/oauth2/revoke", self.revoke, methods=["POST"]),
            Route("/oauth2/userInfo", self.user_info),
        ]

    async def token(self, request: Request) -> Response:
        try:
            form = await read_form(request)
            return JSONResponse(
                self._issue_tokens(self._client(request, form), form), headers=NO_STORE
            )
        except OAuthError as error:
            return _error_response(error)

    async def revoke(self, request: Request) -> Response:
        try:
            form = await read_form(request)
            self._client(request, form)
        except OAuthError as error:
            return _error_response(error)
        self.pool.grants.revoke(form.get("token", ""))
        return Response(status_code=200)

    async def user_info(self, request: Request) -> Response:
        claims = verify_access_token(self.pool, read_bearer_token(request))
        user = None if claims is None else self.pool.users.find(claims.subject)
        if user is None:
            description = "Access token is not valid"
            challenge = {
                "WWW-Authenticate": f'error="invalid_token", error_description="{description}"'
            }
            return JSONResponse({"error": "invalid_token"}, 401, challenge)
        profile = {
            "sub": user.sub,
            "email": user.email,
            "email_verified": "true",
            "name": user.name,
        }
        return JSONResponse(profile | {"username": user.sub})

    def _issue_tokens(self, client: OAuthClient, form: Mapping[str, str]) -> dict[str, Any]:
        grants = self.pool.grants
        grant_type = form.get("grant_type")
        if grant_type == "authorization_code":
            code, redirect_uri, verifier = (
                form.get(name) for name in ("code", "redirect_uri", "code_verifier")
            )
            authorization = grants.redeem(code or "", client.client_id, redirect_uri, verifier)
        elif grant_type == "refresh_token":
            authorization = grants.refresh(form.get("refresh_token", ""), client.client_id)
        else:
            raise OAuthError("unsupported_grant_type")
        user = self.pool.users.find(authorization.sub)
        if user is None:
            raise OAuthError("invalid_grant")
        tokens = self.pool.tokens(user, authorization)
        return tokens | (
            {"refresh_token": grants.issue_refresh_token(authorization)}
            if grant_type != "refresh_token" or grants.rotates_refresh_tokens
            else {}
        )

    def _client(self, request: Request, form: Mapping[str, str]) -> OAuthClient:
        """Authenticate the client by HTTP Basic or form fields."""
        client_id, secret = _basic(request) or (
            form.get("client_id", ""),
            form.get("client_secret"),
        )
        client = self.pool.clients.get(client_id)
        if client is None or form.get("client_id", client_id) != client_id:
            raise OAuthError("invalid_client")
        if client.secret is not None and not hmac.compare_digest(
            (secret or "").encode(), client.secret.encode()
        ):
            raise OAuthError("invalid_client", "invalid_client_secret")
        return client


def verify_access_token(pool: UserPool, token: str) -> AccessClaims | None:
    """The claims of a valid access token of this pool; None if it is invalid."""
    try:
        key = pool.keys.find(jwt.get_unverified_header(token).get("kid", ""))
        if key is None:
            return None
        # PyJWT would check times against the system clock; the simulator has its own.
        options: Any = {"verify_exp": False, "verify_iat": False}
        claims = jwt.decode(token, key.public_key(), ["RS256"], issuer=pool.issuer, options=options)
    except jwt.PyJWTError:
        return None
    if claims.get("token_use") != "access" or claims["exp"] <= pool.clock.seconds():
        return None
    if not claims.get("sub"):
        return None
    return AccessClaims(claims["sub"], claims.get("scope", "").split())


def _error_response(error: OAuthError) -> Response:
    body = {"error": error.error} | (
        {"error_description": error.description} if error.description else {}
    )
    return JSONResponse(body, 400, NO_STORE)


def _basic(request: Request) -> tuple[str, str] | None:
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, _, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise OAuthError("invalid_client") from error
    return name, secret
