"""An engine with the tables of collect (SQLite, and DynamoDB Local where there are Java and npm), and what stands on it.

Tests share tables, never keys: each makes people, athletes and models with names of its own.
"""

import contextlib
import io
import logging
import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import structlog

from tally.collect.repository.audit import COMMIT_COLLECT_AUDIT, AuditRepository
from tally.collect.repository.idempotency import COMMIT_COLLECT_IDEMPOTENCY, IdempotencyRepository
from tally.collect.repository.main import CollectRepository
from tally.collect.repository.sessions import COMMIT_COLLECT_SESSIONS, BrowserSessionRepository
from tally.collect.repository.table import COMMIT_COLLECT
from tally.kit import logs
from tally.kit.clock import ManualClock, SystemClock
from tally.settings import Settings
from tally.store.api import Engine
from tally.store.dynamodb import open_dynamodb
from tally.store.sqlite import open_sqlite
from tally.store.store import Store
from tests.collect.club import Club, open_club
from tests.store.emulators import (
    MADE_UP,
    dynamodb_local,
    engines,
    given_engine,
    given_url,
    local_engine,
)

LogText: TypeAlias = Callable[[], str]
TABLES = (COMMIT_COLLECT, COMMIT_COLLECT_SESSIONS, COMMIT_COLLECT_AUDIT, COMMIT_COLLECT_IDEMPOTENCY)
ENGINES = engines("local")


@pytest.fixture(scope="session", params=ENGINES)
async def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Engine]:
    """Each engine in turn, with the four tables made."""
    async with contextlib.AsyncExitStack() as stack:
        opened: Engine
        if request.param == "sqlite":
            opened = await stack.enter_async_context(
                open_sqlite(tmp_path_factory.mktemp("collect"))
            )
        elif request.param == "local":
            opened = await stack.enter_async_context(local_engine())
        else:
            opened = await stack.enter_async_context(given_engine(given_url() or ""))
        for table in TABLES:
            await opened.create_table(table)
        yield opened


@dataclass(frozen=True, slots=True)
class Ground:
    """Where a whole server can stand: a folder, and the service where there is one."""

    folder: Path
    url: str | None

    async def place(self) -> tuple[Path, dict[str, Any]]:
        """A folder of one's own, and settings of tables that nobody else has, made and empty."""
        folder = self.folder / secrets.token_hex(8)
        if self.url is None:
            return folder, {}
        prefix, region = (
            f"tally-test-{secrets.token_hex(4)}-",
            os.environ.get("AWS_REGION", "us-east-1"),
        )
        async with open_dynamodb(endpoint=self.url, region=region, table_prefix=prefix) as engine:
            for table in TABLES:
                await engine.create_table(table)
        chosen = {
            "store_engine": "dynamodb",
            "dynamodb_endpoint": self.url,
            "dynamodb_region": region,
        }
        # A service removes what has expired by its own clock, so the server's may not be far
        # behind.
        return folder, chosen | {
            "dynamodb_table_prefix": prefix,
            "start": datetime.now(UTC).replace(microsecond=0),
        }


@pytest.fixture(scope="session", params=ENGINES)
def ground(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ground]:
    """Each engine in turn, for whole servers."""
    folder = tmp_path_factory.mktemp("ground")
    if request.param == "sqlite":
        yield Ground(folder, None)
        return
    with contextlib.ExitStack() as stack:
        url = given_url() if request.param == "given" else stack.enter_context(dynamodb_local())
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        if "AWS_ACCESS_KEY_ID" not in os.environ and "AWS_PROFILE" not in os.environ:
            patch.setenv("AWS_ACCESS_KEY_ID", MADE_UP.access_key)
            patch.setenv("AWS_SECRET_ACCESS_KEY", MADE_UP.secret_key)
        yield Ground(folder, url)


@pytest.fixture(scope="session")
async def club(ground: Ground) -> AsyncIterator[Club]:
    """A club that all tests share: bring members of your own, and leave nothing in the inbox."""
    folder, chosen = await ground.place()
    async with open_club(folder, **chosen) as made:
        yield made


@pytest.fixture
async def fresh(ground: Ground) -> AsyncIterator[Club]:
    """A club with empty tables and a Strava that nobody else upsets."""
    folder, chosen = await ground.place()
    async with open_club(folder, **chosen) as made:
        yield made


@pytest.fixture(autouse=True)
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
    return ManualClock()


@pytest.fixture
def store(engine: Engine, clock: ManualClock) -> Store:
    return Store(engine, clock)


@pytest.fixture
def main(store: Store) -> CollectRepository:
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
