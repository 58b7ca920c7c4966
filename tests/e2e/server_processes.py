"""Starts instances of the cricket backend as processes on one data directory."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tally.sim.sportmonks.simulator import SportMonksSimulator


class ServerProcess:
    """A process with one instance of the cricket backend."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self._log = log
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None
        self.starts = 0

    async def start(self) -> None:
        with self._log.open("wb") as log:
            command = (sys.executable, "-m", "tests.e2e.server_program", *self._arguments)
            self._process = await asyncio.create_subprocess_exec(*command, stderr=log, stdout=log)
        self.starts += 1

    async def kill(self) -> None:
        """Kill the process with SIGKILL."""
        await self._signal(signal.SIGKILL)

    async def stop(self) -> int:
        """Stop the process with SIGTERM; return its exit code."""
        return await self._signal(signal.SIGTERM)

    async def _signal(self, number: signal.Signals) -> int:
        assert self._process is not None
        with suppress(ProcessLookupError):
            self._process.send_signal(number)
        return await self._process.wait()

    def log_text(self) -> str:
        """Return the log since the last start."""
        return self._log.read_text(encoding="utf-8")

    @property
    def is_started(self) -> bool:
        return '"action":"instance_started"' in self.log_text()

    @property
    def is_poller(self) -> bool:
        return '"action":"poller_started"' in self.log_text()


@asynccontextmanager
async def start_servers(
    directory: Path, sportmonks: SportMonksSimulator, count: int = 1
) -> AsyncIterator[list[ServerProcess]]:
    """Start instances on the same data directory; kill those that still run at the end."""
    leagues = {str(broadcast.match.league_id) for broadcast in sportmonks.playbacks.values()}
    arguments = (str(directory / "data"), sportmonks.api, ",".join(leagues))
    processes = [ServerProcess(directory / f"log-{number}", *arguments) for number in range(count)]
    try:
        for process in processes:
            await process.start()
        yield processes
    finally:
        for process in processes:
            if process.starts:
                await process.kill()
