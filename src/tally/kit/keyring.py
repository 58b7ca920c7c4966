"""Signing keys with rotation: the first key signs, all keys verify.

A keyring is a comma-separated list of secrets, newest first. The ID of a key is derived from its
secret, and a token names the key that signed it. To rotate, append the new secret on every
instance, then move it to the front, and remove the old one when all its tokens have expired.
"""

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from tally.settings import Secret


@dataclass(frozen=True, slots=True)
class Key:
    """A secret and an ID that does not reveal it."""

    key_id: str
    _secret: bytes = field(repr=False)

    @classmethod
    def of(cls, secret: Secret) -> Self:
        content = hashlib.sha256(b"tally key " + secret.reveal().encode()).digest()
        return cls(hashlib.sha256(b"tally key id " + content).hexdigest()[:12], content)

    def signature(self, message: bytes) -> bytes:
        """HMAC-SHA256."""
        return hmac.digest(self._secret, message, "sha256")

    def reveal(self) -> bytes:
        """Return the 32 signing bytes, for libraries that sign themselves."""
        return self._secret


class Keyring:
    """The keys for one purpose."""

    def __init__(self, secrets: Iterable[Secret]) -> None:
        keys = [Key.of(secret) for secret in secrets]
        if not keys:
            raise ValueError("a keyring needs at least one key")
        self.signing = keys[0]
        self._keys = {key.key_id: key for key in keys}

    def get(self, key_id: str) -> Key | None:
        """Return the key with this ID, or None if it is unknown or was removed."""
        return self._keys.get(key_id)
