"""Everything at once: the program, the score service, the push service, the issuer of tokens, and phones that people hold."""

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
from tests.e2e.stadium import settings_for
from tests.sim.stadium import AT_ONCE

T = TypeVar("T")
# Seconds of the play at a time.
STEP = 0.25


@dataclass
class Theatre:
    """A programme of one match, which moves when a test says so, and whoever watches it."""

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
        """A phone with the app running on it."""

        async def token() -> str:
            return self.cognito.user_token(owner)

        api = CricketClient(self.client, f"{self.url}/cricket", token)
        phone = VirtualPhone(
            device,
            api,
            LocalPushService(self.apns.devices),
            self.clock,
            os_version,
            retry_policy=AT_ONCE,
        )
        self.phones[device] = phone
        await self.sit_out(phone.launch())
        return phone

    async def until(self, holds: Callable[[], bool]) -> None:
        """Let time pass, and with it the program's jobs, until something holds; two minutes of the play at most."""
        for _ in range(480):
            await self.deliver()
            if holds():
                return
            await self.clock.advance(STEP)
            await self.breathe()
        raise AssertionError("it did not happen within two minutes")

    async def until_heard(self) -> None:
        """Until the pipeline has taken the score, and whoever is to be told has been told."""
        for _ in range(120):
            tables = self.cricket.repositories
            fixture, match = (
                await tables.fixtures.get(self.match_id),
                await tables.matches.get(self.match_id),
            )
            taken = match.previous_scores.values() if match is not None else ()
            scores = {each["teamId"]: f"{each['runs']}/{each['wickets']}" for each in taken}
            shown = (
                " ".join(scores.get(side, "-") for side in fixture.team_ids)
                if fixture is not None
                else ""
            )
            if fixture is not None and fixture.is_live and shown == self.score:
                await self.sit_out(self.cricket.live.workers.wait_idle())
                await self.deliver()
                return
            await self.pass_time(1)
        raise AssertionError("the program did not hear of it within two minutes")

    async def pass_time(self, seconds: float) -> None:
        """Let so much time pass, with all that it brings."""
        for _ in range(round(seconds / STEP)):
            await self.clock.advance(STEP)
            await self.breathe()
        await self.deliver()

    async def breathe(self) -> None:
        """Let sockets have their turn, which no clock of ours can tell when they have had."""
        idle = asyncio.get_running_loop().create_future()
        await asyncio.wait({idle}, timeout=0.003)

    async def deliver(self) -> None:
        """Hand on what Apple has taken so far, and let the apps do what they do about it."""
        mailbox = self.apns.devices.mailbox("phones")
        while not mailbox.is_empty:
            for delivery in await mailbox.take():
                await self.phones[delivery.device].receive(delivery)
            for phone in self.phones.values():
                await self.sit_out(phone.settled())

    async def sit_out(self, work: Awaitable[T]) -> T:
        """The result of `work`, letting the time pass that it waits for."""
        task = asyncio.ensure_future(work)
        while not task.done():
            await asyncio.wait({task}, timeout=0.02)
            if not task.done():
                await self.clock.advance(0.1)
        return await task

    @property
    def score(self) -> str:
        """What the score service says, side by side as on the screen."""
        fixture = self.broadcast.fixture()
        scores = {row["team_id"]: f"{row['score']}/{row['wickets']}" for row in fixture["runs"]}
        return " ".join(
            scores.get(fixture[side], "-") for side in ("localteam_id", "visitorteam_id")
        )

    async def record(self, owner: str, device: str) -> LiveActivity:
        found = await self.cricket.repositories.activities.get(
            self.match_id, owner, device, self.clock.milliseconds()
        )
        assert found is not None
        return found


@asynccontextmanager
async def open_theatre(directory: Path) -> AsyncIterator[Theatre]:
    """Certificates are checked by the machine's clock, so the play begins now."""
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
        async with open_application(settings, clock) as parts, serving(build_app(parts)) as url:
            cricket = parts.backends["cricket"]
            assert isinstance(cricket, Cricket)
            theatre = Theatre(clock, sportmonks, apns, cognito, cricket, client, url, broadcast)
            for sync in (
                cricket.services.sync.sync_leagues,
                cricket.services.sync.sync_teams,
                cricket.services.sync.sync_fixtures,
            ):
                await theatre.sit_out(sync())
            yield theatre
