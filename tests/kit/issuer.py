"""A token issuer on a real socket that publishes and rotates keys, and can fail on request."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tally.kit.server import serving

ISSUER = "https://issuer.test/pool"
AUDIENCE = "client-1"


def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class Issuer:
    """Signs tokens and serves its public keys at `url`."""

    def __init__(self) -> None:
        self.keys: dict[str, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey] = {"k1": rsa_key()}
        self.extra: list[dict[str, Any]] = []
        self.reads = 0
        self.status = 200
        self.body: bytes | None = None
        self.url = ""

    def public_keys(self) -> list[dict[str, Any]]:
        published = []
        for kid, key in self.keys.items():
            algorithm: Any = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
            published.append(
                {**json.loads(algorithm.to_jwk(key.public_key())), "kid": kid, "use": "sig"}
            )
        return published + self.extra

    def sign(self, claims: dict[str, Any], kid: str = "k1", **headers: Any) -> str:
        key = self.keys[kid]
        algorithm = "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256"
        return jwt.encode(claims, key, algorithm, {"kid": kid, **headers})

    async def serve_keys(self, _: Request) -> Response:
        self.reads += 1
        body = json.dumps({"keys": self.public_keys()}).encode() if self.body is None else self.body
        return Response(body, self.status, media_type="application/json")

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Issuer"]:
        async with serving(Starlette(routes=[Route("/jwks.json", self.serve_keys)])) as url:
            self.url = f"{url}/jwks.json"
            yield self
