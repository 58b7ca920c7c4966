"""Signatures of webhooks, as in the Standard Webhooks specification.

A secret is `whsec_` and 24 to 64 bytes in Base64. The signature covers the id, the time of the
attempt and the body. While a secret is being replaced, a message is signed with both.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping
from typing import Final

from tally.errors import Invalid
from tally.settings import Secret

PREFIX: Final = "whsec_"
MIN_SECRET_BYTES: Final = 24
MAX_SECRET_BYTES: Final = 64
NEW_SECRET_BYTES: Final = 32


def new_signing_secret() -> Secret:
    return Secret(PREFIX + base64.b64encode(secrets.token_bytes(NEW_SECRET_BYTES)).decode())


def parse_signing_secret(text: str) -> Secret:
    """Return the secret that an operator has chosen, or raise Invalid."""
    try:
        size = len(base64.b64decode(text.removeprefix(PREFIX), validate=True))
    except (binascii.Error, ValueError):
        size = 0
    if not text.startswith(PREFIX) or not MIN_SECRET_BYTES <= size <= MAX_SECRET_BYTES:
        raise Invalid(
            f"secret must be {PREFIX} and {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes in Base64",
            code="invalid_field",
            field="secret",
        )
    return Secret(text)


def signed_headers(
    message_id: str, timestamp: int, body: bytes, signing_secrets: Iterable[Secret]
) -> Mapping[str, str]:
    """Return the headers of a message; `timestamp` is the time of the attempt in epoch seconds."""
    content = f"{message_id}.{timestamp}.".encode() + body
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(_signature(secret, content) for secret in signing_secrets),
    }


def _signature(secret: Secret, content: bytes) -> str:
    key = base64.b64decode(secret.reveal().removeprefix(PREFIX))
    return f"v1,{base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()}"
