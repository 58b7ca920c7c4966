"""Signing keys of the issuer: signs with the newest and publishes all valid ones as a JWKS."""

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
    """A key id in Cognito's format: the Base64 of a hash."""
    public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(public).digest()).decode()


class SigningKeys:
    """The keys. `rotate` adds a key; `retire` removes older keys from the JWKS."""

    def __init__(self, key: RSAPrivateKey | None = None) -> None:
        self._keys = [key or generate_signing_key()]
        self._foreign: RSAPrivateKey | None = None

    @property
    def current(self) -> RSAPrivateKey:
        return self._keys[-1]

    @property
    def foreign(self) -> RSAPrivateKey:
        """A key that is never published, for forged tokens."""
        if self._foreign is None:
            self._foreign = generate_signing_key()
        return self._foreign

    def rotate(self) -> str:
        """Sign with a new key and return its id; tokens of older keys stay valid."""
        self._keys.append(generate_signing_key())
        return signing_key_id(self.current)

    def retire(self) -> None:
        """Publish only the current key, which invalidates tokens of older keys."""
        del self._keys[:-1]

    def jwks(self) -> dict[str, Any]:
        return {"keys": [_jwk(key) for key in self._keys]}

    def find(self, kid: str) -> RSAPrivateKey | None:
        """A published key by its id."""
        return next((key for key in self._keys if signing_key_id(key) == kid), None)

    def sign(
        self, claims: dict[str, Any], key: RSAPrivateKey | None = None, kid: str | None = None
    ) -> str:
        signing = key or self.current
        return jwt.encode(claims, signing, "RS256", {"kid": kid or signing_key_id(signing)})


def _jwk(key: RSAPrivateKey) -> dict[str, Any]:
    numbers = json.loads(RSAAlgorithm.to_jwk(key.public_key()))
    return {
        "alg": "RS256",
        "e": numbers["e"],
        "kid": signing_key_id(key),
        "kty": "RSA",
        "n": numbers["n"],
        "use": "sig",
    }
