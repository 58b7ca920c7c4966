"""Opaque, signed cursors for paginated lists.

A cursor contains a page key of the store. Its signature covers the purpose (the list and its
filters), so that a client can neither forge a cursor nor use it for another query.

    purpose = query_fingerprint("devices.readings", hardware_id=hardware_id, order=order)
    cursor = cursors.encode(purpose, page.next_key)
    page_key = cursors.decode(purpose, cursor)
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from decimal import Decimal
from typing import Final, Literal, TypeAlias

import msgspec

from tally.errors import Invalid
from tally.settings import Secret

KeyValue: TypeAlias = str | int | Decimal | bytes
Tag: TypeAlias = Literal["s", "i", "n", "b"]

VERSION: Final = b"\x01"
SIGNATURE_BYTES: Final = 16
# The longest keys of a table and an index, with room for attribute names.
MAX_LENGTH: Final = 16_384

_decoder = msgspec.msgpack.Decoder(list[tuple[str, Tag, bytes]])


def query_fingerprint(name: str, **query: str | int | None) -> str:
    """Return a string that identifies a list and its filters."""
    return msgspec.json.encode([name, sorted(query.items())]).decode()


class Cursors:
    """Encodes page keys as signed cursors and decodes them."""

    def __init__(self, secret: Secret) -> None:
        self._key = hashlib.sha256(b"tally cursors " + secret.reveal().encode()).digest()

    def encode(self, purpose: str, page_key: Mapping[str, KeyValue]) -> str:
        body = VERSION + msgspec.msgpack.encode(
            [(name, *_encode_value(value)) for name, value in page_key.items()]
        )
        return base64.urlsafe_b64encode(self._signature(purpose, body) + body).rstrip(b"=").decode()

    def decode(self, purpose: str, cursor: str) -> dict[str, KeyValue]:
        """Return the page key, or raise Invalid unless the cursor was signed for this purpose."""
        content = _decode_base64(cursor)
        signature, body = content[:SIGNATURE_BYTES], content[SIGNATURE_BYTES:]
        if (
            not hmac.compare_digest(signature, self._signature(purpose, body))
            or body[:1] != VERSION
        ):
            raise _invalid_cursor()
        return {name: _decode_value(tag, value) for name, tag, value in _decoder.decode(body[1:])}

    def _signature(self, purpose: str, body: bytes) -> bytes:
        # Hashing the purpose to a fixed length separates it from the body unambiguously.
        message = hashlib.sha256(purpose.encode()).digest() + body
        return hmac.digest(self._key, message, "sha256")[:SIGNATURE_BYTES]


def _invalid_cursor() -> Invalid:
    return Invalid(
        "Invalid cursor for this query",
        code="invalid_cursor",
        field="cursor",
    )


def _decode_base64(cursor: str) -> bytes:
    if len(cursor) > MAX_LENGTH or not cursor.isascii():
        raise _invalid_cursor()
    try:
        content = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise _invalid_cursor() from error
    # Base64 can spell the same bytes in several ways; only the canonical one is valid.
    if base64.urlsafe_b64encode(content).rstrip(b"=").decode() != cursor:
        raise _invalid_cursor()
    return content


def _encode_value(value: KeyValue) -> tuple[Tag, bytes]:
    if isinstance(value, bytes):
        return "b", value
    tag: Tag = "s" if isinstance(value, str) else "n" if isinstance(value, Decimal) else "i"
    return tag, str(value).encode()


def _decode_value(tag: Tag, value: bytes) -> KeyValue:
    if tag == "b":
        return value
    text = value.decode()
    if tag == "s":
        return text
    return Decimal(text) if tag == "n" else int(text)
