"""What the first page shows, looked up once for all who have it open: the headline of each backend, its health, the engines.

Nothing is looked up while nobody looks, but for a few counters that are read once a second.
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
ENGINE_SECONDS: Final = 4.0
QUERY_TIMEOUT_SECONDS: Final = 2.0
BAD: Final = frozenset({JobOutcome.FAILED, JobOutcome.TIMED_OUT, JobOutcome.LOCK_LOST})

_log = logs.logger()


class BackendHealth(Enum):
    """How a backend is: well, at work with something amiss, or in trouble."""

    HEALTHY = "well"
    DEGRADED = "worried"
    FAILING = "trouble"


@dataclass(frozen=True, slots=True)
class Tile:
    """What a tile shows of a backend; no headline where it could not be had."""

    headline: Headline | None
    health: BackendHealth
    said: str


class Dashboard:
    """All that is shared by those who look."""

    def __init__(self, context: ConsoleContext) -> None:
        self._context = context
        self._rates = CounterRates(context.clock, program_counters(context))
        self._asks = headline_queries(context, self._rates)
        self.tiles = CachedLoader(context.clock, REFRESH_SECONDS * 0.9, self._tiles)
        self.engines = CachedLoader(
            context.clock, ENGINE_SECONDS * 0.9, EngineStatusReader(context, self._rates).look
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
        found = await asyncio.gather(*(self._tile(name, ask) for name, ask in self._asks.items()))
        return dict(zip(self._asks, found, strict=True))

    async def _tile(self, name: str, ask: HeadlineQuery) -> Tile:
        """A backend in trouble is told as such, and the other tiles are as ever."""
        try:
            headline = await finish_within(self._context.clock, QUERY_TIMEOUT_SECONDS, ask())
        except DeadlineExceeded:
            return Tile(None, BackendHealth.FAILING, "It does not answer")
        except TallyError as error:
            return Tile(None, BackendHealth.FAILING, error.message)
        except Exception as error:  # noqa: BLE001  (whatever it is, the page must stand, and the log has it)
            _log.warning("A headline failed", action="console_tile", backend=name, error=error)
            return Tile(None, BackendHealth.FAILING, "Something is wrong: the log has more")
        worry = self._worry(name) or headline.worry
        return Tile(
            headline, BackendHealth.DEGRADED if worry else BackendHealth.HEALTHY, worry or "well"
        )

    def _worry(self, name: str) -> str:
        """What goes wrong in a backend that answers: requests that fail, and jobs."""
        failures = self._context.traffic.latest(name).failures
        if failures:
            return f"{format_rate(failures)} failures/s"
        for job in self._context.backends[name].jobs:
            run = self._context.runner.last_runs.get(job.name)
            if run is not None and run.outcome in BAD:
                return f"{job.name} failed"
        return ""
