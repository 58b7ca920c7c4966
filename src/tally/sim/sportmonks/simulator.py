"""The SportMonks simulator as tests and the demo hold it.

async with SportMonksSimulator(clock).serving() as sportmonks:               # its API is at sportmonks.api
    final = sportmonks.add(read_match(content, "1370353"))          # by hand: final.step(), final.deliver(6)
    semi = sportmonks.add(shipped_match(), speed=60)                # an hour of the match in a minute
    final.mistakes = Mistakes(wrong={7: Wrong("dot", until=2)})     # a ball that is told wrongly, and put right
    final.lags.extend([0, 5])                                       # the poll after next gets an old answer
    semi.garble = "no_teams"                                        # unreadable among good ones
    sportmonks.faults.add(Fault(path="/api/v2.0/livescores", status=503, times=3))
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
    """A programme of matches on a real socket."""

    @property
    def api(self) -> str:
        """What goes before `/livescores`."""
        return f"{self.url}{ROOT}"

    def app(self) -> Starlette:
        parts = (SportMonksApi(self), SportMonksControl(self))
        routes: list[Route] = [route for part in parts for route in part.routes()]
        return simulator_app("sportmonks", routes, self.faults, self.clock)

    @asynccontextmanager
    async def serving(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Self]:
        """Serve until the block ends; `url` is known from then on."""
        async with serving(self.app(), host, port) as url:
            self.url = url
            yield self
