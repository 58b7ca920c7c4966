"""Made-up people who use the server: boards that measure, athletes who train, players who play, phones that follow matches.

    async with people(outside, url, clock, kept): ...

Each kind lives in a task of its own. One that fails is logged and tried again later: a demo that
loses its boards goes on with its athletes.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from pyreqwest.client import Client, ClientBuilder

from tally.errors import TallyError
from tally.kit import keyfile, logs
from tally.kit.clock import Clock
from tally.kit.tasks import cancel_all
from tally.settings import Secret
from tally.sim.athletes.collect_client import CollectClient
from tally.sim.athletes.fleet import AcceleratedClock, AthleteFleet
from tally.sim.athletes.strava_client import StravaControlClient
from tally.sim.boards.command import create_api_key
from tally.sim.boards.devices_client import DevicesClient
from tally.sim.boards.fleet import BoardBehaviour, BoardFleet
from tally.sim.demo.services import SimulatedServices
from tally.sim.demo.state import DemoState
from tally.sim.players.fleet import PlayerFleet
from tally.sim.players.scoreboard_client import ScoreboardClient

BOARDS: Final = 40
BOARD_SECONDS: Final = 5.0
ATHLETES: Final = 12
PLAYERS: Final = 20
# An hour of theirs in a second of ours.
ATHLETES_SPEED: Final = 3600.0
AGAIN_SECONDS: Final = 10.0
CALL_SECONDS: Final = 10
# Boards deliver what they hold before they go.
FAREWELL_SECONDS: Final = 10.0

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class DemoClients:
    """What everybody needs: the server, the outside world, a client, and what is remembered."""

    url: str
    outside: SimulatedServices
    client: Client
    clock: Clock
    kept: DemoState

    async def live_boards(self) -> None:
        rng = self.kept.rng("boards")
        key = self.kept.secret("boards") or await self._make_board_key()
        uplink = DevicesClient(self.client, f"{self.url}/devices", key, self.clock)
        fleet = BoardFleet(uplink, self.clock, rng, BoardBehaviour(interval=BOARD_SECONDS))
        async with fleet.living(BOARDS):
            await fleet.refused.wait()
        self.kept.forget_secret("boards")

    async def live_athletes(self) -> None:
        strava = self.outside.strava
        if strava is None:
            return
        token = keyfile.read_or_create(self._data_dir / "collect-strava-verify.key")
        given = self.outside.settings.collect_strava_verify_token or token
        # One from before a restart, or from a try that failed, may lead to a port that is no longer
        # ours.
        strava.webhooks.unsubscribe()
        await strava.webhooks.subscribe(f"{self.url}/collect/webhooks/strava", given.reveal())
        rng = self.kept.rng("athletes")
        accounts, clock = (
            StravaControlClient(self.client, strava.url),
            AcceleratedClock(self.clock, ATHLETES_SPEED),
        )
        fleet = AthleteFleet(
            accounts, clock, rng, CollectClient(self.client, f"{self.url}/collect")
        )
        known = {
            f"{athlete.firstname} {athlete.lastname}": athlete.id
            for athlete in strava.athletes.values()
        }
        await fleet.sign_up(ATHLETES, known)
        async with fleet.running():
            await asyncio.get_running_loop().create_future()

    async def live_players(self) -> None:
        given = self.outside.settings.scoreboard_internal_key
        key = given or keyfile.read_or_create(self._data_dir / "scoreboard-internal.key")
        server = ScoreboardClient(self.client, f"{self.url}/scoreboard/api/v1", key, self.clock)
        fleet = PlayerFleet(server, self.clock, self.kept.rng("players"))
        async with fleet.living(PLAYERS):
            await fleet.refused.wait()

    async def live_phones(self) -> None:
        if self.outside.crowd is not None:
            await self.outside.crowd.live(self.client, f"{self.url}/cricket")

    async def live_matches(self) -> None:
        if self.outside.programme is not None:
            await self.outside.programme.go_on()

    async def _make_board_key(self) -> Secret:
        given = self.outside.settings.devices_admin_token
        token = given or keyfile.read_or_create(self._data_dir / "devices-admin.key")
        key = await create_api_key(self.client, f"{self.url}/devices", token)
        self.kept.keep_secret("boards", key)
        return key

    @property
    def _data_dir(self) -> Path:
        return self.outside.settings.data_dir


@asynccontextmanager
async def demo_clients(
    outside: SimulatedServices, url: str, clock: Clock, kept: DemoState
) -> AsyncIterator[None]:
    """Everybody lives until the block ends."""
    builder = (
        ClientBuilder().no_proxy().timeout(timedelta(seconds=CALL_SECONDS)).follow_redirects(False)
    )
    async with builder.build() as client:
        town = DemoClients(url, outside, client, clock, kept)
        lives = (
            ("devices", town.live_boards),
            ("collect", town.live_athletes),
            ("scoreboard", town.live_players),
            ("cricket", town.live_matches),
            ("cricket", town.live_phones),
        )
        chosen = [life for backend, life in lives if backend in outside.settings.backends]
        tasks = [asyncio.create_task(_for_ever(life, clock)) for life in chosen]
        try:
            yield
        finally:
            await cancel_all(tasks, interval=FAREWELL_SECONDS)


async def _for_ever(life: Callable[[], Awaitable[None]], clock: Clock) -> None:
    while True:
        try:
            await life()
        except TallyError as error:
            _log.warning(
                "A part of the demo failed", action="demo", part=life.__name__, error=error
            )
        await clock.sleep(AGAIN_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311  (nothing secret)
