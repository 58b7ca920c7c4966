"""One instance of the cricket backend as a process that a test can kill.

    python -m tests.e2e.server_program DATA_DIRECTORY SPORTMONKS_URL MARQUEE_LEAGUES

It runs every job of the backend until it is stopped. The other backends are left out, for a fast
start.
"""

import asyncio
import sys
from pathlib import Path

from tally.cricket.repository.repositories import REPOSITORIES
from tally.cricket.wiring.backend import open_cricket
from tally.dependencies import Dependencies
from tally.kit import logs
from tally.kit.clock import SystemClock
from tally.kit.cursors import Cursors
from tally.kit.hub import Hub
from tally.kit.jobs import JobRunner
from tally.kit.metrics import Metrics
from tally.kit.server import run_until_stopped
from tally.settings import Secret, Settings
from tally.sim.sportmonks.core import API_TOKEN
from tally.store.catalogue import owned_tables
from tally.store.sqlite import open_sqlite
from tally.store.store import Store

SECRET = Secret("a fixed secret of thirty-two characters")
POLL_MS = 30


async def run(directory: Path, url: str, leagues: str, stop: asyncio.Event) -> None:
    clock, metrics = SystemClock(), Metrics()
    settings = Settings(
        cricket_admin_key=SECRET,
        log_format="json",
        cricket_sportmonks_url=url,
        cricket_sportmonks_token=Secret(API_TOKEN),
        cricket_sportmonks_hourly_limit=1_000_000,
        cricket_marquee_leagues=leagues,
        cricket_poll_ms=POLL_MS,
        cricket_idle_poll_ms=POLL_MS,
    )
    logs.configure(settings, clock)
    async with open_sqlite(directory) as engine:
        for repository in REPOSITORIES:
            for table in owned_tables(repository):
                await engine.ensure_table(table)
        dependencies = Dependencies(
            settings=settings,
            clock=clock,
            metrics=metrics,
            hub=Hub(clock, metrics),
            cursors=Cursors(SECRET),
            store=Store(engine, clock),
        )
        async with (
            open_cricket(dependencies) as cricket,
            JobRunner(cricket.jobs, clock, metrics, None, grace=5),
        ):
            logs.logger().info("Instance started", action="instance_started")
            await stop.wait()


if __name__ == "__main__":
    run_until_stopped(lambda stop: run(Path(sys.argv[1]), sys.argv[2], sys.argv[3], stop))
