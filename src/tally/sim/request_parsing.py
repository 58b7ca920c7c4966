"""Parses requests to simulators: query strings, forms and JSON bodies; builds and checks URLs."""

from base64 import b64decode
from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
from starlette.requests import Request

from tally.errors import Invalid
from tally.settings import LOOPBACK_HOSTS

T = TypeVar("T")


async def read_form(request: Request) -> dict[str, str]:
    """The fields of an `application/x-www-form-urlencoded` body; empty for other content types."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return {}
    try:
        return dict(parse_qsl((await request.body()).decode(), keep_blank_values=True))
    except (UnicodeDecodeError, ValueError) as error:
        raise Invalid("Invalid form body") from error


async def read_parameters(request: Request) -> dict[str, str]:
    """The parameters from the query string and from a form or JSON body."""
    found = dict(request.query_params) | await read_form(request)
    if request.headers.get("content-type", "").startswith("application/json"):
        fields = await read_json_body(request, dict[str, str | int])
        found |= {name: str(value) for name, value in fields.items()}
    return found


async def read_json_body(request: Request, kind: type[T]) -> T:
    """Decode a JSON body as `kind`."""
    try:
        return msgspec.json.decode(await request.body(), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"Invalid body: {error}") from error


def read_bearer_token(request: Request) -> str:
    """The token of an `Authorization: Bearer` header; empty if there is none."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token if scheme.lower() == "bearer" else ""


def read_basic_credentials(request: Request) -> tuple[str, str]:
    """The name and password of an `Authorization: Basic` header; empty if there is none."""
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return "", ""
    try:
        name, _, password = b64decode(encoded, validate=True).decode().partition(":")
    except (ValueError, UnicodeDecodeError):
        return "", ""
    return name, password


def with_query(url: str, parameters: Mapping[str, str | None]) -> str:
    """Add parameters to the query of `url`, except those that are None."""
    added = urlencode({name: value for name, value in parameters.items() if value is not None})
    parts = urlsplit(url)
    return parts._replace(query="&".join(filter(None, (parts.query, added)))).geturl()


def url_host(url: str) -> str | None:
    """The host of an HTTP URL; None if `url` is not one."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return parts.hostname if parts.scheme in {"http", "https"} else None


def is_local(url: str) -> bool:
    """Whether the URL points to this machine."""
    return url_host(url) in LOOPBACK_HOSTS
