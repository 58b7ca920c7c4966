"""One instance of the cricket backend as a process that a test can kill.

    python -m tests.e2e.server_program DATA_DIRECTORY SPORTMONKS_URL MARQUEE_LEAGUES

It runs every job of the backend until it is stopped. The other backends are left out, for a fast
start.
"""

import asyncio
import sys
from pathlib import Path

from tally.app import open_application
from tally.kit import logs
from tally.kit.clock import SystemClock
from tally.kit.server import run_until_stopped
from tally.settings import Secret, Settings
from tally.sim.sportmonks.core import API_TOKEN

SECRET = Secret("a fixed secret of thirty-two characters")
POLL_MS = 30


async def run(directory: Path, url: str, leagues: str, stop: asyncio.Event) -> None:
    clock = SystemClock()
    settings = Settings(
        data_dir=directory,
        backends=("cricket",),
        shutdown_grace=5,
        operator_token=SECRET,
        log_format="json",
        cricket_sportmonks_url=url,
        cricket_sportmonks_token=Secret(API_TOKEN),
        cricket_sportmonks_hourly_limit=1_000_000,
        cricket_marquee_leagues=leagues,
        cricket_poll_ms=POLL_MS,
        cricket_idle_poll_ms=POLL_MS,
    )
    logs.configure(settings, clock)
    async with open_application(settings, clock) as application, application.job_runner():
        logs.logger().info("Instance started", action="instance_started")
        await stop.wait()


if __name__ == "__main__":
    run_until_stopped(lambda stop: run(Path(sys.argv[1]), sys.argv[2], sys.argv[3], stop))
