"""Fixtures: a manual clock, a metrics registry, an HTTP client, and the log as a list of lines."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeAlias

import pytest
from pyreqwest.client import Client, ClientBuilder

from tally.kit.clock import ManualClock
from tally.kit.metrics import Metrics
from tests.log_capture import captured_log

LogLines: TypeAlias = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with ClientBuilder().build() as client:
        yield client


@pytest.fixture(autouse=True)
def log_lines(clock: ManualClock) -> Iterator[LogLines]:
    """Return all lines logged during the test, at every level."""
    with captured_log("debug", clock) as stream:
        yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
