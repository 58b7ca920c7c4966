"""The keys that a provider may sign with, and Apple's rules for tokens: good for an hour, a new one every 20 minutes."""

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

LIFE_SECONDS: Final = 3600
MIN_BETWEEN_SECONDS: Final = 20 * 60
SKEW_SECONDS: Final = 300
MAX_KNOWN: Final = 1000
_SCHEME: Final = b"bearer "

EXPIRED: Final = (403, "ExpiredProviderToken")
INVALID: Final = (403, "InvalidProviderToken")
MISSING: Final = (403, "MissingProviderToken")
TOO_MANY: Final = (429, "TooManyProviderTokenUpdates")


@dataclass(frozen=True, slots=True)
class ProviderKey:
    """A key as the developer's account hands it out: its id, the team's, and the private half as a `.p8` file has it."""

    key_id: str
    team_id: str
    pem: str


def make_provider_key(key_id: str = "SIMKEY0001", team_id: str = "SIMTEAM001") -> ProviderKey:
    private = generate_private_key(SECP256R1())
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return ProviderKey(key_id, team_id, pem)


class ProviderTokenVerifier:
    """Who may push, and whether the token of a request holds now.

    Tokens that were checked once are remembered.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._keys: dict[str, tuple[str, EllipticCurvePublicKey]] = {}
        self._known: dict[bytes, int] = {}
        self._latest: dict[str, float] = {}

    def allow(self, key: ProviderKey, private: EllipticCurvePrivateKey) -> None:
        self._keys[key.key_id] = (key.team_id, private.public_key())

    def trouble(self, authorization: bytes | None) -> tuple[int, str] | None:
        """What is wrong with the token, as a status and a reason; None if it holds."""
        if authorization is None or authorization[: len(_SCHEME)].lower() != _SCHEME:
            return MISSING
        issued = self._known.get(authorization)
        if issued is None:
            checked = self._checked(authorization[len(_SCHEME) :])
            if not isinstance(checked, int):
                return checked
            issued = checked
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[authorization] = issued
        age = self._clock.seconds() - issued
        if age > LIFE_SECONDS:
            return EXPIRED
        return INVALID if age < -SKEW_SECONDS else None

    def _checked(self, token: bytes) -> int | tuple[int, str]:
        """When the token was issued, or what is wrong with it for ever."""
        try:
            key_id = jwt.get_unverified_header(token).get("kid", "")
            team_id, public = self._keys[key_id]
            claims = jwt.decode(
                token,
                public,
                ["ES256"],
                options={"verify_exp": False, "verify_iat": False, "verify_aud": False},
            )
        except (jwt.PyJWTError, KeyError):
            return INVALID
        issued = claims.get("iat")
        if claims.get("iss") != team_id or not isinstance(issued, int):
            return INVALID
        now = self._clock.monotonic()
        if now - self._latest.get(key_id, -MIN_BETWEEN_SECONDS) < MIN_BETWEEN_SECONDS:
            return TOO_MANY
        self._latest[key_id] = now
        return issued
