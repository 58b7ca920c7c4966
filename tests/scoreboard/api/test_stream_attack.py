"""One person who opens thousands of streams: the server stays responsive and small."""

import asyncio
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.scoreboard.api.harness import run_scoreboard, server_settings
from tests.scoreboard.api.processes import server_process
from tests.scoreboard.api.servers import SharedServers
from tests.scoreboard.api.stream_client import StreamClient, connect, open_stream

ATTEMPTS = 3_000
CONCURRENT = 50
PER_PERSON = 5
MAX_HEALTH_SECONDS = 0.25
MAX_GROWTH_MB = 30


class HealthProbe:
    """Calls /health over and over on one connection and records how long each response takes."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self.seconds: list[float] = []

    async def run(self) -> None:
        reader, writer = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        try:
            while True:
                started = time.perf_counter()
                writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert b" 200 " in await reader.readline()
                while (await reader.readline()) != b"\r\n":
                    pass
                await reader.readexactly(len(b'{"status":"ok"}'))
                self.seconds.append(time.perf_counter() - started)
                await asyncio.sleep(0.02)
        finally:
            writer.transport.abort()

    def p99(self) -> float:
        return sorted(self.seconds)[int(len(self.seconds) * 0.99)]


async def probe_while(url: str, work: asyncio.Future[None] | None = None) -> float:
    """Return the 99th percentile of /health during `work`, or during two quiet seconds."""
    probe = HealthProbe(url)
    running = asyncio.create_task(probe.run())
    await (asyncio.sleep(2) if work is None else work)
    assert not running.done(), running
    running.cancel()
    await asyncio.wait({running})
    return probe.p99()


async def attack(url: str, token: str, accepted: list[StreamClient]) -> list[int]:
    """Open streams as fast as possible; keep those that open, and count the others by status."""
    statuses: list[int] = []

    async def attempt() -> None:
        status, stream = await connect(url, token)
        statuses.append(status)
        if status == 200:
            accepted.append(stream)
        else:
            stream.writer.transport.abort()

    async def attacker() -> None:
        for _ in range(ATTEMPTS // CONCURRENT):
            await attempt()

    await asyncio.gather(*(attacker() for _ in range(CONCURRENT)))
    return statuses


async def log_in(shared: tuple[str, str], directory: Path) -> str:
    """Return the access token of a new player, created in this process."""
    async with run_scoreboard(server_settings(shared, directory)) as harness:
        return (await harness.player()).token


@pytest.mark.judge
async def test_three_thousand_streams_of_one_person_cost_little(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    addresses = await shared_servers.allocate()
    settings = {"TALLY_STREAMS_PER_PERSON": str(PER_PERSON)}
    async with server_process(addresses, tmp_path / "server", settings) as server:
        token = await log_in(addresses, tmp_path / "here")
        accepted: list[StreamClient] = []
        statuses: list[int] = []
        for _ in range(PER_PERSON):  # warm up
            async with open_stream(server.url, token) as stream:
                await stream.update()
        quiet, memory = await probe_while(server.url), server.memory_mb()

        async def run_attack() -> None:
            statuses.extend(await attack(server.url, token, accepted))

        busy = await probe_while(server.url, asyncio.ensure_future(run_attack()))
        assert (statuses.count(200), statuses.count(429)) == (PER_PERSON, ATTEMPTS - PER_PERSON)
        # Other programs on the machine slow down the quiet phase too.
        assert busy < MAX_HEALTH_SECONDS + quiet, (busy, quiet)
        assert server.memory_mb() - memory < MAX_GROWTH_MB
        for stream in accepted:
            stream.writer.transport.abort()
        async with asyncio.timeout(30):
            while True:
                status, stream = await connect(server.url, token)
                stream.writer.transport.abort()
                if status == 200:
                    break
                await asyncio.sleep(0.1)
        assert await probe_while(server.url) < MAX_HEALTH_SECONDS + quiet
