"""The user pool of the cricket app.

async with CognitoSimulator(clock).serving() as cognito: # cognito.issuer and cognito.client_id are what the
server is told
    token = cognito.user("ana")                     # what her phone sends as a bearer token
    operator = cognito.admin()                      # the same, with the group `admin` in it

From another process: POST /_sim/tokens {"sub": "ana"}.
"""

from typing import Any, Final

from tally.kit.clock import Clock
from tally.sim.oidc.grants import OAuthClient
from tally.sim.oidc.simulator import OidcSimulator

CRICKET_POOL_ID: Final = "local_cricket"
# A phone can keep no secret, so the client has none.
CRICKET_CLIENT: Final = OAuthClient("tally-cricket")
ADMIN_GROUP: Final = "admin"


class CognitoSimulator(OidcSimulator):
    """A user pool on a real socket, for people with phones."""

    def __init__(self, clock: Clock, **how: Any) -> None:
        super().__init__(clock, **{"clients": (CRICKET_CLIENT,), "pool_id": CRICKET_POOL_ID} | how)

    @property
    def client_id(self) -> str:
        return CRICKET_CLIENT.client_id

    def user(self, user_id: str, *groups: str) -> str:
        """The access token of a person."""
        return self.token_for(user_id, groups=groups)

    def admin(self, user_id: str = "operator") -> str:
        """The access token of somebody who may do what operators do."""
        return self.user(user_id, ADMIN_GROUP)
