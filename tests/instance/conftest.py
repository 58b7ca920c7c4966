"""Fixtures: engines with the instance's own tables (SQLite, and DynamoDB Local)."""

import io
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from tally.app import CATALOGUE
from tally.kit.clock import ManualClock
from tally.settings import Settings
from tally.store.api import Engine
from tally.store.catalogue import Catalogue
from tally.store.store import Store
from tests.log_capture import captured_log
from tests.store.emulators import engines, new_tables, open_engine, service_url

# With the tables of a backend that operators administer.
TABLES = Catalogue({name: CATALOGUE.backends[name] for name in ("devices", "instance")}).tables()


@dataclass(frozen=True, slots=True)
class StoreTarget:
    """The store for instances: SQLite in their data directory, or the service at `url`."""

    url: str | None

    async def new_settings(self, **changes: Any) -> Settings:
        """Build settings with new, empty tables."""
        tables = {} if self.url is None else await new_tables(self.url, TABLES)
        return Settings(**tables, **changes)


@pytest.fixture(autouse=True)
def log() -> Iterator[io.StringIO]:
    """Capture the log of the test, one JSON object per line."""
    with captured_log() as stream:
        yield stream


@pytest.fixture(scope="session", params=engines("local"))
async def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Engine]:
    """Run tests once per engine, with the instance's tables."""
    async with open_engine(request.param, tmp_path_factory.mktemp("instance"), TABLES) as opened:
        yield opened


@pytest.fixture(scope="session", params=engines("local"))
def store_target(request: pytest.FixtureRequest) -> Iterator[StoreTarget]:
    """Run tests that need empty tables once per engine."""
    with service_url(request.param) as url:
        yield StoreTarget(url)


@pytest.fixture
def clock() -> ManualClock:
    """Start in the far future, because DynamoDB Local deletes expired items by its own clock."""
    return ManualClock(datetime(2096, 1, 1, tzinfo=UTC))


@pytest.fixture
def store(engine: Engine, clock: ManualClock) -> Store:
    return Store(engine, clock)
