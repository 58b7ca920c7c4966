"""Secrets that have to be stored: encrypted with AES-GCM, and bound to what they belong to.

    sealer = Encryptor(secret, "strava tokens")
    sealed = sealer.encrypt(token, f"user:{user_id}")
    token = sealer.decrypt(sealed, f"user:{user_id}")

Each purpose has a key of its own, derived from the one secret. What was sealed for one context does
not open in another.
"""

import base64
import binascii
import hashlib
import secrets
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tally.settings import Secret

NONCE_BYTES: Final = 12


class DecryptionError(Exception):
    """It was not sealed with this key, for this purpose and context, or has been changed since."""


class Encryptor:
    """Seals and opens text for one purpose."""

    def __init__(self, secret: Secret, purpose: str) -> None:
        self._cipher = AESGCM(
            hashlib.sha256(f"tally sealing {purpose}\n{secret.reveal()}".encode()).digest()
        )

    def encrypt(self, text: str, context: str) -> str:
        nonce = secrets.token_bytes(NONCE_BYTES)
        sealed = self._cipher.encrypt(nonce, text.encode(), context.encode())
        return base64.urlsafe_b64encode(nonce + sealed).decode()

    def decrypt(self, sealed: str, context: str) -> str:
        """What was sealed, or DecryptionError."""
        try:
            whole = base64.urlsafe_b64decode(sealed.encode())
            return self._cipher.decrypt(
                whole[:NONCE_BYTES], whole[NONCE_BYTES:], context.encode()
            ).decode()
        except (InvalidTag, ValueError, binascii.Error) as error:
            raise DecryptionError("The text does not open with this key in this context") from error
