"""Verifies provider tokens by APNs' rules.

A token is valid for an hour, and a provider may create a new one every 20 minutes.
"""

from dataclasses import dataclass
from typing import Final

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tally.kit.clock import Clock

TOKEN_LIFETIME_SECONDS: Final = 3600
MIN_UPDATE_INTERVAL_SECONDS: Final = 20 * 60
MAX_CLOCK_SKEW_SECONDS: Final = 300
MAX_CACHED_TOKENS: Final = 1000
_SCHEME: Final = b"bearer "

EXPIRED: Final = (403, "ExpiredProviderToken")
INVALID: Final = (403, "InvalidProviderToken")
MISSING: Final = (403, "MissingProviderToken")
TOO_MANY_UPDATES: Final = (429, "TooManyProviderTokenUpdates")


@dataclass(frozen=True, slots=True)
class ProviderKey:
    """A signing key as Apple issues it: key id, team id and the private key in `.p8` format."""

    key_id: str
    team_id: str
    pem: str


def make_provider_key(key_id: str = "SIMKEY0001", team_id: str = "SIMTEAM001") -> ProviderKey:
    private_key = generate_private_key(SECP256R1())
    pem = private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return ProviderKey(key_id, team_id, pem)


class ProviderTokenVerifier:
    """Verifies the tokens of allowed keys. Verified tokens are cached."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._keys: dict[str, tuple[str, EllipticCurvePublicKey]] = {}
        self._issued_at: dict[bytes, int] = {}
        self._updated_at: dict[str, float] = {}

    def allow(self, key: ProviderKey, private_key: EllipticCurvePrivateKey) -> None:
        self._keys[key.key_id] = (key.team_id, private_key.public_key())

    def verify(self, authorization: bytes | None) -> tuple[int, str] | None:
        """The error of a token as status and reason; None if it is valid."""
        if authorization is None or authorization[: len(_SCHEME)].lower() != _SCHEME:
            return MISSING
        issued_at = self._issued_at.get(authorization)
        if issued_at is None:
            result = self._check(authorization[len(_SCHEME) :])
            if not isinstance(result, int):
                return result
            issued_at = result
            if len(self._issued_at) >= MAX_CACHED_TOKENS:
                self._issued_at.clear()
            self._issued_at[authorization] = issued_at
        age = self._clock.seconds() - issued_at
        if age > TOKEN_LIFETIME_SECONDS:
            return EXPIRED
        return INVALID if age < -MAX_CLOCK_SKEW_SECONDS else None

    def _check(self, token: bytes) -> int | tuple[int, str]:
        """The issue time of a token, or its permanent error."""
        try:
            key_id = jwt.get_unverified_header(token).get("kid", "")
            team_id, public_key = self._keys[key_id]
            claims = jwt.decode(
                token,
                public_key,
                ["ES256"],
                options={"verify_exp": False, "verify_iat": False, "verify_aud": False},
            )
        except (jwt.PyJWTError, KeyError):
            return INVALID
        issued_at = claims.get("iat")
        if claims.get("iss") != team_id or not isinstance(issued_at, int):
            return INVALID
        now = self._clock.monotonic()
        if (
            now - self._updated_at.get(key_id, -MIN_UPDATE_INTERVAL_SECONDS)
            < MIN_UPDATE_INTERVAL_SECONDS
        ):
            return TOO_MANY_UPDATES
        self._updated_at[key_id] = now
        return issued_at
