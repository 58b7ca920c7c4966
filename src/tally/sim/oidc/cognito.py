"""The user pool of the cricket app.

async with CognitoSimulator(clock).serving() as cognito:  # configures issuer and client_id
    token = cognito.user_token("ana")                      # the bearer token of a user
    admin = cognito.admin_token()                          # the same, in the group `admin`

From another process: POST /_sim/tokens {"sub": "ana"}.
"""

from typing import Any, Final

from tally.kit.clock import Clock
from tally.sim.oidc.grants import OAuthClient
from tally.sim.oidc.simulator import OidcSimulator

CRICKET_POOL_ID: Final = "local_cricket"
# A public client: a mobile app cannot store a secret.
CRICKET_CLIENT: Final = OAuthClient("tally-cricket")
ADMIN_GROUP: Final = "admin"


class CognitoSimulator(OidcSimulator):
    """The OIDC simulator with the client of the cricket app."""

    def __init__(self, clock: Clock, **options: Any) -> None:
        defaults = {"clients": (CRICKET_CLIENT,), "pool_id": CRICKET_POOL_ID}
        super().__init__(clock, **defaults | options)

    @property
    def client_id(self) -> str:
        return CRICKET_CLIENT.client_id

    def user_token(self, user_id: str, *groups: str) -> str:
        """An access token for a user."""
        return self.token_for(user_id, groups=groups)

    def admin_token(self, user_id: str = "operator") -> str:
        """An access token for a member of the admin group."""
        return self.user_token(user_id, ADMIN_GROUP)
