"""The provider's token: what tells Apple who pushes.

A JWT signed with the team's key (ES256), good for an hour.

Apple wants a token used for a while: a new one more often than every 20 minutes is refused. So a
token is dated at a half or a full hour, and its signature has no randomness: every instance with
the same key, and the same one after a restart, comes to the same token. One is kept for at least 21
minutes, and is never older than about 51.
"""

import base64
from typing import Final, cast

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tally.kit.clock import Clock
from tally.settings import Secret, SettingsError

STEP_SECONDS: Final = 30 * 60
MIN_SECONDS: Final = 21 * 60
MAX_SECONDS: Final = 55 * 60


class ProviderToken:
    """The token in use, as the value of the `authorization` header."""

    def __init__(self, key: Secret, key_id: str, team_id: str, clock: Clock) -> None:
        self._key = _loaded(key)
        self._key_id = key_id
        self._team_id = team_id
        self._clock = clock
        self._header = ""
        self._dated = 0
        self._since = 0.0
        # Until then there is nothing to look at: asked for with every push, this is most of the
        # work.
        self._fresh_until_ns = 0

    def header(self) -> str:
        """The header now; a new one where it is time."""
        if self._clock.time_ns() >= self._fresh_until_ns:
            age = self._clock.seconds() - self._dated
            if age >= MAX_SECONDS or self._is_changeable():
                self._use(self._step())
        return self._header

    def expired(self, header: str) -> None:
        """Apple calls `header` expired, so its clock is ahead of ours: date a new one now, unless there was one just now."""
        if header == self._header and self._is_changeable():
            self._use(self._clock.seconds())

    def too_new(self, header: str) -> None:
        """Apple has seen another token too short a while ago, as before a restart: take that of the step before, or go back."""
        if header == self._header:
            now, earlier = self._step(), self._step() - STEP_SECONDS
            is_good = self._clock.seconds() - earlier < MAX_SECONDS
            self._use(earlier if is_good and self._dated != earlier else now)

    def _step(self) -> int:
        now = self._clock.seconds()
        return now - now % STEP_SECONDS

    def _is_changeable(self) -> bool:
        return self._clock.monotonic() - self._since >= MIN_SECONDS

    def _use(self, dated: int) -> None:
        self._dated = dated
        self._since = self._clock.monotonic()
        self._fresh_until_ns = (dated + STEP_SECONDS) * 1_000_000_000
        self._header = "bearer " + self._signed(
            {"alg": "ES256", "kid": self._key_id}, {"iss": self._team_id, "iat": dated}
        )

    def _signed(self, head: dict[str, str], claims: dict[str, object]) -> str:
        content = _encoded(msgspec.json.encode(head)) + b"." + _encoded(msgspec.json.encode(claims))
        signature = self._key.sign(content, ECDSA(SHA256(), deterministic_signing=True))
        whole = b"".join(number.to_bytes(32, "big") for number in decode_dss_signature(signature))
        return (content + b"." + _encoded(whole)).decode()


def _encoded(content: bytes) -> bytes:
    return base64.urlsafe_b64encode(content).rstrip(b"=")


def _loaded(key: Secret) -> EllipticCurvePrivateKey:
    """The key of a PEM; what is wrong with it is told without a word of it."""
    try:
        found = load_pem_private_key(key.reveal().encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise SettingsError(
            ["TALLY_CRICKET_APNS_KEY holds no private key, and no path of one"]
        ) from error
    if not isinstance(getattr(found, "curve", None), SECP256R1):
        raise SettingsError(
            [
                "TALLY_CRICKET_APNS_KEY holds a key of another kind than Apple's: it must be on the curve P-256"
            ]
        )
    return cast(EllipticCurvePrivateKey, found)
