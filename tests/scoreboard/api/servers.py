"""PostgreSQL and Redis for tests: shared by many tests, or restartable by one."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
from redis.asyncio import Redis

from tally.embedded.postgres import PostgresCluster, find_postgres_binaries
from tally.embedded.server_directory import private_directory
from tally.embedded.supervisor import ServerProgram, Supervisor
from tally.embedded.valkey import ValkeyInstance, find_valkey_binary
from tally.kit.clock import SystemClock
from tally.kit.metrics import Metrics
from tally.scoreboard.repository.database import open_database_pool
from tally.scoreboard.repository.metrics import StorageMetrics
from tally.scoreboard.repository.migrations import migrate

TEMPLATE = "with_tables"


@dataclass(slots=True)
class RestartableServer:
    """A server that a test can kill, pause and restart on the same data."""

    program: ServerProgram
    address: str
    _supervisor: Supervisor | None = None

    @property
    def process_id(self) -> int:
        assert self._supervisor is not None, "the server is not running"
        assert self._supervisor.process_id is not None
        return self._supervisor.process_id

    async def start(self) -> None:
        assert self._supervisor is None, "the server is running"
        self._supervisor = Supervisor(self.program, SystemClock())
        await self._supervisor.__aenter__()

    async def kill(self) -> None:
        """Kill the server with SIGKILL; it stays down until `start`."""
        process_id, supervisor = self.process_id, self._supervisor
        assert supervisor is not None
        self._supervisor = None
        os.kill(process_id, signal.SIGKILL)
        await supervisor.__aexit__()

    def pause(self) -> None:
        """Stop the process with SIGSTOP: it accepts connections and does not respond."""
        os.kill(self.process_id, signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the paused process."""
        os.kill(self.process_id, signal.SIGCONT)

    async def restart(self) -> None:
        await self.kill()
        await self.start()

    async def stop(self) -> None:
        if self._supervisor is not None:
            await self._supervisor.__aexit__()
            self._supervisor = None


@asynccontextmanager
async def restartable_redis(directory: Path) -> AsyncIterator[RestartableServer]:
    """Run a Redis for one test."""
    instance = ValkeyInstance(private_directory(directory / "valkey"), find_valkey_binary())
    server = RestartableServer(instance.program(), instance.url)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def restartable_postgres(directory: Path) -> AsyncIterator[RestartableServer]:
    """Run a durable PostgreSQL for one test."""
    cluster = PostgresCluster(private_directory(directory / "postgres"), find_postgres_binaries())
    server = RestartableServer(cluster.program(durable=True), cluster.dsn)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@dataclass(slots=True)
class SharedServers:
    """One PostgreSQL and one Redis; each test gets its own database in both."""

    dsn: str
    redis_url: str
    numbers: list[int] = field(default_factory=lambda: [0])

    async def prepare(self) -> None:
        """Create the tables in a template, which is fast to copy."""
        await self._run(f"CREATE DATABASE {TEMPLATE}")
        async with open_database_pool(
            self._dsn_for(TEMPLATE), SystemClock(), StorageMetrics(Metrics())
        ) as database:
            await migrate(database)

    async def allocate(self, redis_number: int | None = None) -> tuple[str, str]:
        """Return the addresses of an empty PostgreSQL database and an empty Redis database.

        Session-wide users pass `redis_number` 0 or 1.
        """
        self.numbers[0] += 1
        number = self.numbers[0]
        name = f"scoreboard_{number}"
        await self._run(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
        # Redis has 16 databases: the previous user of a reused one has long finished.
        url = f"{self.redis_url}?db={number % 14 + 2 if redis_number is None else redis_number}"
        async with Redis.from_url(url) as client:
            await client.flushdb()
        return self._dsn_for(name), url

    def _dsn_for(self, database: str) -> str:
        return self.dsn.replace("/postgres?", f"/{database}?")

    async def _run(self, statement: str) -> None:
        connection = await asyncpg.connect(self.dsn)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()
