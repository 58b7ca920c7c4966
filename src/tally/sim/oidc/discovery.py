"""The OIDC discovery document and the JWKS, under the issuer URL and the Hosted UI URL."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tally.sim.oidc.pool import UserPool

JWKS_MAX_AGE_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class DiscoveryEndpoints:
    """The `.well-known` routes."""

    pool: UserPool

    def routes(self) -> list[Route]:
        routes = []
        for base in ("", f"/{self.pool.pool_id}"):
            routes.append(Route(f"{base}/.well-known/openid-configuration", self.discovery))
            routes.append(Route(f"{base}/.well-known/jwks.json", self.keys))
        return routes

    async def discovery(self, _: Request) -> Response:
        url, issuer = self.pool.url, self.pool.issuer
        return JSONResponse(
            {
                "authorization_endpoint": f"{url}/oauth2/authorize",
                "end_session_endpoint": f"{url}/logout",
                "id_token_signing_alg_values_supported": ["RS256"],
                "issuer": issuer,
                "jwks_uri": f"{issuer}/.well-known/jwks.json",
                "response_types_supported": ["code"],
                "revocation_endpoint": f"{url}/oauth2/revoke",
                "scopes_supported": ["openid", "email", "phone", "profile"],
                "subject_types_supported": ["public"],
                "token_endpoint": f"{url}/oauth2/token",
                "token_endpoint_auth_methods_supported": [
                    "client_secret_basic",
                    "client_secret_post",
                ],
                "userinfo_endpoint": f"{url}/oauth2/userInfo",
            }
        )

    async def keys(self, _: Request) -> Response:
        return JSONResponse(
            self.pool.keys.jwks(),
            headers={"Cache-Control": f"public, max-age={JWKS_MAX_AGE_SECONDS}"},
        )
