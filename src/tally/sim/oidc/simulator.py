"""The OIDC simulator on a real socket.

async with OidcSimulator(clock).serving() as issuer:
    token = issuer.token_for("ana", groups=("admin",))   # `iss` is issuer.issuer
    issuer.auto_approve = "Ana Silva"                     # log in without the login page
    issuer.flaws.append(TokenFlaw.WRONG_NONCE)            # in the next token response
    issuer.faults.add(InjectedFault(path="/oauth2/token", status=503))
    issuer.keys.rotate()
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from starlette.applications import Starlette
from starlette.routing import Route

from tally.kit.server import serving
from tally.sim.fault_injection import simulator_app
from tally.sim.oidc.control import OidcControl
from tally.sim.oidc.discovery import DiscoveryEndpoints
from tally.sim.oidc.hosted_ui import HostedUi
from tally.sim.oidc.pool import UserPool
from tally.sim.oidc.tokens import TokenEndpoint
from tally.sim.oidc.user_pool_api import UserPoolApi


class OidcSimulator(UserPool):
    """A user pool that serves HTTP."""

    def app(self) -> Starlette:
        parts = (
            DiscoveryEndpoints(self),
            HostedUi(self),
            TokenEndpoint(self),
            UserPoolApi(self),
            OidcControl(self),
        )
        routes: list[Route] = [route for part in parts for route in part.routes()]
        return simulator_app("oidc", routes, self.faults, self.clock)

    @asynccontextmanager
    async def serving(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Self]:
        """Serve until the block ends; sets `url` and thereby `issuer`."""
        async with serving(self.app(), host, port) as url:
            self.url = url
            yield self
