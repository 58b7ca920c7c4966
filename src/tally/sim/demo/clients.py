"""Runs the virtual clients of the demo: boards, athletes, players, phones and live matches.

    async with demo_clients(services, url, clock, state, subscribe): ...

Each kind runs in its own task. A failed task is logged and restarted, so that one kind of client
does not stop the others.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeAlias

from pyreqwest.client import Client, ClientBuilder

from tally.errors import TallyError, Unauthenticated
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
from tally.sim.demo.content import SPRINT_BOARD, create_alarm_rule, create_sprint_board
from tally.sim.demo.services import SimulatedServices
from tally.sim.demo.state import DemoState
from tally.sim.players.fleet import PlayerFleet
from tally.sim.players.player import PlayerBehaviour
from tally.sim.players.scoreboard_client import ScoreboardClient

BOARD_COUNT: Final = 40
BOARD_INTERVAL_SECONDS: Final = 5.0
ATHLETE_COUNT: Final = 12
PLAYER_COUNT: Final = 20
# An hour of training per second.
ATHLETE_SPEED: Final = 3600.0
RESTART_SECONDS: Final = 10.0
REQUEST_TIMEOUT_SECONDS: Final = 10
# Boards deliver buffered readings before they stop.
SHUTDOWN_SECONDS: Final = 10.0

# Registers the webhook of the server at this URL with the Strava simulator.
SubscribeWebhook: TypeAlias = Callable[[str], Awaitable[object]]

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class DemoClients:
    """What the clients share: the server's URL, the simulators, an HTTP client and the state."""

    url: str
    services: SimulatedServices
    client: Client
    clock: Clock
    state: DemoState
    subscribe: SubscribeWebhook

    async def run_boards(self) -> None:
        key = self.state.load_secret("boards") or await self._create_board_key()
        devices = DevicesClient(self.client, f"{self.url}/devices", key, self.clock)
        behaviour = BoardBehaviour(interval=BOARD_INTERVAL_SECONDS)
        fleet = BoardFleet(devices, self.clock, self.state.rng("boards"), behaviour)
        async with fleet.running(BOARD_COUNT):
            await create_alarm_rule(self.client, devices.url, self._operator_token())
            await fleet.rejected.wait()
        self.state.delete_secret("boards")

    async def run_athletes(self) -> None:
        strava = self.services.strava
        if strava is None:
            return
        # The callback of an earlier subscription may point to another port.
        strava.webhooks.unsubscribe()
        await self.subscribe(self.url)
        fleet = AthleteFleet(
            StravaControlClient(self.client, strava.url),
            AcceleratedClock(self.clock, ATHLETE_SPEED),
            self.state.rng("athletes"),
            CollectClient(self.client, f"{self.url}/collect"),
        )
        accounts = {
            f"{athlete.firstname} {athlete.lastname}": athlete.id
            for athlete in strava.athletes.values()
        }
        await fleet.sign_up(ATHLETE_COUNT, accounts)
        async with fleet.running():
            await asyncio.get_running_loop().create_future()

    async def run_players(self) -> None:
        configured = self.services.settings.scoreboard_internal_key
        key = configured or keyfile.read_or_create(self._data_dir / "scoreboard-internal.key")
        url = f"{self.url}/scoreboard/api/v1"
        scoreboard = ScoreboardClient(self.client, url, key, self.clock)
        await create_sprint_board(self.client, url, self._operator_token())
        behaviour = PlayerBehaviour(boards=("global", SPRINT_BOARD))
        fleet = PlayerFleet(scoreboard, self.clock, self.state.rng("players"), behaviour)
        async with fleet.running(PLAYER_COUNT):
            await fleet.rejected.wait()

    async def run_phones(self) -> None:
        if self.services.phones is not None:
            await self.services.phones.run(self.client, f"{self.url}/cricket")

    async def run_matches(self) -> None:
        if self.services.match_schedule is not None:
            await self.services.match_schedule.run()

    async def _create_board_key(self) -> Secret:
        key = await create_api_key(self.client, f"{self.url}/devices", self._operator_token())
        self.state.save_secret("boards", key)
        return key

    def _operator_token(self) -> Secret:
        path = self._data_dir / "operator.token"
        try:
            return self.services.settings.operator_token or Secret(path.read_text().strip())
        except FileNotFoundError as error:
            raise Unauthenticated(f"The demo needs an operator; {path} does not exist") from error

    @property
    def _data_dir(self) -> Path:
        return self.services.settings.data_dir


@asynccontextmanager
async def demo_clients(
    services: SimulatedServices,
    url: str,
    clock: Clock,
    state: DemoState,
    subscribe: SubscribeWebhook,
) -> AsyncIterator[None]:
    """Run the clients of the selected backends until the block ends."""
    timeout = timedelta(seconds=REQUEST_TIMEOUT_SECONDS)
    builder = ClientBuilder().no_proxy().timeout(timeout).follow_redirects(False)
    async with builder.build() as client:
        clients = DemoClients(url, services, client, clock, state, subscribe)
        runners = (
            ("devices", clients.run_boards),
            ("collect", clients.run_athletes),
            ("scoreboard", clients.run_players),
            ("cricket", clients.run_matches),
            ("cricket", clients.run_phones),
        )
        selected = [run for backend, run in runners if backend in services.settings.backends]
        tasks = [asyncio.create_task(_run_forever(run, clock)) for run in selected]
        try:
            yield
        finally:
            await cancel_all(tasks, interval=SHUTDOWN_SECONDS)


async def _run_forever(run: Callable[[], Awaitable[None]], clock: Clock) -> None:
    while True:
        try:
            await run()
        except TallyError as error:
            _log.warning(
                "Demo client failed", action="demo_client_failed", part=run.__name__, error=error
            )
        jitter = random.uniform(0.5, 1.5)  # noqa: S311  not a secret
        await clock.sleep(RESTART_SECONDS * jitter)
