"""The pool's own API, as far as an application that closes accounts needs it: DeleteUser and AdminDeleteUser.

It is a JSON protocol at one path, `POST /`, with the operation's name in `X-Amz-Target`. The first
is called with the person's access token; the second with an administrator's signature, which is not
checked here.
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

TARGET: Final = "AWSCognitoIdentityProviderService."
MEDIA_TYPE: Final = "application/x-amz-json-1.1"


class UserDeletion(msgspec.Struct, frozen=True, rename="pascal"):
    access_token: str = ""
    user_pool_id: str = ""
    username: str = ""


@dataclass(frozen=True, slots=True)
class UserPoolApi:
    pool: UserPool

    def routes(self) -> list[Route]:
        return [Route("/", self.run, methods=["POST"])]

    async def run(self, request: Request) -> Response:
        operation = request.headers.get("x-amz-target", "").removeprefix(TARGET)
        if operation not in {"DeleteUser", "AdminDeleteUser"}:
            return _refused("UnknownOperationException", "There is no such operation here")
        asked = await read_json_body(request, UserDeletion)
        if operation == "DeleteUser":
            person = self.pool.users.find(verify_access_token(self.pool, asked.access_token) or "")
            if person is None:
                return _refused("NotAuthorizedException", "Invalid Access Token")
        else:
            if asked.user_pool_id != self.pool.pool_id:
                return _refused(
                    "ResourceNotFoundException", f"User pool {asked.user_pool_id} does not exist."
                )
            person = self.pool.users.find(asked.username)
            if person is None:
                return _refused("UserNotFoundException", "User does not exist.")
        self.pool.delete_person(person.sub)
        return Response("{}", media_type=MEDIA_TYPE)


def _refused(kind: str, message: str) -> Response:
    return Response(
        msgspec.json.encode({"__type": kind, "message": message}), 400, media_type=MEDIA_TYPE
    )
