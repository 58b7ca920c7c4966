"""A user pool: users, clients, signing keys and the tokens it issues.

Like Cognito it has two URLs: the Hosted UI (`url`) and the issuer (`issuer`), which is the `iss`
claim and the base of the discovery document and the JWKS.
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
# Not a secret: valid only in this simulator.
COLLECT_CLIENT: Final = OAuthClient("tally-collect", "made-up-client-secret")

TokenUse = Literal["id", "access"]


class UserPool:
    """The state and rules of a user pool, without HTTP."""

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
        # Log this user in without a page: a sub, an e-mail address or a name. A `login_hint`
        # overrides it.
        self.auto_approve = auto_approve
        self.faults = FaultInjector()
        # Flaws of the next token responses, one per response.
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
        """Issue a token directly. `claims` are added to the standard claims or override them."""
        user = self.users.find(sub) or OidcUser(sub, email or f"{sub}@{DOMAIN}", sub)
        user = OidcUser(user.sub, email or user.email, user.name, tuple(groups) or user.groups)
        client = client_id or next(iter(self.clients))
        now = self.clock.seconds()
        authorization = OidcAuthorization(client, user.sub, "openid email", "", now, nonce)
        all_claims = self.claims(user, authorization, use, lifetime) | claims
        return sign_token(self.keys, all_claims, flaw)

    def claims(
        self,
        user: OidcUser,
        authorization: OidcAuthorization,
        use: TokenUse,
        lifetime: int = TOKEN_SECONDS,
    ) -> dict[str, Any]:
        """The claims of a Cognito token of this use."""
        now = self.clock.seconds()
        common: dict[str, Any] = {
            "sub": user.sub,
            "iss": self.issuer,
            "token_use": use,
            "auth_time": authorization.auth_time,
            "iat": now,
            "exp": now + lifetime,
            "jti": self.grants.new_id(),
        }
        if user.groups:
            common["cognito:groups"] = list(user.groups)
        if use == "access":
            access = {
                "client_id": authorization.client_id,
                "scope": authorization.scope,
                "version": 2,
            }
            return common | access | {"username": user.sub}
        profile = {
            "email": user.email,
            "email_verified": True,
            "name": user.name,
            "cognito:username": user.sub,
        }
        nonce = {} if authorization.nonce is None else {"nonce": authorization.nonce}
        return common | {"aud": authorization.client_id} | profile | nonce

    def tokens(self, user: OidcUser, authorization: OidcAuthorization) -> dict[str, Any]:
        """The body of a token response; the next pending flaw applies to both tokens."""
        flaw = self.flaws.pop(0) if self.flaws else None
        return {
            "id_token": sign_token(self.keys, self.claims(user, authorization, "id"), flaw),
            "access_token": sign_token(self.keys, self.claims(user, authorization, "access"), flaw),
            "expires_in": TOKEN_SECONDS,
            "token_type": "Bearer",
        }

    def delete_user(self, sub: str) -> bool:
        """Delete a user and revoke their grants."""
        self.grants.revoke_user(sub)
        return self.users.remove(sub)
