"""An engine with the tables of collect (SQLite, and DynamoDB Local where there are Java and npm), and what stands on it.

Tests share tables, never keys: each makes people, athletes and models with names of its own.
"""

import contextlib
import io
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TypeAlias

import pytest
import structlog

from tally.collect.repository.audit import COMMIT_COLLECT_AUDIT, AuditRepository
from tally.collect.repository.idempotency import COMMIT_COLLECT_IDEMPOTENCY, IdempotencyRepository
from tally.collect.repository.main import CollectRepository
from tally.collect.repository.sessions import COMMIT_COLLECT_SESSIONS, SessionRepository
from tally.collect.repository.table import COMMIT_COLLECT
from tally.kit import logs
from tally.kit.clock import ManualClock, SystemClock
from tally.settings import Settings
from tally.store.api import Engine
from tally.store.sqlite import open_sqlite
from tally.store.store import Store
from tests.store.emulators import given_engine, given_url, local_engine

LogText: TypeAlias = Callable[[], str]
TABLES = (COMMIT_COLLECT, COMMIT_COLLECT_SESSIONS, COMMIT_COLLECT_AUDIT, COMMIT_COLLECT_IDEMPOTENCY)
ENGINES = ("sqlite", "local", *(("given",) if given_url() else ()))


@pytest.fixture(scope="session", params=ENGINES)
async def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    """Each engine in turn, with the four tables made."""
    async with contextlib.AsyncExitStack() as stack:
        opened: Engine
        if request.param == "sqlite":
            opened = await stack.enter_async_context(open_sqlite(tmp_path_factory.mktemp("collect")))
        elif request.param == "local":
            opened = await stack.enter_async_context(local_engine())
        else:
            opened = await stack.enter_async_context(given_engine(given_url() or ""))
        for table in TABLES:
            await opened.create_table(table)
        yield opened


@pytest.fixture(autouse=True)
def log_text() -> Iterator[LogText]:
    """All that is logged during the test; debug and up."""
    stream = io.StringIO()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    logs.configure(Settings(log_format="json", log_level="debug"), SystemClock(), stream)
    yield stream.getvalue
    structlog.reset_defaults()
    root.handlers[:], root.level = handlers, level
    logs.start(logs.Context())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(engine: Engine, clock: ManualClock) -> Store:
    return Store(engine, clock)


@pytest.fixture
def main(store: Store) -> CollectRepository:
    return CollectRepository(store)


@pytest.fixture
def sessions(store: Store) -> SessionRepository:
    return SessionRepository(store)


@pytest.fixture
def audit(store: Store) -> AuditRepository:
    return AuditRepository(store)


@pytest.fixture
def idempotency(store: Store) -> IdempotencyRepository:
    return IdempotencyRepository(store)
