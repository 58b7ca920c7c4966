"""The address that limits count a client by."""

import ipaddress
from functools import lru_cache
from typing import Final

from starlette.requests import HTTPConnection

# Clients on a Unix socket have no address and share this key.
NO_ADDRESS: Final = "nowhere"
# A provider assigns at least this network to one customer, who may use any address in it.
IPV6_PREFIX_LENGTH: Final = 64
# Parsing an address takes longer than looking up that of a returning client.
MAX_CACHED_ADDRESSES: Final = 4096


@lru_cache(maxsize=MAX_CACHED_ADDRESSES)
def counted_address(host: str | None) -> str:
    """Return the key to count `host` by: an IPv4 address, or the /64 network of an IPv6 address."""
    try:
        address = ipaddress.ip_address(host or "")
    except ValueError:
        return NO_ADDRESS
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    # A zone such as %eth0 is not part of the network.
    return str(ipaddress.IPv6Network((int(address), IPV6_PREFIX_LENGTH), strict=False))


def client_address(request: HTTPConnection) -> str:
    """Return the key to count the client of a request by."""
    return counted_address(request.client.host if request.client else None)
