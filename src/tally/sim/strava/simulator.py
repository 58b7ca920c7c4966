"""The Strava simulator on a real socket.

async with StravaSimulator(clock).serving() as strava:
    ana = strava.add_athlete("Ana", "Silva")
    strava.auto_approve = Consent(ana.id)                    # no consent page
    ride = strava.record(ana.id, "Ride", 42_195)             # sends a webhook if authorized
    strava.edit(ride.id, sport_type="EBikeRide")
    strava.webhooks.duplicates = 2
    strava.faults.add(InjectedFault(path="/api/v3/activities", status=500))
    await strava.webhooks.wait_idle()
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Self

from starlette.applications import Starlette
from starlette.routing import Route

from tally.kit.server import serving
from tally.sim.fault_injection import simulator_app
from tally.sim.strava.api import StravaApi
from tally.sim.strava.consent import ConsentPage
from tally.sim.strava.control import StravaControl
from tally.sim.strava.core import StravaCore


class StravaSimulator(StravaCore):
    """Strava over HTTP."""

    def app(self) -> Starlette:
        def lifespan(_: Starlette) -> AbstractAsyncContextManager[None]:
            return self.webhooks.running()

        parts = (ConsentPage(self), StravaApi(self), StravaControl(self))
        routes: list[Route] = [route for part in parts for route in part.routes()]
        return simulator_app("strava", routes, self.faults, self.clock, lifespan)

    @asynccontextmanager
    async def serving(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Self]:
        """Serve until the block ends; sets `url`."""
        async with serving(self.app(), host, port) as url:
            self.url = url
            yield self
