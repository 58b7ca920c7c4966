"""Fixtures: engines with the cricket tables (SQLite, DynamoDB Local if available) and a store.

Tests share tables, never keys: each creates records with unique ids (`factories.py`).
"""

from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

import pytest

from tally.cricket.repository.repositories import REPOSITORIES
from tally.kit.clock import ManualClock
from tally.store.api import Engine
from tally.store.catalogue import owned_tables
from tally.store.store import Store
from tests.cricket.activities_harness import (
    ActivitiesHarness,
    SharedApns,
    open_activities_harness,
    open_shared_apns,
)
from tests.cricket.apns_harness import ApnsHarness, open_apns_harness
from tests.log_capture import captured_log
from tests.store.emulators import engines, open_engine

LogText: TypeAlias = Callable[[], str]
ENGINES = engines("local")
TABLES = tuple(table for repository in REPOSITORIES for table in owned_tables(repository))


@pytest.fixture(scope="session", params=ENGINES)
async def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Engine]:
    """Open each engine with the fifteen tables."""
    folder = tmp_path_factory.mktemp("cricket")
    async with open_engine(request.param, folder, TABLES) as opened:
        yield opened


@pytest.fixture
def log_text() -> Iterator[LogText]:
    """Capture the log of the test."""
    with captured_log() as stream:
        yield stream.getvalue


@pytest.fixture
def clock() -> ManualClock:
    """Start in the far future, because an emulator deletes expired items by its own clock."""
    return ManualClock(datetime(2096, 10, 2, 12, tzinfo=UTC))


@pytest.fixture
def store(engine: Engine, clock: ManualClock) -> Store:
    return Store(engine, clock)


@pytest.fixture(scope="session")
async def shared_apns(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SharedApns]:
    """An APNs simulator for all tests of Live Activities, on a clock that only advances."""
    async with open_shared_apns(tmp_path_factory.mktemp("apns")) as opened:
        yield opened


@pytest.fixture
async def harness(tmp_path: Path, shared_apns: SharedApns) -> AsyncIterator[ActivitiesHarness]:
    async with open_activities_harness(tmp_path, shared_apns) as opened:
        yield opened


@pytest.fixture(scope="module")
async def module_apns(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApnsHarness]:
    async with open_apns_harness(tmp_path_factory.mktemp("apns")) as opened:
        yield opened


@pytest.fixture
def apns(module_apns: ApnsHarness) -> ApnsHarness:
    """An APNs simulator on the system clock, shared by a module and reset for each test."""
    module_apns.simulator.faults.clear()
    module_apns.simulator.log.clear()
    return module_apns
