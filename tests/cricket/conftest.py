"""An engine with the tables of cricket (SQLite, and DynamoDB Local where there are Java and npm), and what stands on it.

Tests share tables, never keys: each makes matches, people and devices with names of its own
(`made_up.py`).
"""

import contextlib
import io
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

import pytest
import structlog

from tally.cricket.repository.repositories import REPOSITORIES
from tally.kit import logs
from tally.kit.clock import ManualClock, SystemClock
from tally.settings import Settings
from tally.store.api import Engine
from tally.store.catalogue import owned_tables
from tally.store.sqlite import open_sqlite
from tally.store.store import Store
from tests.cricket.activities_harness import Ground, Stadium, open_ground, open_stadium
from tests.store.emulators import engines, given_engine, given_url, local_engine

LogText: TypeAlias = Callable[[], str]
ENGINES = engines("local")
TABLES = tuple(table for repository in REPOSITORIES for table in owned_tables(repository))


@pytest.fixture(scope="session", params=ENGINES)
async def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Engine]:
    """Each engine in turn, with the fifteen tables made."""
    async with contextlib.AsyncExitStack() as stack:
        opened: Engine
        if request.param == "sqlite":
            opened = await stack.enter_async_context(
                open_sqlite(tmp_path_factory.mktemp("cricket"))
            )
        elif request.param == "local":
            opened = await stack.enter_async_context(local_engine())
        else:
            opened = await stack.enter_async_context(given_engine(given_url() or ""))
        for table in TABLES:
            await opened.create_table(table)
        yield opened


@pytest.fixture
def log_text() -> Iterator[LogText]:
    """All that is logged during the test."""
    stream = io.StringIO()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    logs.configure(Settings(log_format="json"), SystemClock(), stream)
    yield stream.getvalue
    structlog.reset_defaults()
    root.handlers[:], root.level = handlers, level
    logs.set_context(logs.Context())


@pytest.fixture
def clock() -> ManualClock:
    """Far ahead: a service removes what has expired by its own clock."""
    return ManualClock(datetime(2096, 10, 2, 12, tzinfo=UTC))


@pytest.fixture
def store(engine: Engine, clock: ManualClock) -> Store:
    return Store(engine, clock)


@pytest.fixture(scope="session")
async def ground(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Ground]:
    """A push service for the tests of the life of Live Activities, on a clock that only goes on."""
    async with open_ground(tmp_path_factory.mktemp("ground")) as opened:
        yield opened


@pytest.fixture
async def stadium(tmp_path: Path, ground: Ground) -> AsyncIterator[Stadium]:
    async with open_stadium(tmp_path, ground) as opened:
        yield opened
