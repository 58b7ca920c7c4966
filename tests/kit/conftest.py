"""Fixtures: a manual clock, a metrics registry, an HTTP client, and the log as a list of lines."""

import io
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeAlias

import pytest
import structlog
from pyreqwest.client import Client, ClientBuilder

from tally.kit import logs
from tally.kit.clock import ManualClock
from tally.kit.metrics import Metrics
from tally.settings import Settings

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
    stream = io.StringIO()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    logs.configure(Settings(log_format="json", log_level="debug"), clock, stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    structlog.reset_defaults()
    root.handlers[:], root.level = handlers, level
    logs.set_context(logs.Context())
