"""The provider token that authenticates the app's server to APNs.

It is a JWT signed with the team's key (ES256) and valid for an hour. APNs rejects a new token
within 20 minutes of the previous one. Therefore tokens are issued at half and full hours, with
deterministic signatures: all instances with the same key use the same token, also after a restart.
A token is used for at least 21 minutes and is never older than about 51.
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

ISSUE_INTERVAL_SECONDS: Final = 30 * 60
MIN_USE_SECONDS: Final = 21 * 60
MAX_AGE_SECONDS: Final = 55 * 60


class ProviderToken:
    """The current token, as the value of the `authorization` header."""

    def __init__(self, key: Secret, key_id: str, team_id: str, clock: Clock) -> None:
        self._key = _load_key(key)
        self._key_id = key_id
        self._team_id = team_id
        self._clock = clock
        self._header = ""
        self._issued_at = 0
        self._in_use_since = 0.0
        # Every push reads the header: until this moment there is nothing else to check.
        self._fresh_until_ns = 0

    def header(self) -> str:
        """Return the current header; issue a new token when one is due."""
        if self._clock.time_ns() >= self._fresh_until_ns:
            age = self._clock.seconds() - self._issued_at
            if age >= MAX_AGE_SECONDS or self._may_change():
                self._issue(self._interval_start())
        return self._header

    def expired(self, header: str) -> None:
        """Replace a token that APNs reports as expired, because its clock is ahead of ours.

        The new token is dated now. Nothing happens if the token was replaced a short while ago.
        """
        if header == self._header and self._may_change():
            self._issue(self._clock.seconds())

    def too_new(self, header: str) -> None:
        """Return to an earlier token after APNs reported too many token updates.

        That happens after a restart, when APNs knows the token of the previous interval.
        """
        if header == self._header:
            current = self._interval_start()
            previous = current - ISSUE_INTERVAL_SECONDS
            is_valid = self._clock.seconds() - previous < MAX_AGE_SECONDS
            self._issue(previous if is_valid and self._issued_at != previous else current)

    def _interval_start(self) -> int:
        now = self._clock.seconds()
        return now - now % ISSUE_INTERVAL_SECONDS

    def _may_change(self) -> bool:
        return self._clock.monotonic() - self._in_use_since >= MIN_USE_SECONDS

    def _issue(self, issued_at: int) -> None:
        self._issued_at = issued_at
        self._in_use_since = self._clock.monotonic()
        self._fresh_until_ns = (issued_at + ISSUE_INTERVAL_SECONDS) * 1_000_000_000
        self._header = "bearer " + self._sign(
            {"alg": "ES256", "kid": self._key_id}, {"iss": self._team_id, "iat": issued_at}
        )

    def _sign(self, header: dict[str, str], claims: dict[str, object]) -> str:
        content = _base64(msgspec.json.encode(header)) + b"." + _base64(msgspec.json.encode(claims))
        signature = self._key.sign(content, ECDSA(SHA256(), deterministic_signing=True))
        raw = b"".join(number.to_bytes(32, "big") for number in decode_dss_signature(signature))
        return (content + b"." + _base64(raw)).decode()


def _base64(content: bytes) -> bytes:
    return base64.urlsafe_b64encode(content).rstrip(b"=")


def _load_key(key: Secret) -> EllipticCurvePrivateKey:
    """Load a PEM key; the errors contain nothing of it."""
    try:
        loaded = load_pem_private_key(key.reveal().encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise SettingsError(["TALLY_CRICKET_APNS_KEY must be a private key or its path"]) from error
    if not isinstance(getattr(loaded, "curve", None), SECP256R1):
        raise SettingsError(["TALLY_CRICKET_APNS_KEY must be a key on the curve P-256"])
    return cast(EllipticCurvePrivateKey, loaded)
