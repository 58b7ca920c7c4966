"""The Cognito API operations that delete users: DeleteUser and AdminDeleteUser.

A JSON protocol at `POST /` with the operation in `X-Amz-Target`. DeleteUser takes the user's access
token. AdminDeleteUser takes an AWS signature, which the simulator does not verify.
"""

from dataclasses import dataclass
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tally.sim.oidc.pool import UserPool
from tally.sim.oidc.tokens import verify_access_token
from tally.sim.request_parsing import read_json_body

# What a user's token must allow for the user to be deleted with it.
ADMIN_SCOPE: Final = "aws.cognito.signin.user.admin"
TARGET_PREFIX: Final = "AWSCognitoIdentityProviderService."
MEDIA_TYPE: Final = "application/x-amz-json-1.1"


class UserDeletion(msgspec.Struct, frozen=True, rename="pascal"):
    """The body of both operations."""

    access_token: str = ""
    user_pool_id: str = ""
    username: str = ""


@dataclass(frozen=True, slots=True)
class UserPoolApi:
    """The route of the API."""

    pool: UserPool

    def routes(self) -> list[Route]:
        return [Route("/", self.run, methods=["POST"])]

    async def run(self, request: Request) -> Response:
        operation = request.headers.get("x-amz-target", "").removeprefix(TARGET_PREFIX)
        if operation not in {"DeleteUser", "AdminDeleteUser"}:
            return _error_response("UnknownOperationException", "Unknown operation")
        body = await read_json_body(request, UserDeletion)
        if operation == "DeleteUser":
            claims = verify_access_token(self.pool, body.access_token)
            user = None if claims is None else self.pool.users.find(claims.subject)
            if claims is None or user is None:
                return _error_response("NotAuthorizedException", "Invalid Access Token")
            if ADMIN_SCOPE not in claims.scopes:
                message = "Access Token does not have required scopes"
                return _error_response("NotAuthorizedException", message)
        else:
            if body.user_pool_id != self.pool.pool_id:
                return _error_response(
                    "ResourceNotFoundException", f"User pool {body.user_pool_id} does not exist."
                )
            user = self.pool.users.find(body.username)
            if user is None:
                return _error_response("UserNotFoundException", "User does not exist.")
        self.pool.delete_user(user.sub)
        return Response("{}", media_type=MEDIA_TYPE)


def _error_response(error_type: str, message: str) -> Response:
    return Response(
        msgspec.json.encode({"__type": error_type, "message": message}), 400, media_type=MEDIA_TYPE
    )
