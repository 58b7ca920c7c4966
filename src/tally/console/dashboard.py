"""The data of the home page: headline and health of each backend, and the state of the engines.

All visitors share one set of queries. Without visitors, only a few counters are sampled.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tally.console.cached_loader import CachedLoader
from tally.console.context import ConsoleContext
from tally.console.counter_rates import CounterRates, program_counters
from tally.console.engines import EngineStatusReader
from tally.console.formatting import format_rate
from tally.console.headlines import Headline, HeadlineQuery, headline_queries
from tally.errors import TallyError
from tally.kit import logs
from tally.kit.clock import DeadlineExceeded, finish_within
from tally.kit.jobs import JobOutcome
from tally.kit.tasks import cancel_all

REFRESH_SECONDS: Final = 2.0
ENGINE_REFRESH_SECONDS: Final = 4.0
QUERY_TIMEOUT_SECONDS: Final = 2.0
FAILURES: Final = frozenset({JobOutcome.FAILED, JobOutcome.TIMED_OUT, JobOutcome.LOCK_LOST})

_log = logs.logger()


class BackendHealth(Enum):
    """Health of a backend as its tile shows it."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    FAILING = "failing"


@dataclass(frozen=True, slots=True)
class Tile:
    """Content of a backend's tile; `headline` is None if its query failed."""

    headline: Headline | None
    health: BackendHealth
    status: str


class Dashboard:
    """Queries and samples that all visitors of the home page share."""

    def __init__(self, context: ConsoleContext) -> None:
        self._context = context
        self._rates = CounterRates(context.clock, program_counters(context))
        self._queries = headline_queries(context, self._rates)
        self.tiles = CachedLoader(context.clock, REFRESH_SECONDS * 0.9, self._tiles)
        self.engines = CachedLoader(
            context.clock,
            ENGINE_REFRESH_SECONDS * 0.9,
            EngineStatusReader(context, self._rates).read,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        sampling = asyncio.create_task(self._rates.run())
        try:
            yield
        finally:
            await cancel_all([sampling])
            await self.tiles.close()
            await self.engines.close()

    async def _tiles(self) -> dict[str, Tile]:
        tiles = await asyncio.gather(
            *(self._tile(name, query) for name, query in self._queries.items())
        )
        return dict(zip(self._queries, tiles, strict=True))

    async def _tile(self, name: str, query: HeadlineQuery) -> Tile:
        """Build one tile; a failing backend does not affect the others."""
        try:
            headline = await finish_within(self._context.clock, QUERY_TIMEOUT_SECONDS, query())
        except DeadlineExceeded:
            return Tile(None, BackendHealth.FAILING, "No response within 2 s")
        except TallyError as error:
            return Tile(None, BackendHealth.FAILING, error.message)
        except Exception as error:  # noqa: BLE001  (the page must render; the log has the error)
            _log.warning(
                "Headline query failed", action="headline_failed", backend=name, error=error
            )
            return Tile(None, BackendHealth.FAILING, "Internal error; see the log")
        problem = self._problem(name) or headline.problem
        return Tile(
            headline,
            BackendHealth.DEGRADED if problem else BackendHealth.HEALTHY,
            problem or "healthy",
        )

    def _problem(self, name: str) -> str:
        """Describe failing requests or jobs of a backend; empty if there are none."""
        failures = self._context.traffic.latest(name).failures
        if failures:
            return f"{format_rate(failures)} failures/s"
        for job in self._context.backends[name].jobs:
            run = self._context.runner.last_runs.get(job.name)
            if run is not None and run.outcome in FAILURES:
                return f"{job.name} failed"
        return ""
