"""Starts the SportMonks simulator and a gateway to it, with a manual clock."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pyreqwest.client import ClientBuilder

from tally.cricket.model.feed import MatchFeed
from tally.cricket.model.records import QuotaWindow
from tally.cricket.sportmonks.budget import QuotaWindows, RequestBudget
from tally.cricket.sportmonks.client import SportMonksClient
from tally.cricket.sportmonks.gateway import SportMonksGateway
from tally.kit.clock import ManualClock
from tally.kit.metrics import Metrics
from tally.settings import Secret
from tally.sim.sportmonks.core import API_TOKEN
from tally.sim.sportmonks.match import Match
from tally.sim.sportmonks.playback import MatchPlayback
from tally.sim.sportmonks.simulator import SportMonksSimulator

T = TypeVar("T")

LIVESCORES = "/api/v2.0/livescores"


@dataclass
class MemoryWindows:
    """Request windows in memory, with the number of writes."""

    windows: dict[str, QuotaWindow] = field(default_factory=dict)
    writes: int = 0

    async def get(self, resource: str) -> QuotaWindow | None:
        return self.windows.get(resource)

    async def replace(self, resource: str, before: QuotaWindow | None, after: QuotaWindow) -> bool:
        if self.windows.get(resource) != before:
            return False
        self.windows[resource] = after
        self.writes += 1
        return True


@dataclass(frozen=True)
class SportMonksHarness:
    """The simulator, a gateway to it and the clock."""

    sportmonks: SportMonksSimulator
    clock: ManualClock
    client: SportMonksClient
    gateway: SportMonksGateway

    async def feed_of(self, broadcast: MatchPlayback) -> MatchFeed:
        """Poll once and return the feed of a match."""
        poll = await self.gateway.live()
        return next(feed for feed in poll.feeds if feed.match_id == str(broadcast.match.id))

    async def run_with_clock(self, work: Awaitable[T]) -> T:
        """Advance the clock until `work` is done; return its result."""
        task = asyncio.ensure_future(work)
        while not task.done():
            await asyncio.wait({task}, timeout=0.01)
            await self.clock.advance(0.1)
        return await task

    @property
    def polls(self) -> int:
        return self.sportmonks.faults.count(LIVESCORES)


@asynccontextmanager
async def open_sportmonks(
    *matches: Match,
    marquee: bool = True,
    hourly: int = 10**6,
    windows: QuotaWindows | None = None,
    **options: Any,
) -> AsyncIterator[SportMonksHarness]:
    """Start SportMonks with these matches; `marquee` adds the league of the first one."""
    clock = ManualClock()
    async with SportMonksSimulator(clock).serving() as sportmonks, ClientBuilder().build() as http:
        sportmonks.limits.hourly = 10**9
        for match in matches:
            sportmonks.add(match)
        leagues = (str(matches[0].league_id),) if matches and marquee else ()
        arguments: dict[str, Any] = {"token": Secret(API_TOKEN)} | options
        budget = RequestBudget(windows or MemoryWindows(), clock, hourly)
        client = SportMonksClient(http, clock, Metrics(), budget, url=sportmonks.api, **arguments)
        yield SportMonksHarness(
            sportmonks, clock, client, SportMonksGateway(client, clock, leagues)
        )
