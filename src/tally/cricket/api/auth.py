"""Authenticates requests: users by access token, administrators by group or as operators."""

import re
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from tally.errors import Forbidden, Unauthenticated, Unavailable
from tally.kit import logs
from tally.kit.auth import Claims, TokenVerifier, bearer_token
from tally.kit.operators import Operator, OperatorDirectory, Role, require_operator

ADMIN_GROUP: Final = "admin"
# Cognito's claim for the purpose of a token. An ID token tells an app who its user is and may reach
# third parties; only an access token authorises requests.
ACCESS: Final = "access"
# User ids become part of keys that are joined with `#`.
_user_id_pattern = re.compile(r"[A-Za-z0-9_.:@|+-]{1,128}")


@dataclass(frozen=True, slots=True)
class CricketAuthenticator:
    """Without a verifier, every request with a token fails with 503."""

    verifier: TokenVerifier | None
    operators: OperatorDirectory

    async def user_id(self, request: Request) -> str:
        """Verify the bearer token and return its subject."""
        return (await self.user_until(request))[0]

    async def user_until(self, request: Request) -> tuple[str, float]:
        """Return the user of the token and when the token expires, in epoch seconds."""
        claims = await self._claims(request)
        return _user_id(claims), claims["exp"]

    async def require_admin(self, request: Request) -> Operator:
        """Return the operator, or the user whose token has the group `admin`.

        A JSON Web Token contains dots and the token of an operator never does.
        """
        if "." not in bearer_token(request):
            return await require_operator(request, self.operators)
        claims = await self._claims(request)
        groups = claims.get("cognito:groups")
        if not isinstance(groups, list) or ADMIN_GROUP not in groups:
            raise admin_required()
        return Operator(f"cricket:{_user_id(claims)}", Role.OPERATOR)

    async def _claims(self, request: Request) -> Claims:
        token = bearer_token(request)
        if self.verifier is None:
            raise Unavailable("Sign-in is not configured", code="sign_in_not_set_up")
        claims = await self.verifier.verify(token)
        if claims.get("token_use") != ACCESS:
            raise Unauthenticated(
                "An access token is required, not an ID token", code="invalid_token"
            )
        return claims


def _user_id(claims: Claims) -> str:
    user_id = claims["sub"]
    if not isinstance(user_id, str) or not _user_id_pattern.fullmatch(user_id):
        raise Unauthenticated("The subject of the token is not a user ID", code="invalid_token")
    logs.bind(user_id=user_id)
    return user_id


def admin_required() -> Forbidden:
    return Forbidden("Administrator privileges are required", code="not_an_operator")
