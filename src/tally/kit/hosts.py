"""Checks the Host header of every request, so that no web page reaches Tally by DNS rebinding.

A page of evil.example can change the address of its own name to 127.0.0.1. The browser then treats
Tally as the page's own origin, but still sends `Host: evil.example`. `HostCheck` wraps the whole
app, with mounted apps and WebSockets, and accepts IP addresses, localhost and the names that
TALLY_ALLOWED_HOSTS lists, with any port. Other names get 421, and a Host header that is missing,
repeated or malformed gets 400. Forwarded headers have no effect.
"""

import re
from collections.abc import Awaitable, Collection
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tally.errors import Invalid, Misdirected, TallyError
from tally.kit import logs
from tally.kit.http import UNEXPECTED, to_problem
from tally.kit.ids import new_uuid

LOCALHOST: Final = "localhost"
ANY_HOST: Final = "*"
MAX_ACCEPTED_HOSTS: Final = 1_000
# A DNS name has at most 253 characters, a port five digits.
MAX_HOST_BYTES: Final = 260

# One dot at the end denotes the DNS root, which changes nothing.
_authority = re.compile(
    rb"(?:(?P<name>[a-z0-9_-]+(?:\.[a-z0-9_-]+)*)\.?|\[(?P<ipv6>[0-9a-f:.]+)\])(?::[0-9]{0,5})?",
    re.IGNORECASE,
)


class AllowedHosts:
    """Host names that requests may use: exact names, `*.example.com` for subdomains, `*` for all.

    IP addresses and localhost are always allowed.
    """

    def __init__(self, names: Collection[str] = ()) -> None:
        self._allows_all = ANY_HOST in names
        self._names = frozenset({LOCALHOST, *names})
        self._suffixes = tuple(name[1:] for name in names if name.startswith("*."))
        # Headers that passed, so that most checks are one look-up.
        self._accepted: set[bytes] = set()

    def check(self, header: bytes) -> None:
        """Raise Invalid for a malformed header, and Misdirected for a name that is not allowed."""
        if header in self._accepted:
            return
        name = _parse_name(header)
        if name is not None and not self._allows(name):
            raise Misdirected(
                f"This server does not serve {name}; add the name to TALLY_ALLOWED_HOSTS",
                field="Host",
            )
        if len(self._accepted) == MAX_ACCEPTED_HOSTS:
            self._accepted.clear()
        self._accepted.add(header)

    def _allows(self, name: str) -> bool:
        return (
            self._allows_all
            or name in self._names
            or name.endswith(self._suffixes)
            or _is_address(IPv4Address, name)
        )


class HostCheck:
    """ASGI middleware that passes on requests for allowed hosts only."""

    def __init__(self, app: ASGIApp, allowed_hosts: Collection[str] = ()) -> None:
        self._app = app
        self._allowed = AllowedHosts(allowed_hosts)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "lifespan":
            headers = [value for name, value in scope["headers"] if name == b"host"]
            try:
                self._allowed.check(headers[0] if len(headers) == 1 else b"")
            except TallyError as error:
                return _response(error)(scope, receive, send)
        return self._app(scope, receive, send)


def _response(error: TallyError) -> Response:
    request_id = new_uuid()
    logs.set_context(logs.Context(request_id=request_id, correlation_id=request_id))
    problem = to_problem(error) or UNEXPECTED
    response = problem.response()
    response.headers["X-Request-Id"] = request_id
    return response


def _parse_name(header: bytes) -> str | None:
    """Return the host name or IPv4 address in lower case; None for an IPv6 address."""
    match = _authority.fullmatch(header) if len(header) <= MAX_HOST_BYTES else None
    if match is not None and match["name"] is not None:
        return match["name"].decode().lower()
    if match is not None and _is_address(IPv6Address, match["ipv6"].decode()):
        return None
    raise Invalid("The request must have one valid Host header", code="invalid_host", field="Host")


def _is_address(kind: type[IPv4Address | IPv6Address], text: str) -> bool:
    try:
        kind(text)
    except AddressValueError:
        return False
    return True
