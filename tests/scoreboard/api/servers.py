"""PostgreSQL and Redis for tests: started once for many, or one's own, to be killed."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
from redis.asyncio import Redis

from tally.embedded.postgres import Cluster, find_postgres_binaries
from tally.embedded.server_directory import private_directory
from tally.embedded.supervisor import Program, Supervisor
from tally.embedded.valkey import Instance
from tally.embedded.valkey import program as valkey_program
from tally.kit.clock import SystemClock
from tally.kit.metrics import Metrics
from tally.scoreboard.repository.database import open_database_pool
from tally.scoreboard.repository.metrics import StorageMetrics
from tally.scoreboard.repository.migrations import migrate

TEMPLATE = "with_tables"


@dataclass(slots=True)
class Mortal:
    """A server that a test can kill, and start again where it was."""

    program: Program
    address: str
    _supervisor: Supervisor | None = None

    async def start(self) -> None:
        assert self._supervisor is None, "it runs"
        self._supervisor = Supervisor(self.program, SystemClock())
        await self._supervisor.__aenter__()

    async def kill(self) -> None:
        """As `kill -9` does; nobody starts it again but `start`."""
        assert self._supervisor is not None, "it does not run"
        process_id, supervisor = self._supervisor.process_id, self._supervisor
        assert process_id is not None
        self._supervisor = None
        os.kill(process_id, signal.SIGKILL)
        await supervisor.__aexit__()

    def pause(self) -> None:
        """Let it hang: it is there, takes connections, and does not answer."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on, with all that it had."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._supervisor is not None, "it does not run"
        assert self._supervisor.process_id is not None
        os.kill(self._supervisor.process_id, number)

    async def restart(self) -> None:
        await self.kill()
        await self.start()

    async def stop(self) -> None:
        if self._supervisor is not None:
            await self._supervisor.__aexit__()
            self._supervisor = None


@asynccontextmanager
async def mortal_redis(folder: Path) -> AsyncIterator[Mortal]:
    """A Redis of one's own."""
    instance = Instance(private_directory(folder / "valkey"), valkey_program())
    mortal = Mortal(instance.program(), instance.url)
    await mortal.start()
    try:
        yield mortal
    finally:
        await mortal.stop()


@asynccontextmanager
async def mortal_postgres(folder: Path) -> AsyncIterator[Mortal]:
    """A PostgreSQL of one's own, which keeps what it has promised."""
    cluster = Cluster(private_directory(folder / "postgres"), find_postgres_binaries())
    mortal = Mortal(cluster.program(durable=True), cluster.dsn)
    await mortal.start()
    try:
        yield mortal
    finally:
        await mortal.stop()


@dataclass(slots=True)
class Ground:
    """Servers that many tests share; each has a database and a part of Redis to itself."""

    dsn: str
    redis_url: str
    numbers: list[int] = field(default_factory=lambda: [0])

    async def prepare(self) -> None:
        """Make the tables once; databases are then copies, which takes no time."""
        await self._run(f"CREATE DATABASE {TEMPLATE}")
        async with open_database_pool(
            self._at(TEMPLATE), SystemClock(), StorageMetrics(Metrics())
        ) as database:
            await migrate(database)

    async def place(self, part: int | None = None) -> tuple[str, str]:
        """The addresses of an empty database and an empty part of Redis; who stays for the whole run asks for part 0 or 1."""
        self.numbers[0] += 1
        number = self.numbers[0]
        name = f"arena_{number}"
        await self._run(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
        # Redis has sixteen parts: a test is long over when its part is used again.
        url = f"{self.redis_url}?db={number % 14 + 2 if part is None else part}"
        async with Redis.from_url(url) as client:
            await client.flushdb()
        return self._at(name), url

    def _at(self, database: str) -> str:
        return self.dsn.replace("/postgres?", f"/{database}?")

    async def _run(self, statement: str) -> None:
        connection = await asyncpg.connect(self.dsn)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()
