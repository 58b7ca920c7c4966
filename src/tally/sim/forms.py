"""Reads what browsers and OAuth clients send to a simulator: query strings, forms and JSON, as plain names and values."""

from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
from starlette.requests import Request

from tally.errors import Invalid

T = TypeVar("T")

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


async def read_form(request: Request) -> dict[str, str]:
    """The fields of an `application/x-www-form-urlencoded` body; nothing if it is something else."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return {}
    try:
        return dict(parse_qsl((await request.body()).decode(), keep_blank_values=True))
    except (UnicodeDecodeError, ValueError) as error:
        raise Invalid("The body is not a form") from error


async def read_parameters(request: Request) -> dict[str, str]:
    """What was sent in the query, a form or a JSON object, whichever the client preferred."""
    found = dict(request.query_params) | await read_form(request)
    if request.headers.get("content-type", "").startswith("application/json"):
        fields = await read_control(request, dict[str, str | int])
        found |= {name: str(value) for name, value in fields.items()}
    return found


async def read_control(request: Request, kind: type[T]) -> T:
    """The JSON body of a request to the control API."""
    try:
        return msgspec.json.decode(await request.body(), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"The body does not fit: {error}") from error


def with_query(url: str, parameters: Mapping[str, str | None]) -> str:
    """`url` with these parameters added to those it has; those without a value are left out."""
    added = urlencode({name: value for name, value in parameters.items() if value is not None})
    parts = urlsplit(url)
    return parts._replace(query="&".join(filter(None, (parts.query, added)))).geturl()


def host_of(url: str) -> str | None:
    """The host of a web address; None if it is no such thing."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return parts.hostname if parts.scheme in {"http", "https"} else None


def is_local(url: str) -> bool:
    """Whether it leads to this machine, which is where the demo and the tests live."""
    return host_of(url) in LOOPBACK
