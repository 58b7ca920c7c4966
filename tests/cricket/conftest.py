"""Fixtures: engines with the cricket tables (SQLite, DynamoDB Local if available) and a store.

Tests share tables, never keys: each creates records with unique ids (`factories.py`).
"""

from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

import pytest

from tally.kit.clock import ManualClock
from tally.store.api import Engine
from tally.store.store import Store
from tests.cricket.activities_harness import (
    ActivitiesHarness,
    SharedApns,
    open_activities_harness,
    open_shared_apns,
)
from tests.cricket.apns_harness import ApnsHarness, open_apns_harness
from tests.cricket.pipeline_fakes import FakePushGateway, FakeScores
from tests.cricket.pipeline_harness import PipelineInstance, open_instance
from tests.cricket.tables import TABLES
from tests.log_capture import captured_log
from tests.store.emulators import engines, open_engine

LogText: TypeAlias = Callable[[], str]
ENGINES = engines("local")


@pytest.fixture(scope="session", params=ENGINES)
async def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Engine]:
    """Open each engine with the tables of cricket."""
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


@pytest.fixture
def harness_per_engine(engine: Engine, shared_apns: SharedApns) -> ActivitiesHarness:
    """A harness on each engine; tests process their own matches, because they share the tables."""
    shared_apns.reset()
    return ActivitiesHarness(engine, shared_apns.clock, shared_apns.apns)


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


@pytest.fixture
def gateway() -> FakePushGateway:
    """A push gateway that records what the pipeline sends."""
    return FakePushGateway()


@pytest.fixture
def scores(clock: ManualClock) -> FakeScores:
    return FakeScores(clock)


@pytest.fixture
async def instance(
    engine: Engine, clock: ManualClock, scores: FakeScores, gateway: FakePushGateway
) -> AsyncIterator[PipelineInstance]:
    """One instance of the pipeline, on the engine of the test module."""
    async with open_instance(engine, clock, scores, gateway) as opened:
        yield opened
