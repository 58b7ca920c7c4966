"""Fixtures: a server that all tests share (`harness`), and servers for single tests."""

import io
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tally.embedded.postgres import open_postgres
from tally.embedded.valkey import open_valkey
from tally.kit.clock import SystemClock
from tests.log_capture import captured_log
from tests.scoreboard.api.harness import ScoreboardHarness, run_scoreboard, server_settings
from tests.scoreboard.api.servers import SharedServers


@pytest.fixture(autouse=True)
def log() -> Iterator[io.StringIO]:
    """The log of the test, one JSON object per line."""
    with captured_log() as stream:
        yield stream


@pytest.fixture(scope="session")
async def shared_servers(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[SharedServers]:
    directory = tmp_path_factory.mktemp("servers")
    async with (
        open_postgres(directory, SystemClock(), durable=False) as dsn,
        open_valkey(directory, SystemClock()) as redis_url,
    ):
        servers = SharedServers(dsn, redis_url)
        await servers.prepare()
        yield servers


@pytest.fixture(scope="session")
async def harness(
    shared_servers: SharedServers, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ScoreboardHarness]:
    """A server that all tests share: create your own players; the leaderboard is not empty."""
    addresses = await shared_servers.allocate(redis_number=0)
    settings = server_settings(addresses, tmp_path_factory.mktemp("scoreboard"))
    async with run_scoreboard(settings) as harness:
        yield harness


@pytest.fixture
async def fresh_harness(
    shared_servers: SharedServers, tmp_path: Path
) -> AsyncIterator[ScoreboardHarness]:
    """A server with an empty leaderboard."""
    async with run_scoreboard(
        server_settings(await shared_servers.allocate(), tmp_path)
    ) as harness:
        yield harness
