"""Reads what clients send: JSON bodies and query strings into msgspec structs, or an error that names the field.

    reading = await read_json(request, Reading)
    page = read_query(request, PageQuery)

Nothing a client sends makes anything here fail otherwise: not a wrong content type, a body without
end, broken or deeply nested JSON, a number that does not fit, or a gzip bomb. Structs that refuse
unknown fields derive from `Strict`.
"""

import re
import zlib
from typing import Any, Final, NoReturn, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from tally.errors import Invalid, TooLarge, UnsupportedMedia

T = TypeVar("T")

MAX_BODY_BYTES: Final = 1024 * 1024
PLAIN: Final = (b"", b"identity")
GZIPPED: Final = (*PLAIN, b"gzip")

_json_type = re.compile(
    rb"application/(?:[\w.-]+\+)?json(?:\s*;\s*charset=\"?utf-8\"?)?\s*", re.IGNORECASE
)
_place = re.compile(r"(?P<what>.*?)(?: - at `(?:key in )?\$\.?(?P<path>[^`]*)`)?", re.DOTALL)
_missing = re.compile(r"Object missing required field `([^`]*)`")
_unknown = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
# To make one costs more than to use it; there are as many as there are kinds of bodies.
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


class StrictStruct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A wire body that refuses fields it does not know."""


async def read_json(
    request: Request, kind: type[T], *, limit: int = MAX_BODY_BYTES, gzip: bool = False
) -> T:
    """The body of `request` as a `kind`; at most `limit` bytes of it, before and after unpacking."""
    return decode_json(await read_body(request, limit=limit, gzip=gzip), kind)


async def read_body(request: Request, *, limit: int = MAX_BODY_BYTES, gzip: bool = False) -> bytes:
    """The JSON that is the body of `request`, as it came, but unpacked."""
    told = dict(request.scope["headers"])
    content_type = told.get(b"content-type", b"")
    if content_type != b"application/json" and not _json_type.fullmatch(content_type):
        given = f", not {content_type[:100].decode('latin-1')}" if content_type else ""
        raise UnsupportedMedia(
            f"The content type must be application/json{given}", field="Content-Type"
        )
    encoding = told.get(b"content-encoding", b"").lower()
    if encoding not in (GZIPPED if gzip else PLAIN):
        accepted = "gzip or none" if gzip else "none"
        raise UnsupportedMedia(f"The content encoding must be {accepted}", field="Content-Encoding")
    body = await _read(request.receive, told.get(b"content-length", b""), limit)
    return _unpack(body, limit) if encoding == b"gzip" else body


def decode_json(body: bytes, kind: type[T]) -> T:
    """`body` as a `kind`, or Invalid: `malformed_json`, `missing_field`, `unknown_field` or `invalid_field`."""
    try:
        return _decoder(kind).decode(body)
    except msgspec.ValidationError as error:
        _refuse(error)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"The body is not JSON: {error}", code="malformed_json") from error
    except RecursionError as error:
        raise Invalid("The body is nested too deeply", code="malformed_json") from error


def read_query(request: Request, kind: type[T]) -> T:
    """The query string as a `kind`: every parameter once, none that is not a field of it."""
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in given:
            raise Invalid(f"{name} is given twice", code="invalid_field", field=name)
        given[name] = value
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        _refuse(error)


def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    if kind not in _decoders:
        _decoders[kind] = msgspec.json.Decoder(kind)
    return _decoders[kind]


async def _read(receive: Receive, announced: bytes, limit: int) -> bytes:
    if announced.isdigit() and int(announced) > limit:
        raise _too_large(limit)
    chunks = []
    size = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > limit:
            raise _too_large(limit)
        more = message.get("more_body", False)
    return b"".join(chunks)


def _unpack(body: bytes, limit: int) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)
    try:
        unpacked = unpacker.decompress(body, limit + 1)
    except zlib.error as error:
        raise Invalid(f"The body is not gzip: {error}", code="malformed_gzip") from error
    if len(unpacked) > limit:
        raise _too_large(limit)
    if not unpacker.eof or unpacker.unused_data:
        raise Invalid("The body is not one whole gzip member", code="malformed_gzip")
    return unpacked


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"The body must not be longer than {limit} bytes", limit=limit)


def _refuse(error: msgspec.ValidationError) -> NoReturn:
    """Name the field: msgspec says `Expected `int`, got `str` - at `$.readings[0].timestamp_ms``."""
    match = _place.fullmatch(str(error))
    what, path = (match["what"], match["path"] or "") if match else (str(error), "")
    code = "invalid_field"
    for pattern, its_code, says in (
        (_missing, "missing_field", "is missing"),
        (_unknown, "unknown_field", "is not known here"),
    ):
        if named := pattern.fullmatch(what):
            code, what = its_code, says
            path = f"{path}.{named[1]}" if path else named[1]
    where = path[:200] or "body"
    raise Invalid(
        f"{where}: {what}" if code == "invalid_field" else f"{where} {what}", code=code, field=where
    ) from error
