"""Starts the application, the simulators of all its services, and virtual phones."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from pyreqwest.client import Client, ClientBuilder

from tally.app import build_app, open_application
from tally.cricket.model.records import LiveActivity
from tally.cricket.wiring.backend import Cricket
from tally.kit.clock import ManualClock
from tally.kit.server import serving
from tally.sim.apns.simulator import ApnsSimulator
from tally.sim.oidc.cognito import CognitoSimulator
from tally.sim.phones.cricket_client import CricketClient
from tally.sim.phones.phone import VirtualPhone
from tally.sim.phones.push_services import LocalPushService
from tally.sim.sportmonks.cricsheet import bundled_match
from tally.sim.sportmonks.playback import MatchPlayback
from tally.sim.sportmonks.simulator import SportMonksSimulator
from tests.e2e.cricket_harness import settings_for
from tests.sim.phone_harness import IMMEDIATE_RETRIES

T = TypeVar("T")
# Seconds that the clock advances at a time.
STEP_SECONDS = 0.25
LONG_STEP_SECONDS = 10.0


@dataclass
class PhonesHarness:
    """The application, the simulators around it, one match and any number of phones."""

    clock: ManualClock
    sportmonks: SportMonksSimulator
    apns: ApnsSimulator
    cognito: CognitoSimulator
    cricket: Cricket
    client: Client
    url: str
    broadcast: MatchPlayback
    phones: dict[str, VirtualPhone] = field(default_factory=dict)

    @property
    def match_id(self) -> str:
        return str(self.broadcast.match.id)

    async def phone(self, owner: str, device: str, os_version: str = "17.4") -> VirtualPhone:
        """Return a phone with the running app."""

        async def token() -> str:
            return self.cognito.user_token(owner)

        api = CricketClient(self.client, f"{self.url}/cricket", token)
        phone = VirtualPhone(
            device,
            api,
            LocalPushService(self.apns.devices),
            self.clock,
            os_version,
            retry_policy=IMMEDIATE_RETRIES,
        )
        self.phones[device] = phone
        await self.advance_until_done(phone.launch())
        return phone

    async def until(self, condition: Callable[[], bool]) -> None:
        """Advance the clock until a condition condition, for at most two minutes."""
        for _ in range(480):
            await self.deliver()
            if condition():
                return
            await self.clock.advance(STEP_SECONDS)
            await self.yield_to_sockets()
        raise AssertionError("the condition did not hold within two minutes")

    async def until_processed(self) -> None:
        """Advance the clock until the pipeline has processed and delivered the score."""
        for _ in range(120):
            tables = self.cricket.repositories
            fixture, match = (
                await tables.fixtures.get(self.match_id),
                await tables.matches.get(self.match_id),
            )
            scores_by_innings = match.previous_scores.values() if match is not None else ()
            scores = {
                innings["teamId"]: f"{innings['runs']}/{innings['wickets']}"
                for innings in scores_by_innings
            }
            displayed = (
                " ".join(scores.get(side, "-") for side in fixture.team_ids)
                if fixture is not None
                else ""
            )
            if fixture is not None and fixture.is_live and displayed == self.score:
                await self.advance_until_done(self.cricket.live.workers.wait_idle())
                await self.deliver()
                return
            await self.advance(1)
        raise AssertionError("the score was not processed within two minutes")

    async def advance(self, seconds: float) -> None:
        """Advance the clock in steps and deliver the pushes."""
        for _ in range(round(seconds / STEP_SECONDS)):
            await self.clock.advance(STEP_SECONDS)
            await self.yield_to_sockets()
        await self.deliver()

    async def skip(self, seconds: float) -> None:
        """Advance the clock in long steps, for waits without a change of the match."""
        for _ in range(round(seconds / LONG_STEP_SECONDS)):
            await self.clock.advance(LONG_STEP_SECONDS)
            for _ in range(4):
                await self.yield_to_sockets()
            await self.deliver()

    async def yield_to_sockets(self) -> None:
        """Let the event loop process sockets, which do not depend on the clock."""
        idle = asyncio.get_running_loop().create_future()
        await asyncio.wait({idle}, timeout=0.003)

    async def deliver(self) -> None:
        """Deliver the accepted pushes to the phones and let the apps react."""
        mailbox = self.apns.devices.mailbox("phones")
        while not mailbox.is_empty:
            for delivery in await mailbox.take():
                await self.phones[delivery.device].receive(delivery)
            for phone in self.phones.values():
                await self.advance_until_done(phone.wait_idle())

    async def advance_until_done(self, work: Awaitable[T]) -> T:
        """Advance the clock until `work` is done; return its result."""
        task = asyncio.ensure_future(work)
        while not task.done():
            await asyncio.wait({task}, timeout=0.02)
            if not task.done():
                await self.clock.advance(0.1)
        return await task

    @property
    def score(self) -> str:
        """The score of the score service, in the format of the screen."""
        fixture = self.broadcast.fixture()
        scores = {row["team_id"]: f"{row['score']}/{row['wickets']}" for row in fixture["runs"]}
        return " ".join(
            scores.get(fixture[side], "-") for side in ("localteam_id", "visitorteam_id")
        )

    async def record(self, owner: str, device: str) -> LiveActivity:
        activity = await self.cricket.repositories.activities.get(
            self.match_id, owner, device, self.clock.milliseconds()
        )
        assert activity is not None
        return activity


@asynccontextmanager
async def open_phones_harness(directory: Path) -> AsyncIterator[PhonesHarness]:
    """Open the harness at the current time, because certificates are verified by it."""
    clock = ManualClock(datetime.now(UTC))
    async with (
        SportMonksSimulator(clock).serving() as sportmonks,
        ApnsSimulator(clock).serving() as apns,
        CognitoSimulator(clock).serving() as cognito,
        ClientBuilder().build() as client,
    ):
        broadcast = sportmonks.add(bundled_match())
        settings = apns.configure(
            settings_for(directory, sportmonks, cognito), directory / "authority.pem"
        )
        async with (
            open_application(settings, clock) as application,
            serving(build_app(application)) as url,
        ):
            cricket = application.backends["cricket"]
            assert isinstance(cricket, Cricket)
            harness = PhonesHarness(
                clock, sportmonks, apns, cognito, cricket, client, url, broadcast
            )
            for sync in (
                cricket.services.sync.sync_leagues,
                cricket.services.sync.sync_teams,
                cricket.services.sync.sync_fixtures,
            ):
                await harness.advance_until_done(sync())
            yield harness
