"""The keys an issuer signs with: one at a time, the public halves of all that still count published as a JWKS."""

import base64
import hashlib
import json
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import RSAAlgorithm


def generate_signing_key() -> RSAPrivateKey:
    return generate_private_key(public_exponent=65537, key_size=2048)


def signing_key_id(key: RSAPrivateKey) -> str:
    """As Cognito's look: the Base64 of a hash."""
    public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(public).digest()).decode()


class SigningKeys:
    """Signs with the newest key.

    `rotate` brings a new one; `retire` takes the older ones out of the JWKS.
    """

    def __init__(self, key: RSAPrivateKey | None = None) -> None:
        self._keys = [key or generate_signing_key()]
        self._foreign: RSAPrivateKey | None = None

    @property
    def current(self) -> RSAPrivateKey:
        return self._keys[-1]

    @property
    def foreign(self) -> RSAPrivateKey:
        """A key of somebody else's, which is never published: what a forger has."""
        if self._foreign is None:
            self._foreign = generate_signing_key()
        return self._foreign

    def rotate(self) -> str:
        """Sign with a new key from now on, and say its id; tokens of the older keys still hold."""
        self._keys.append(generate_signing_key())
        return signing_key_id(self.current)

    def retire(self) -> None:
        """Publish the current key alone, so that what older ones signed no longer holds."""
        del self._keys[:-1]

    def published(self) -> dict[str, Any]:
        return {"keys": [_published(key) for key in self._keys]}

    def find(self, kid: str) -> RSAPrivateKey | None:
        """One that is published."""
        return next((key for key in self._keys if signing_key_id(key) == kid), None)

    def sign(
        self, claims: dict[str, Any], key: RSAPrivateKey | None = None, kid: str | None = None
    ) -> str:
        signing = key or self.current
        return jwt.encode(claims, signing, "RS256", {"kid": kid or signing_key_id(signing)})


def _published(key: RSAPrivateKey) -> dict[str, Any]:
    numbers = json.loads(RSAAlgorithm.to_jwk(key.public_key()))
    return {
        "alg": "RS256",
        "e": numbers["e"],
        "kid": signing_key_id(key),
        "kty": "RSA",
        "n": numbers["n"],
        "use": "sig",
    }
