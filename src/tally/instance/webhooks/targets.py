"""Where webhooks may be sent: public addresses only, unless a setting allows private ones.

An operator's URL must not reach services that trust the network of this server, such as a cloud's
metadata service. The host name is resolved before each attempt, every address is checked, and the
connection goes to a checked address: a name that changes its address in between gains nothing.
"""

import asyncio
import ipaddress
import re
import socket
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from tally.errors import Invalid

MAX_URL_LENGTH: Final = 2_048
_MAX_HOST_LENGTH: Final = 253
_MAX_LABEL_LENGTH: Final = 63
_PORTS: Final = {"https": 443, "http": 80}
# Addresses that contain an IPv4 address, to which a gateway translates them.
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
# URL parsers disagree about numeric names such as 0x7f.1, so the last label must not be a number.
_host_name = re.compile(r"(?:[a-z0-9_-]+\.)*(?!\d+$|0x[0-9a-f]*$)[a-z0-9_-]+")

IPAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


class TargetRefused(Exception):
    """The URL leads to an address to which webhooks are not sent."""


@dataclass(frozen=True, slots=True)
class WebhookTarget:
    """The host and port of a URL."""

    host: str
    port: int


def parse_target(url: str, *, allows_private: bool) -> WebhookTarget:
    """Return the target of a URL, or raise Invalid if no webhook may have this URL."""
    schemes = ("https", "http") if allows_private else ("https",)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise _invalid_url("must be a valid URL") from None
    if parts.scheme not in schemes or not url.isascii() or not url.isprintable() or " " in url:
        raise _invalid_url(f"must be an ASCII URL that starts with {' or '.join(schemes)}://")
    if len(url) > MAX_URL_LENGTH:
        raise _invalid_url(f"must be at most {MAX_URL_LENGTH} characters")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise _invalid_url("must not contain credentials or a fragment")
    literal = _parse_address(host)
    if literal is None and not _is_host_name(host):
        raise _invalid_url("must contain a host name or an IP address")
    if port == 0:
        raise _invalid_url("must not contain port 0")
    if not allows_private and (
        host == "localhost" or (literal is not None and not is_public(literal))
    ):
        raise Invalid(
            f"url must not lead to {host}: webhooks are sent to public addresses only; to allow"
            " others, set TALLY_WEBHOOKS_PRIVATE_ADDRESSES",
            code="webhook_address_refused",
            field="url",
        )
    return WebhookTarget(host, port or _PORTS[parts.scheme])


async def resolve_target(
    target: WebhookTarget, *, allows_private: bool, threads: Executor | None = None
) -> str:
    """Return an address of the target, or raise TargetRefused or OSError.

    If one address is not public, the target is refused, whichever address comes first. A slow name
    server occupies a thread of `threads`, by default one of the event loop.
    """
    loop = asyncio.get_running_loop()
    found = await loop.run_in_executor(threads, _look_up, target)
    addresses = [str(sockaddr[0]) for *_, sockaddr in found]
    if not addresses:
        raise OSError("the host name has no address")
    for address in addresses:
        parsed = _parse_address(address)
        if not allows_private and (parsed is None or not is_public(parsed)):
            raise TargetRefused(f"{target.host} has the address {address}, which is not public")
    return addresses[0]


def is_public(address: IPAddress) -> bool:
    """Return whether an address belongs to the public internet."""
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not address.is_multicast and not address.is_reserved
    embedded = address.ipv4_mapped or address.sixtofour
    if embedded is None and address in _NAT64:
        embedded = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    if embedded is not None:
        return is_public(embedded)
    return address in _GLOBAL_UNICAST and address.is_global and address.teredo is None


def _is_host_name(host: str) -> bool:
    labels = host.split(".")
    is_short = len(host) <= _MAX_HOST_LENGTH and max(map(len, labels)) <= _MAX_LABEL_LENGTH
    return is_short and _host_name.fullmatch(host) is not None


def _look_up(target: WebhookTarget) -> list[tuple[Any, ...]]:
    return [*socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)]


def _parse_address(text: str) -> IPAddress | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _invalid_url(problem: str) -> Invalid:
    return Invalid(f"url {problem}", code="invalid_field", field="url")
