"""Compressed bodies: requests and responses with the encoding gzip.

The service compresses large responses for clients that accept gzip. The checksum of a response is
that of the compressed body.
"""

import zlib
from collections.abc import Mapping
from typing import Final

from tally.store.wire.service_errors import coral_error, not_serializable

MIN_COMPRESSED_BYTES: Final = 4096  # smaller responses are sent as they are
_GZIP: Final = 16 + zlib.MAX_WBITS
_MAX_MEMBERS: Final = 16
_LEVEL: Final = 1  # a page of 1 MB takes about 10 ms


def decompress_payload(headers: Mapping[bytes, bytes], body: bytes, limit: int) -> bytes:
    """Return the content of a request; it has at most `limit` bytes, also if it is compressed."""
    encoding = headers.get(b"content-encoding", b"identity").strip().lower()
    if encoding == b"identity":
        return body
    if encoding != b"gzip":
        raise not_serializable(f"Unsupported content encoding: {encoding[:64].decode('latin-1')}")
    return _decompress(body, limit)


def _decompress(body: bytes, limit: int) -> bytes:
    """Return the content of a gzip body; as in a file, several members are one content."""
    content = b""
    for _ in range(_MAX_MEMBERS):
        member = zlib.decompressobj(_GZIP)
        try:
            content += member.decompress(body, limit + 1 - len(content))
        except zlib.error as error:
            raise not_serializable(f"The body is not valid gzip: {error}") from None
        if len(content) > limit:
            message = f"The request body must be at most {limit} bytes"
            raise coral_error("RequestEntityTooLargeException", message, 413)
        if not member.eof:
            raise not_serializable("The body is not valid gzip: it ends too early")
        body = member.unused_data
        if not body:
            return content
    raise not_serializable(f"A gzip body may have at most {_MAX_MEMBERS} members")


def compress_payload(accepted: bytes, body: bytes) -> tuple[bytes, bytes]:
    """Return the body of a response and its header of the encoding, if it has one."""
    if len(body) < MIN_COMPRESSED_BYTES or not _accepts_gzip(accepted):
        return body, b""
    deflate = zlib.compressobj(_LEVEL, wbits=_GZIP)
    return deflate.compress(body) + deflate.flush(), b"content-encoding: gzip\r\n"


def _accepts_gzip(accepted: bytes) -> bool:
    for choice in accepted.lower().split(b","):
        name, _, parameters = choice.partition(b";")
        if name.strip() == b"gzip":
            return parameters.replace(b" ", b"").rstrip(b"0") not in (b"q=", b"q=0.")
    return False
