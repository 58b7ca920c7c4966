"""Keys that can be changed without a break: the first of them signs, all of them verify.

A keyring is a list of secrets separated by commas, the newest first. Each has an id that follows
from the secret itself, so that nobody has to name keys, and a token says which of them it was
signed with. To change keys, add the new one at the end everywhere, then move it to the front, and
take the old one away when what it signed has expired.
"""

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from tally.settings import Secret


@dataclass(frozen=True, slots=True)
class Key:
    """A secret and the id that it goes by, which gives nothing away of it."""

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
        """The 32 bytes that sign, for a library that does it itself."""
        return self._secret


class Keyring:
    """The keys of one purpose."""

    def __init__(self, secrets: Iterable[Secret]) -> None:
        keys = [Key.of(secret) for secret in secrets]
        if not keys:
            raise ValueError("a keyring has at least one key")
        self.signing = keys[0]
        self._keys = {key.key_id: key for key in keys}

    def get(self, key_id: str) -> Key | None:
        """The key of that id, or None if it is not, or no longer, on the ring."""
        return self._keys.get(key_id)
