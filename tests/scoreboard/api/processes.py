"""`tally serve scoreboard` in a process of its own."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.scoreboard.api.harness import ACTION_KEY, ADMIN, INTERNAL, SESSION_KEY


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A running server."""

    url: str
    pid: int

    def memory_mb(self) -> float:
        """Return the resident memory."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        os.kill(self.pid, signal.SIGKILL)


@asynccontextmanager
async def server_process(
    addresses: tuple[str, str], directory: Path, settings: Mapping[str, str]
) -> AsyncIterator[ServerProcess]:
    """Run `tally serve scoreboard` in a process, on these PostgreSQL and Redis."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("TALLY_")
    } | {
        "TALLY_DATA_DIR": str(directory),
        "TALLY_PORT": "0",
        "TALLY_SHUTDOWN_DELAY": "0",
        "TALLY_LOG_FORMAT": "json",
        "TALLY_SCOREBOARD_DATABASE_URL": addresses[0],
        "TALLY_SCOREBOARD_REDIS_URL": addresses[1],
        "TALLY_SCOREBOARD_ACTION_KEYS": ACTION_KEY.reveal(),
        "TALLY_SCOREBOARD_SESSION_KEYS": SESSION_KEY.reveal(),
        "TALLY_SCOREBOARD_INTERNAL_KEY": INTERNAL,
        "TALLY_OPERATOR_TOKEN": ADMIN,
        **settings,
    }
    words = (sys.executable, "-m", "tally.cli", "serve", "scoreboard")
    process = await asyncio.create_subprocess_exec(
        *words, env=environment, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    draining = None
    try:
        url = ""
        while not url:
            line = await process.stderr.readline()
            assert line, "it did not start"
            data = json.loads(line)
            url = data["data"]["url"] if data["action"] == "listening" else ""
        draining = asyncio.create_task(process.stderr.read())
        yield ServerProcess(url, process.pid)
    finally:
        with contextlib.suppress(ProcessLookupError):  # a test killed it
            process.terminate()
        await process.wait()
        if draining is not None:
            await draining
