"""Fixtures: servers on every engine.

- `sqlite`: always.
- `local`: DynamoDB Local, if Java and npm are installed.
- `given`: the service at `TALLY_TEST_DYNAMODB_URL`.

All tests share `server` and use their own boards and keys. Its clock only moves forward. A test
that needs empty tables uses `fresh_server`. A test that needs other settings or several servers
calls `store_target.new_settings` and opens them itself.
"""

import io
import secrets
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tally.app import CATALOGUE, open_engine
from tally.kit.clock import SystemClock
from tally.settings import Settings
from tally.store.catalogue import Catalogue
from tally.store.store import Store
from tests.devices.harness import DevicesServer, make_settings, open_server, wait_until_built
from tests.log_capture import captured_log
from tests.store.emulators import engines, new_tables, service_url

TABLES = Catalogue({name: CATALOGUE.backends[name] for name in ("devices", "instance")}).tables()
ENGINES = engines("local")


@dataclass(frozen=True, slots=True)
class StoreTarget:
    """The store for servers: engine name, endpoint of an external service, and a directory."""

    engine: str
    url: str | None
    folder: Path

    async def new_settings(self, **changes: Any) -> Settings:
        """Build settings with new, empty tables."""
        folder = self.folder / secrets.token_hex(8)
        if self.url is None:
            return make_settings(data_dir=folder, **changes)
        tables = await new_tables(self.url, TABLES)
        return make_settings(data_dir=folder, **tables, **changes)


@pytest.fixture(autouse=True)
def log() -> Iterator[io.StringIO]:
    """Capture the log of the test, one JSON object per line."""
    with captured_log() as stream:
        yield stream


@pytest.fixture(scope="session", params=ENGINES)
def store_target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StoreTarget]:
    """Run tests once per engine."""
    folder = tmp_path_factory.mktemp(request.param)
    with service_url(request.param) as url:
        yield StoreTarget(request.param, url, folder)


@pytest.fixture(scope="session")
async def server(store_target: StoreTarget) -> AsyncIterator[DevicesServer]:
    """A server shared by all tests. Use your own boards and keys; lists are not empty."""
    async with open_server(await store_target.new_settings()) as server:
        if store_target.engine != "given":  # which may have no streams
            await wait_until_built(server)
        yield server


@pytest.fixture(scope="session")
async def key(server: DevicesServer) -> str:
    """An API key of the shared server."""
    return await server.new_key("shared by all tests")


@pytest.fixture
async def fresh_server(store_target: StoreTarget) -> AsyncIterator[DevicesServer]:
    """A server with empty tables and its own clock."""
    async with open_server(await store_target.new_settings()) as server:
        yield server


@pytest.fixture(scope="session")
async def store(store_target: StoreTarget) -> AsyncIterator[Store]:
    """A store with the tables of the backend, shared by the repository tests."""
    async with open_engine(await store_target.new_settings(), SystemClock()) as engine:
        yield Store(engine)
