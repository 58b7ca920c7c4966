"""A server that all tests share (`arena`), with players of their own, and ground for servers of one's own."""

import io
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import structlog

from tally.embedded.postgres import open_postgres
from tally.embedded.valkey import open_valkey
from tally.kit import logs
from tally.kit.clock import SystemClock
from tally.settings import Settings
from tests.scoreboard.api.harness import Arena, running, settings_of
from tests.scoreboard.api.servers import Ground


@pytest.fixture(autouse=True)
def log() -> Iterator[io.StringIO]:
    """All that is logged during the test, a JSON object a line."""
    stream = io.StringIO()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    logs.configure(Settings(log_format="json"), SystemClock(), stream)
    yield stream
    structlog.reset_defaults()
    root.handlers[:], root.level = handlers, level


@pytest.fixture(scope="session")
async def ground(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Ground]:
    folder = tmp_path_factory.mktemp("servers")
    async with (
        open_postgres(folder, SystemClock(), durable=False) as dsn,
        open_valkey(folder, SystemClock()) as redis_url,
    ):
        ground = Ground(dsn, redis_url)
        await ground.prepare()
        yield ground


@pytest.fixture(scope="session")
async def arena(ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Arena]:
    """A server that all tests share: bring your own players, and do not count on the board to be empty."""
    async with running(
        settings_of(await ground.place(part=0), tmp_path_factory.mktemp("arena"))
    ) as arena:
        yield arena


@pytest.fixture
async def fresh(ground: Ground, tmp_path: Path) -> AsyncIterator[Arena]:
    """A server with nobody on its board."""
    async with running(settings_of(await ground.place(), tmp_path)) as arena:
        yield arena
