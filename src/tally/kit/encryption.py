"""Encrypts stored secrets with AES-GCM and binds each to its context.

    encryptor = Encryptor(secret, "strava tokens")
    ciphertext = encryptor.encrypt(token, f"user:{user_id}")
    token = encryptor.decrypt(ciphertext, f"user:{user_id}")

Each purpose has its own key, derived from the secret. A ciphertext can be decrypted only with the
context it was encrypted for.
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
    """The ciphertext was modified, or the key, purpose or context differs."""


class Encryptor:
    """Encrypts and decrypts text for one purpose."""

    def __init__(self, secret: Secret, purpose: str) -> None:
        self._cipher = AESGCM(
            hashlib.sha256(f"tally sealing {purpose}\n{secret.reveal()}".encode()).digest()
        )

    def encrypt(self, text: str, context: str) -> str:
        nonce = secrets.token_bytes(NONCE_BYTES)
        ciphertext = self._cipher.encrypt(nonce, text.encode(), context.encode())
        return base64.urlsafe_b64encode(nonce + ciphertext).decode()

    def decrypt(self, ciphertext: str, context: str) -> str:
        """Return the plain text, or raise DecryptionError."""
        try:
            content = base64.urlsafe_b64decode(ciphertext.encode())
            return self._cipher.decrypt(
                content[:NONCE_BYTES], content[NONCE_BYTES:], context.encode()
            ).decode()
        except (InvalidTag, ValueError, binascii.Error) as error:
            raise DecryptionError(
                "Decryption failed: wrong key or context, or modified ciphertext"
            ) from error
