"""Instances of the cricket backend as real processes that can be killed, on one data directory, beside a simulated SportMonks."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tally.sim.sportmonks.simulator import SportMonksSimulator


class Server:
    """A process with one instance."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self._log = log
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None
        self.starts = 0

    async def start(self) -> None:
        with self._log.open("wb") as log:
            command = (sys.executable, "-m", "tests.e2e.instance", *self._arguments)
            self._process = await asyncio.create_subprocess_exec(*command, stderr=log, stdout=log)
        self.starts += 1

    async def kill(self) -> None:
        """As `kill -9` does: the instance has no say in it."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> int:
        """As an operator does; the exit code."""
        return await self._end(signal.SIGTERM)

    async def _end(self, how: signal.Signals) -> int:
        assert self._process is not None
        with suppress(ProcessLookupError):
            self._process.send_signal(how)
        return await self._process.wait()

    def said(self) -> str:
        """What it has logged since it was last started."""
        return self._log.read_text(encoding="utf-8")

    @property
    def is_up(self) -> bool:
        return '"action":"instance_up"' in self.said()


@asynccontextmanager
async def servers(
    folder: Path, sportmonks: SportMonksSimulator, count: int = 1
) -> AsyncIterator[list[Server]]:
    """So many instances on the same data, started; killed at the end if they still run."""
    leagues = {str(broadcast.match.league_id) for broadcast in sportmonks.broadcasts.values()}
    arguments = (str(folder / "data"), sportmonks.api, ",".join(leagues))
    made = [Server(folder / f"log-{number}", *arguments) for number in range(count)]
    try:
        for server in made:
            await server.start()
        yield made
    finally:
        for server in made:
            if server.starts:
                await server.kill()
