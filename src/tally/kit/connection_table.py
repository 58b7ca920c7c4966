"""The open connections of a server, and the limits that apply to them.

A new connection above a limit replaces the connection that has waited longest for its client:
for a request, for the rest of one, or for the client to read. Thus silent connections cannot lock
out others. If no connection waits, the new one is refused.

One sweep per second closes connections that have waited too long. A request costs no timer.
"""

import asyncio
import resource
from collections import defaultdict
from dataclasses import dataclass, field
from email.utils import formatdate
from ipaddress import ip_address, ip_network
from typing import Any, Final, Protocol

from uvicorn.server import ServerState

from tally.kit import logs
from tally.kit.addresses import NO_ADDRESS, counted_address
from tally.settings.instance import InstanceSettings

# Descriptors for files, databases, external services and refused connections.
RESERVED_DESCRIPTORS: Final = 128
# Refused connections that may be open, to read their response, beyond the limit.
MAX_REFUSED: Final = 32
ANY_PROXY: Final = "*"

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds that a connection may wait for its client."""

    head: float = 10
    body: float = 30
    idle: float = 30
    write: float = 30


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of one request, and of all connections."""

    header_bytes: int = 16_384
    header_count: int = 100
    url_bytes: int = 8_192
    connections: int = 10_000
    connections_per_address: int = 256
    timeouts: Timeouts = field(default_factory=Timeouts)

    @classmethod
    def of(cls, settings: InstanceSettings) -> "HttpLimits":
        return cls(
            settings.max_header_bytes,
            settings.max_headers,
            settings.max_url_bytes,
            settings.max_connections,
            settings.max_connections_per_address,
            Timeouts(
                head=settings.header_timeout,
                body=settings.body_timeout,
                idle=settings.idle_timeout,
                write=settings.write_timeout,
            ),
        )


class Connection(Protocol):
    """What the table needs to know about a connection."""

    deadline: float
    address: str
    transport: asyncio.Transport

    def time_out(self) -> None: ...


class TrustedProxies:
    """The proxies that the limit per address does not apply to: each carries many clients."""

    def __init__(self, proxies: tuple[str, ...]) -> None:
        self._trusts_all = ANY_PROXY in proxies
        self._networks = [ip_network(proxy) for proxy in proxies if proxy != ANY_PROXY]

    def __contains__(self, host: str) -> bool:
        if self._trusts_all:
            return True
        try:
            address = ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._networks)


def max_connections(configured: int) -> int:
    """Return the limit of connections that the process has descriptors for."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return configured
    return min(configured, max(descriptors - RESERVED_DESCRIPTORS, descriptors // 2))


class ConnectionTable(ServerState):
    """Counts connections, and closes those that wait too long for their client."""

    def __init__(self, limits: HttpLimits, trusted_proxies: tuple[str, ...]) -> None:
        super().__init__()
        # This server's connections and uvicorn's WebSocket connections.
        self.connections: set[Any] = set()
        self.limits = limits
        self.is_draining = False
        self.date_line = _date_line()
        # Connections that wait for their client, in the order in which they began to wait.
        self.waiting: dict[Connection, None] = {}
        self._max_connections = max_connections(limits.connections)
        self._trusted_proxies = TrustedProxies(trusted_proxies)
        self._by_address: defaultdict[str, dict[Connection, None]] = defaultdict(dict)
        self._upgraded: set[Connection] = set()
        self._is_full = False

    def admit(self, connection: Connection, host: str) -> bool:
        """Count a new connection; return whether it may send requests."""
        self.connections.add(connection)
        if host in self._trusted_proxies:
            connection.address = NO_ADDRESS
        else:
            connection.address = counted_address(host)
            group = self._by_address[connection.address]
            group[connection] = None
            if len(group) > self.limits.connections_per_address and not self._replace(
                min(group, key=lambda member: member.deadline)
            ):
                return False
        excess = len(self.connections) - self._max_connections
        self._report(is_full=excess > 0)
        if excess <= 0 or self._replace(next(iter(self.waiting), None)):
            return True
        if excess > MAX_REFUSED:
            connection.transport.abort()
        return False

    def upgrade(self, connection: Connection) -> None:
        """Keep counting a connection that continues as a WebSocket, until its transport closes."""
        self.connections.discard(connection)
        self.waiting.pop(connection, None)
        self._upgraded.add(connection)

    def remove(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self.waiting.pop(connection, None)
        group = self._by_address.get(connection.address)
        if group is not None:
            group.pop(connection, None)
            if not group:
                del self._by_address[connection.address]

    def sweep(self, now: float) -> None:
        """Time out connections and update the date; call it once a second."""
        self.date_line = _date_line()
        for connection in [each for each in self.waiting if each.deadline <= now]:
            connection.time_out()
        for connection in [each for each in self._upgraded if each.transport.is_closing()]:
            self._upgraded.remove(connection)
            self.remove(connection)

    def _replace(self, oldest: Connection | None) -> bool:
        """Close the connection that has waited longest, if one waits."""
        if oldest is None or oldest.deadline == float("inf"):
            return False
        self.remove(oldest)
        oldest.transport.abort()
        return True

    def _report(self, *, is_full: bool) -> None:
        if is_full and not self._is_full:
            _log.warning(
                "Connection limit reached",
                action="connection_limit_reached",
                limit=self._max_connections,
            )
        self._is_full = is_full


def _date_line() -> bytes:
    return f"date: {formatdate(usegmt=True)}\r\n".encode()
