"""Fixtures: engines with the tables of collect (SQLite, and DynamoDB Local), and servers on them.

Tests share tables, never keys: each creates its own users, athletes and models.
"""

import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tally.app import CATALOGUE
from tally.collect.repository.audit import AuditRepository
from tally.collect.repository.idempotency import IdempotencyRepository
from tally.collect.repository.main import CollectRepository
from tally.collect.repository.sessions import BrowserSessionRepository
from tally.kit.clock import ManualClock
from tally.store.api import Engine
from tally.store.catalogue import Catalogue
from tally.store.store import Store
from tests.collect.server_harness import CollectServer, open_server
from tests.log_capture import captured_log
from tests.store.emulators import engines, new_tables, open_engine, service_url

LogText: TypeAlias = Callable[[], str]
TABLES = Catalogue({name: CATALOGUE.backends[name] for name in ("collect", "instance")}).tables()
ENGINES = engines("local")


@pytest.fixture(scope="session", params=ENGINES)
async def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Engine]:
    """Run tests once per engine, with the tables of collect and of the instance."""
    folder = tmp_path_factory.mktemp("collect")
    async with open_engine(request.param, folder, TABLES) as opened:
        yield opened


@dataclass(frozen=True, slots=True)
class StoreTarget:
    """The store for servers: a directory, and the endpoint of an external service."""

    folder: Path
    url: str | None

    async def new_location(self) -> tuple[Path, dict[str, Any]]:
        """Return a new directory, and settings with new, empty tables."""
        folder = self.folder / secrets.token_hex(8)
        if self.url is None:
            return folder, {}
        settings = await new_tables(self.url, TABLES)
        # An external service expires items by its own clock, so the test clock must not lag.
        return folder, settings | {"start": datetime.now(UTC).replace(microsecond=0)}


@pytest.fixture(scope="session", params=ENGINES)
def store_target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StoreTarget]:
    """Run tests with servers once per engine."""
    folder = tmp_path_factory.mktemp("collect")
    with service_url(request.param) as url:
        yield StoreTarget(folder, url)


@pytest.fixture(scope="session")
async def server(store_target: StoreTarget) -> AsyncIterator[CollectServer]:
    """A server shared by all tests. Use your own users and leave the inbox empty."""
    folder, settings = await store_target.new_location()
    async with open_server(folder, **settings) as opened:
        yield opened


@pytest.fixture
async def fresh_server(store_target: StoreTarget) -> AsyncIterator[CollectServer]:
    """A server with empty tables and its own Strava simulator."""
    folder, settings = await store_target.new_location()
    async with open_server(folder, **settings) as opened:
        yield opened


@pytest.fixture(autouse=True)
def log_text() -> Iterator[LogText]:
    """Capture the log of the test."""
    with captured_log() as stream:
        yield stream.getvalue


@pytest.fixture
def clock() -> ManualClock:
    """Start in the far future, because DynamoDB Local deletes expired items by its own clock."""
    return ManualClock(datetime(2096, 1, 1, tzinfo=UTC))


@pytest.fixture
def store(engine: Engine, clock: ManualClock) -> Store:
    return Store(engine, clock)


@pytest.fixture
def repository(store: Store) -> CollectRepository:
    return CollectRepository(store)


@pytest.fixture
def sessions(store: Store) -> BrowserSessionRepository:
    return BrowserSessionRepository(store)


@pytest.fixture
def audit(store: Store) -> AuditRepository:
    return AuditRepository(store)


@pytest.fixture
def idempotency(store: Store) -> IdempotencyRepository:
    return IdempotencyRepository(store)
