"""One PostgreSQL and one Redis per test worker, cleared before each test."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from tally.embedded.postgres import open_postgres
from tally.embedded.valkey import open_valkey
from tally.kit.clock import SystemClock
from tally.kit.metrics import Metrics
from tally.scoreboard.repository.database import PoolLimits, open_database_pool
from tally.scoreboard.repository.metrics import StorageMetrics
from tally.scoreboard.repository.migrations import migrate
from tally.scoreboard.repository.redis_client import open_redis
from tests.scoreboard.repository.harness import Repositories


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses of PostgreSQL and Redis."""

    dsn: str
    url: str


@pytest.fixture(scope="session")
async def addresses(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Addresses]:
    directory, clock = tmp_path_factory.mktemp("servers"), SystemClock()
    async with (
        open_postgres(directory, clock, durable=False) as dsn,
        open_valkey(directory, clock) as url,
    ):
        yield Addresses(dsn, url)


@pytest.fixture(scope="session")
async def shared_repositories(addresses: Addresses) -> AsyncIterator[Repositories]:
    """The repositories, for property tests that clear them before each example."""
    clock, metrics = SystemClock(), StorageMetrics(Metrics())
    limits = PoolLimits(max_connections=10, acquire_seconds=60, statement_seconds=60)
    async with (
        open_database_pool(addresses.dsn, clock, metrics, limits) as database,
        open_redis(addresses.url, clock, metrics, seconds=30) as redis,
    ):
        await migrate(database)
        yield Repositories(database, redis)


@pytest.fixture
async def repositories(shared_repositories: Repositories) -> Repositories:
    """The repositories without players, and with a complete, empty leaderboard."""
    await shared_repositories.clear()
    return shared_repositories
