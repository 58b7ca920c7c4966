"""Authenticates requests: users by ID token, administrators by group or admin key."""

import re
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from tally.errors import Forbidden, Unauthenticated, Unavailable
from tally.kit import logs
from tally.kit.auth import Claims, TokenVerifier, bearer_token, require_key
from tally.settings import Secret

ADMIN_HEADER: Final = "X-Admin-Key"
ADMIN_GROUP: Final = "admin"
# User ids become part of keys that are joined with `#`.
_user_id_pattern = re.compile(r"[A-Za-z0-9_.:@|+-]{1,128}")


@dataclass(frozen=True, slots=True)
class CricketAuthenticator:
    """Without a verifier, every request with a token fails with 503."""

    verifier: TokenVerifier | None
    admin_key: Secret

    async def user_id(self, request: Request) -> str:
        """Verify the bearer token and return its subject."""
        claims = await self._claims(request)
        user_id = claims["sub"]
        if not isinstance(user_id, str) or not _user_id_pattern.fullmatch(user_id):
            raise Unauthenticated("The subject of the token is not a user ID", code="invalid_token")
        logs.bind(user_id=user_id)
        return user_id

    async def require_admin(self, request: Request) -> None:
        """Require the admin key or a token with the group `admin`."""
        if ADMIN_HEADER in request.headers:
            require_key(request, self.admin_key, ADMIN_HEADER)
            return
        groups = (await self._claims(request)).get("cognito:groups")
        if not isinstance(groups, list) or ADMIN_GROUP not in groups:
            raise admin_required()

    async def _claims(self, request: Request) -> Claims:
        token = bearer_token(request)
        if self.verifier is None:
            raise Unavailable("Sign-in is not configured", code="sign_in_not_set_up")
        return await self.verifier.verify(token)


def admin_required() -> Forbidden:
    return Forbidden("Administrator privileges are required", code="not_an_operator")
