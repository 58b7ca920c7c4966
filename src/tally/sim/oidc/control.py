"""The control API of the OIDC simulator, for tests and other processes.

GET  /_sim/state     users, clients, key ids, pending flaws and faults
POST /_sim/tokens    {"sub": "ana", "groups": ["admin"], "use": "access"} → {"token": …}
POST /_sim/people    {"name": "Eve", "groups": ["admin"]}
POST /_sim/keys      {"retire": true} rotates the signing key and retires older ones
POST /_sim/flaws     {"flaws": ["wrong_nonce"]} for the next token responses
POST /_sim/faults    an InjectedFault; DELETE clears all
POST /_sim/approval  {"who": "Ana Silva"} or {"who": null}
"""

from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tally.kit.http import Json
from tally.sim.fault_injection import NO_CONTENT, fault_routes
from tally.sim.oidc.flaws import TokenFlaw
from tally.sim.oidc.pool import TOKEN_SECONDS, TokenUse, UserPool
from tally.sim.oidc.users import make_user
from tally.sim.request_parsing import read_json_body


class TokenRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of a token to issue."""

    sub: str
    groups: tuple[str, ...] = ()
    use: TokenUse = "access"
    client_id: str | None = None
    email: str | None = None
    nonce: str | None = None
    lifetime: int = TOKEN_SECONDS
    flaw: TokenFlaw | None = None


class NewOidcUser(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A user to add."""

    name: str
    groups: tuple[str, ...] = ()


class KeyRotation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key rotation; `retire` invalidates older keys."""

    retire: bool = False


class FlawList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The flaws of the next token responses."""

    flaws: list[TokenFlaw]


class AutoApproval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The user to log in without a page; null shows the page."""

    who: str | None


@dataclass(frozen=True, slots=True)
class OidcControl:
    """The routes under `/_sim`."""

    pool: UserPool

    def routes(self) -> list[Route]:
        return [
            Route("/_sim/state", self.state),
            Route("/_sim/tokens", self.make_token, methods=["POST"]),
            Route("/_sim/people", self.add_user, methods=["POST"]),
            Route("/_sim/keys", self.rotate, methods=["POST"]),
            Route("/_sim/flaws", self.set_flaws, methods=["POST"]),
            *fault_routes(self.pool.faults),
            Route("/_sim/approval", self.set_approval, methods=["POST"]),
        ]

    async def state(self, _: Request) -> Response:
        pool = self.pool
        return Json(
            {
                "issuer": pool.issuer,
                "people": list(pool.users),
                "clients": [{"client_id": client.client_id} for client in pool.clients.values()],
                "keys": [key["kid"] for key in pool.keys.jwks()["keys"]],
                "flaws": pool.flaws,
                "faults": pool.faults.pending,
                "auto_approve": pool.auto_approve,
                "requests": len(pool.faults.requests),
            }
        )

    async def make_token(self, request: Request) -> Response:
        body = await read_json_body(request, TokenRequest)
        fields = {name: getattr(body, name) for name in body.__struct_fields__ if name != "sub"}
        return Json({"token": self.pool.token_for(body.sub, **fields)})

    async def add_user(self, request: Request) -> Response:
        body = await read_json_body(request, NewOidcUser)
        return Json(self.pool.users.add(make_user(body.name, body.groups)), 201)

    async def rotate(self, request: Request) -> Response:
        rotation = await read_json_body(request, KeyRotation)
        kid = self.pool.keys.rotate()
        if rotation.retire:
            self.pool.keys.retire()
        return Json({"kid": kid})

    async def set_flaws(self, request: Request) -> Response:
        self.pool.flaws[:] = (await read_json_body(request, FlawList)).flaws
        return NO_CONTENT

    async def set_approval(self, request: Request) -> Response:
        self.pool.auto_approve = (await read_json_body(request, AutoApproval)).who
        return NO_CONTENT
