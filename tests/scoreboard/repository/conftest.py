"""A PostgreSQL with the tables and a Redis, for all tests of a worker, emptied before each of them."""

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
    dsn: str
    url: str


@pytest.fixture(scope="session")
async def addresses(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Addresses]:
    folder, clock = tmp_path_factory.mktemp("league"), SystemClock()
    async with (
        open_postgres(folder, clock, durable=False) as dsn,
        open_valkey(folder, clock) as url,
    ):
        yield Addresses(dsn, url)


@pytest.fixture(scope="session")
async def shared(addresses: Addresses) -> AsyncIterator[Repositories]:
    """The repositories, for tests that make up their own input and clear up after each round."""
    clock, metrics = SystemClock(), StorageMetrics(Metrics())
    limits = PoolLimits(max_connections=10, acquire_seconds=60, statement_seconds=60)
    async with (
        open_database_pool(addresses.dsn, clock, metrics, limits) as database,
        open_redis(addresses.url, clock, metrics, seconds=30) as server,
    ):
        await migrate(database)
        yield Repositories(database, server)


@pytest.fixture
async def repositories(shared: Repositories) -> Repositories:
    """The repositories, with nobody in them, and a board that is whole and empty."""
    await shared.clear()
    return shared
