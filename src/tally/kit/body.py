"""Parses request bodies and query strings into msgspec structs.

    reading = await read_json(request, Reading)
    page = read_query(request, PageQuery)

An error names the invalid field. Wrong content types, oversized or deeply nested bodies, malformed
JSON, numbers out of range and gzip bombs all raise domain errors. Structs that reject unknown
fields derive from `StrictStruct`.
"""

import re
import zlib
from collections.abc import Collection
from typing import Any, Final, NoReturn, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from tally.errors import Invalid, TooLarge, UnsupportedMedia

T = TypeVar("T")

MAX_BODY_BYTES: Final = 1024 * 1024
IDENTITY_ENCODINGS: Final = (b"", b"identity")
GZIP_ENCODINGS: Final = (*IDENTITY_ENCODINGS, b"gzip")

_json_type = re.compile(
    rb"application/(?:[\w.-]+\+)?json(?:\s*;\s*charset=\"?utf-8\"?)?\s*", re.IGNORECASE
)
_error_location = re.compile(
    r"(?P<what>.*?)(?: - at `(?:key in )?\$\.?(?P<path>[^`]*)`)?", re.DOTALL
)
_missing_field = re.compile(r"Object missing required field `([^`]*)`")
_unknown_field = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
# Creating a decoder costs more than using it; there is one per body type.
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


class StrictStruct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request body that rejects unknown fields."""


async def read_json(
    request: Request, kind: type[T], *, limit: int = MAX_BODY_BYTES, gzip: bool = False
) -> T:
    """Return the body decoded as `kind`; `limit` applies before and after decompression."""
    return decode_json(await read_body(request, limit=limit, gzip=gzip), kind)


async def read_body(request: Request, *, limit: int = MAX_BODY_BYTES, gzip: bool = False) -> bytes:
    """Return the JSON body as bytes, decompressed."""
    headers = dict(request.scope["headers"])
    content_type = headers.get(b"content-type", b"")
    if content_type != b"application/json" and not _json_type.fullmatch(content_type):
        actual = f", not {content_type[:100].decode('latin-1')}" if content_type else ""
        raise UnsupportedMedia(
            f"The content type must be application/json{actual}", field="Content-Type"
        )
    encoding = headers.get(b"content-encoding", b"").lower()
    if encoding not in (GZIP_ENCODINGS if gzip else IDENTITY_ENCODINGS):
        accepted = "gzip or none" if gzip else "none"
        raise UnsupportedMedia(f"The content encoding must be {accepted}", field="Content-Encoding")
    body = await _read(request.receive, headers.get(b"content-length", b""), limit)
    return decompress(body, limit) if encoding == b"gzip" else body


async def read_file(request: Request, media_types: Collection[str], *, limit: int) -> bytes:
    """Return a body that is a file, as it is; a request without a content type is accepted."""
    headers = dict(request.scope["headers"])
    content_type = headers.get(b"content-type", b"").decode("latin-1")
    if content_type and content_type.partition(";")[0].strip().lower() not in media_types:
        raise UnsupportedMedia(
            f"The content type must be {', '.join(media_types)}, not {content_type[:100]};"
            " send the file itself as the body",
            field="Content-Type",
        )
    if headers.get(b"content-encoding", b"").lower() not in IDENTITY_ENCODINGS:
        raise UnsupportedMedia("The content encoding must be none", field="Content-Encoding")
    return await _read(request.receive, headers.get(b"content-length", b""), limit)


def decode_json(body: bytes, kind: type[T]) -> T:
    """Return `body` decoded as `kind`, or raise Invalid.

    The code is `malformed_json`, `missing_field`, `unknown_field` or `invalid_field`.
    """
    try:
        return _decoder(kind).decode(body)
    except msgspec.ValidationError as error:
        _raise_invalid(error)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"The body is not valid JSON: {error}", code="malformed_json") from error
    except RecursionError as error:
        raise Invalid("The body is nested too deeply", code="malformed_json") from error


def read_query(request: Request, kind: type[T]) -> T:
    """Return the query string decoded as `kind`; repeated and unknown parameters are invalid."""
    parameters: dict[str, str] = {}
    # Most requests have no query string, and parsing an empty one is not free.
    query_string = request.scope["query_string"].decode("latin-1")
    pairs = parse_qsl(query_string, keep_blank_values=True) if query_string else ()
    for name, value in pairs:
        if name in parameters:
            raise Invalid(f"{name} must be given only once", code="invalid_field", field=name)
        parameters[name] = value
    try:
        return msgspec.convert(parameters, kind, strict=False)
    except msgspec.ValidationError as error:
        _raise_invalid(error)


def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    if kind not in _decoders:
        _decoders[kind] = msgspec.json.Decoder(kind)
    return _decoders[kind]


async def _read(receive: Receive, content_length: bytes, limit: int) -> bytes:
    if content_length.isdigit() and int(content_length) > limit:
        raise _too_large(limit)
    chunks = []
    size = 0
    has_more = True
    while has_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > limit:
            raise _too_large(limit)
        has_more = message.get("more_body", False)
    return b"".join(chunks)


def decompress(body: bytes, limit: int) -> bytes:
    """Return the content of one gzip member; raise TallyError for any other body."""
    decompressor = zlib.decompressobj(wbits=31)
    try:
        content = decompressor.decompress(body, limit + 1)
    except zlib.error as error:
        raise Invalid(f"The body is not valid gzip: {error}", code="malformed_gzip") from error
    if len(content) > limit:
        raise _too_large(limit)
    if not decompressor.eof or decompressor.unused_data:
        raise Invalid("The body must be exactly one gzip member", code="malformed_gzip")
    return content


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"The body must be at most {limit} bytes", limit=limit)


def _raise_invalid(error: msgspec.ValidationError) -> NoReturn:
    """Translate a msgspec error: `Expected `int`, got `str` - at `$.readings[0].timestamp_ms``."""
    match = _error_location.fullmatch(str(error))
    what, path = (match["what"], match["path"] or "") if match else (str(error), "")
    code = "invalid_field"
    for pattern, field_code, problem in (
        (_missing_field, "missing_field", "is missing"),
        (_unknown_field, "unknown_field", "is not a known field"),
    ):
        if named := pattern.fullmatch(what):
            code, what = field_code, problem
            path = f"{path}.{named[1]}" if path else named[1]
    where = path[:200] or "body"
    raise Invalid(
        f"{where}: {what}" if code == "invalid_field" else f"{where} {what}", code=code, field=where
    ) from error
