"""Who is asking: people with a token of the issuer's, operators with the `admin` group in it or with the admin key."""

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
# A person's id becomes part of keys that are joined with `#`.
_person = re.compile(r"[A-Za-z0-9_.:@|+-]{1,128}")


@dataclass(frozen=True, slots=True)
class Callers:
    """Without a verifier, nobody can be told apart, and every route for people says so."""

    verifier: TokenVerifier | None
    admin_key: Secret

    async def person(self, request: Request) -> str:
        """The id of who is asking."""
        claims = await self._claims(request)
        user_id = claims["sub"]
        if not isinstance(user_id, str) or not _person.fullmatch(user_id):
            raise Unauthenticated("The token's subject is not a person's id", code="invalid_token")
        logs.bind(user_id=user_id)
        return user_id

    async def require_admin(self, request: Request) -> None:
        if ADMIN_HEADER in request.headers:
            require_key(request, self.admin_key, ADMIN_HEADER)
            return
        groups = (await self._claims(request)).get("cognito:groups")
        if not isinstance(groups, list) or ADMIN_GROUP not in groups:
            raise Forbidden("This is for operators", code="not_an_operator")

    async def _claims(self, request: Request) -> Claims:
        token = bearer_token(request)
        if self.verifier is None:
            raise Unavailable("Sign-in is not set up here", code="sign_in_not_set_up")
        return await self.verifier.verify(token)
