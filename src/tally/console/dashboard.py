"""What the first page shows, looked up once for all who have it open: the headline of each backend, its health, the engines.

Nothing is looked up while nobody looks, but for a few counters that are read once a second.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tally.console.context import Desk
from tally.console.engines import Engines
from tally.console.headlines import Ask, Headline, headlines_of
from tally.console.rates import Rates, counters_of
from tally.console.shared import Shared
from tally.console.words import rate
from tally.errors import TallyError
from tally.kit import logs
from tally.kit.clock import DeadlineExceeded, finish_within
from tally.kit.jobs import JobOutcome
from tally.kit.tasks import cancel_all

LOOK_SECONDS: Final = 2.0
ENGINE_SECONDS: Final = 4.0
ASK_SECONDS: Final = 2.0
BAD: Final = frozenset({JobOutcome.FAILED, JobOutcome.TIMED_OUT, JobOutcome.LOCK_LOST})

_log = logs.logger()


class Health(Enum):
    """How a backend is: well, at work with something amiss, or in trouble."""

    WELL = "well"
    WORRIED = "worried"
    TROUBLE = "trouble"


@dataclass(frozen=True, slots=True)
class Tile:
    """What a tile shows of a backend; no headline where it could not be had."""

    headline: Headline | None
    health: Health
    said: str


class Pulse:
    """All that is shared by those who look."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._rates = Rates(desk.clock, counters_of(desk))
        self._asks = headlines_of(desk, self._rates)
        self.tiles = Shared(desk.clock, LOOK_SECONDS * 0.9, self._tiles)
        self.engines = Shared(desk.clock, ENGINE_SECONDS * 0.9, Engines(desk, self._rates).look)

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

    async def _tile(self, name: str, ask: Ask) -> Tile:
        """A backend in trouble is told as such, and the other tiles are as ever."""
        try:
            headline = await finish_within(self._desk.clock, ASK_SECONDS, ask())
        except DeadlineExceeded:
            return Tile(None, Health.TROUBLE, "It does not answer")
        except TallyError as error:
            return Tile(None, Health.TROUBLE, error.message)
        except Exception as error:  # noqa: BLE001  (whatever it is, the page must stand, and the log has it)
            _log.warning("A headline failed", action="console_tile", backend=name, error=error)
            return Tile(None, Health.TROUBLE, "Something is wrong: the log has more")
        worry = self._worry(name) or headline.worry
        return Tile(headline, Health.WORRIED if worry else Health.WELL, worry or "well")

    def _worry(self, name: str) -> str:
        """What goes wrong in a backend that answers: requests that fail, and jobs."""
        failures = self._desk.figures.latest(name).failures
        if failures:
            return f"{rate(failures)} failures/s"
        for job in self._desk.backends[name].jobs:
            run = self._desk.runner.last_runs.get(job.name)
            if run is not None and run.outcome in BAD:
                return f"{job.name} failed"
        return ""
