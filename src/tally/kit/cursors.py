"""Opaque cursors for paged lists: where the next page starts, signed, and good for the one query it was made for.

A cursor carries a page key of the store. It is signed together with its purpose (what list, with
which filters), so that a client can neither invent one nor carry one over to another query, where
it would start in a place that is not its own.

    purpose = fingerprint("devices.readings", hardware_id=hardware_id, order=order)
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
# The keys of a table and of one index, at their longest, with room for their names.
MAX_LENGTH: Final = 16_384

_decoder = msgspec.msgpack.Decoder(list[tuple[str, Tag, bytes]])


def query_fingerprint(name: str, **query: str | int | None) -> str:
    """One string for a list and its filters; two queries have the same one only if they are the same."""
    return msgspec.json.encode([name, sorted(query.items())]).decode()


class Cursors:
    """Seals page keys into cursors and opens them again."""

    def __init__(self, secret: Secret) -> None:
        self._key = hashlib.sha256(b"tally cursors " + secret.reveal().encode()).digest()

    def encode(self, purpose: str, page_key: Mapping[str, KeyValue]) -> str:
        body = VERSION + msgspec.msgpack.encode(
            [(name, *_tagged(value)) for name, value in page_key.items()]
        )
        return base64.urlsafe_b64encode(self._signature(purpose, body) + body).rstrip(b"=").decode()

    def decode(self, purpose: str, cursor: str) -> dict[str, KeyValue]:
        """The page key in `cursor`, or Invalid if it was not sealed here for this purpose."""
        sealed = _decoded(cursor)
        signature, body = sealed[:SIGNATURE_BYTES], sealed[SIGNATURE_BYTES:]
        if (
            not hmac.compare_digest(signature, self._signature(purpose, body))
            or body[:1] != VERSION
        ):
            raise _refusal()
        return {name: _untagged(tag, value) for name, tag, value in _decoder.decode(body[1:])}

    def _signature(self, purpose: str, body: bytes) -> bytes:
        # The purpose is hashed to a fixed length, so that no part of it can pass for a part of the
        # body.
        message = hashlib.sha256(purpose.encode()).digest() + body
        return hmac.digest(self._key, message, "sha256")[:SIGNATURE_BYTES]


def _refusal() -> Invalid:
    return Invalid(
        "The cursor was not made by this server for this query",
        code="invalid_cursor",
        field="cursor",
    )


def _decoded(cursor: str) -> bytes:
    if len(cursor) > MAX_LENGTH or not cursor.isascii():
        raise _refusal()
    try:
        sealed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise _refusal() from error
    # Base 64 has several spellings of the same bytes; only ours is a cursor.
    if base64.urlsafe_b64encode(sealed).rstrip(b"=").decode() != cursor:
        raise _refusal()
    return sealed


def _tagged(value: KeyValue) -> tuple[Tag, bytes]:
    if isinstance(value, bytes):
        return "b", value
    tag: Tag = "s" if isinstance(value, str) else "n" if isinstance(value, Decimal) else "i"
    return tag, str(value).encode()


def _untagged(tag: Tag, value: bytes) -> KeyValue:
    if tag == "b":
        return value
    text = value.decode()
    if tag == "s":
        return text
    return Decimal(text) if tag == "n" else int(text)
