"""A user pool: its people, its applications, its keys, and the tokens that it makes of them.

As with Cognito, it has two addresses: the Hosted UI (`url`, where people and applications go) and
its own (`issuer`, which is what `iss` says, and under which discovery and keys are found).
"""

import random
from collections.abc import Iterable
from typing import Any, Final, Literal

from tally.kit.clock import Clock
from tally.sim.fault_injection import FaultInjector
from tally.sim.oidc.flaws import TokenFlaw, sign_token
from tally.sim.oidc.grants import GrantStore, OAuthClient, OidcAuthorization
from tally.sim.oidc.keys import SigningKeys
from tally.sim.oidc.users import DOMAIN, OidcUser, UserDirectory

TOKEN_SECONDS: Final = 3600
DEFAULT_POOL_ID: Final = "local_tally"
# Known to everyone, and good for nothing outside this simulator.
COLLECT_CLIENT: Final = OAuthClient("tally-collect", "made-up-client-secret")

TokenUse = Literal["id", "access"]


class UserPool:
    """What is known and what was granted; HTTP is not its business."""

    def __init__(
        self,
        clock: Clock,
        *,
        clients: Iterable[OAuthClient] = (COLLECT_CLIENT,),
        users: UserDirectory | None = None,
        keys: SigningKeys | None = None,
        rng: random.Random | None = None,
        pool_id: str = DEFAULT_POOL_ID,
        auto_approve: str | None = None,
    ) -> None:
        self.clock = clock
        self.clients = {client.client_id: client for client in clients}
        self.users = users or UserDirectory()
        self.keys = keys or SigningKeys()
        self.grants = GrantStore(clock, rng or random.SystemRandom())
        self.pool_id = pool_id
        # Who is logged in without being asked: a sub, an e-mail address or a name. A `login_hint`
        # names another.
        self.auto_approve = auto_approve
        self.faults = FaultInjector()
        # What will be wrong with the next tokens of the token endpoint, one of them each.
        self.flaws: list[TokenFlaw] = []
        self.url = ""

    @property
    def issuer(self) -> str:
        return f"{self.url}/{self.pool_id}"

    def register(self, client: OAuthClient) -> OAuthClient:
        self.clients[client.client_id] = client
        return client

    def token_for(
        self,
        sub: str,
        *,
        groups: Iterable[str] = (),
        use: TokenUse = "access",
        client_id: str | None = None,
        email: str | None = None,
        nonce: str | None = None,
        lifetime: int = TOKEN_SECONDS,
        flaw: TokenFlaw | None = None,
        **claims: Any,
    ) -> str:
        """A token made directly, for whoever is named; `claims` are added to the usual ones or stand in their place."""
        person = self.users.find(sub) or OidcUser(sub, email or f"{sub}@{DOMAIN}", sub)
        person = OidcUser(
            person.sub, email or person.email, person.name, tuple(groups) or person.groups
        )
        client = client_id or next(iter(self.clients))
        now = self.clock.seconds()
        authorization = OidcAuthorization(client, person.sub, "openid email", "", now, nonce)
        made = self.claims(person, authorization, use, lifetime) | claims
        return sign_token(self.keys, made, flaw)

    def claims(
        self,
        person: OidcUser,
        authorization: OidcAuthorization,
        use: TokenUse,
        lifetime: int = TOKEN_SECONDS,
    ) -> dict[str, Any]:
        """What Cognito puts into a token of this use."""
        now = self.clock.seconds()
        common: dict[str, Any] = {
            "sub": person.sub,
            "iss": self.issuer,
            "token_use": use,
            "auth_time": authorization.auth_time,
            "iat": now,
            "exp": now + lifetime,
            "jti": self.grants.new_id(),
        }
        if person.groups:
            common["cognito:groups"] = list(person.groups)
        if use == "access":
            its_own = {
                "client_id": authorization.client_id,
                "scope": authorization.scope,
                "version": 2,
            }
            return common | its_own | {"username": person.sub}
        about = {
            "email": person.email,
            "email_verified": True,
            "name": person.name,
            "cognito:username": person.sub,
        }
        nonce = {} if authorization.nonce is None else {"nonce": authorization.nonce}
        return common | {"aud": authorization.client_id} | about | nonce

    def tokens(self, person: OidcUser, authorization: OidcAuthorization) -> dict[str, Any]:
        """The ID and access token that the token endpoint hands out; the flaw that is due is in both."""
        flaw = self.flaws.pop(0) if self.flaws else None
        return {
            "id_token": sign_token(self.keys, self.claims(person, authorization, "id"), flaw),
            "access_token": sign_token(
                self.keys, self.claims(person, authorization, "access"), flaw
            ),
            "expires_in": TOKEN_SECONDS,
            "token_type": "Bearer",
        }

    def delete_person(self, sub: str) -> bool:
        """Close an account; its tokens can no longer be renewed."""
        self.grants.forget(sub)
        return self.users.remove(sub)
