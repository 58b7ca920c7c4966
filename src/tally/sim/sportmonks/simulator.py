"""The SportMonks simulator on a real socket.

async with SportMonksSimulator(clock).serving() as sportmonks:  # the API is at sportmonks.api
    final = sportmonks.add(read_match(content, "1370353"))      # manual: final.step()
    semi = sportmonks.add(bundled_match(), speed=60)            # an hour of the match per minute
    final.mistakes = Mistakes(wrong={7: Misreport("dot", until=2)})
    final.lags.extend([0, 5])                                   # the second poll is stale
    semi.garble = "no_teams"                                    # makes the fixture invalid
    sportmonks.faults.add(InjectedFault(path="/api/v2.0/livescores", status=503, times=3))
    sportmonks.limits.hourly = 10
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from starlette.applications import Starlette
from starlette.routing import Route

from tally.kit.server import serving
from tally.sim.fault_injection import simulator_app
from tally.sim.sportmonks.api import ROOT, SportMonksApi
from tally.sim.sportmonks.control import SportMonksControl
from tally.sim.sportmonks.core import SportMonksCore


class SportMonksSimulator(SportMonksCore):
    """SportMonks over HTTP."""

    @property
    def api(self) -> str:
        """The base URL of the API."""
        return f"{self.url}{ROOT}"

    def app(self) -> Starlette:
        parts = (SportMonksApi(self), SportMonksControl(self))
        routes: list[Route] = [route for part in parts for route in part.routes()]
        return simulator_app("sportmonks", routes, self.faults, self.clock)

    @asynccontextmanager
    async def serving(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Self]:
        """Serve until the block ends; sets `url`."""
        async with serving(self.app(), host, port) as url:
            self.url = url
            yield self
