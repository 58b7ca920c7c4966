"""Starts the whole backend with virtual phones and simulated APNs on one manual clock."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from pyreqwest.client import Client, ClientBuilder

from tally.app import Application, build_app, open_application
from tally.cricket.model.feed import InningsFeed, MatchFeed, MatchStatus, Overs, Side
from tally.cricket.model.records import Fixture, LiveActivity, format_start_time
from tally.cricket.model.results import CONFIRMING_POLLS, FINAL_AFTER_MS
from tally.cricket.wiring.backend import Cricket
from tally.kit.clock import ManualClock
from tally.kit.server import serving
from tally.settings import Settings
from tally.sim.apns.simulator import ApnsSimulator
from tally.sim.oidc.cognito import CognitoSimulator
from tally.sim.phones.cricket_client import CricketClient
from tally.sim.phones.phone import VirtualPhone
from tally.sim.phones.push_services import LocalPushService
from tests.cricket import factories
from tests.cricket.api_harness import signing_keys
from tests.sim.phone_harness import IMMEDIATE_RETRIES

MAILBOX = "phones"


@dataclass(slots=True)
class BackendHarness:
    """The server, its simulators and virtual phones; the fields are what tests access."""

    clock: ManualClock
    apns: ApnsSimulator
    cognito: CognitoSimulator
    client: Client
    settings: Settings
    application: Application
    url: str
    stack: AsyncExitStack
    phones: dict[str, VirtualPhone] = field(default_factory=dict)

    @property
    def cricket(self) -> Cricket:
        return cast("Cricket", self.application.backends["cricket"])

    async def restart(self) -> None:
        """Stop the server and start another one on the same data."""
        await self.stack.aclose()
        self.application, self.url = await _start(self.stack, self.settings, self.clock)
        for device, phone in self.phones.items():
            phone.api = self.client_of(device.split("/")[0])
            phone.app = None
            await phone.launch()

    async def phone(
        self, owner: str, name: str = "phone", os_version: str = "17.4"
    ) -> VirtualPhone:
        """Start a phone whose user has launched the app."""
        device = f"{owner}/{name}"
        phone = VirtualPhone(
            device.replace("/", "-"),
            self.client_of(owner),
            LocalPushService(self.apns.devices),
            self.clock,
            os_version,
        )
        phone.retry_policy = IMMEDIATE_RETRIES
        self.phones[device] = phone
        await phone.launch()
        return phone

    def client_of(self, owner: str) -> CricketClient:
        async def token() -> str:
            return self.cognito.user_token(owner)

        return CricketClient(self.client, f"{self.url}/cricket", token)

    async def match(self, **changes: object) -> Fixture:
        """Create a match that is about to start."""
        fixture = factories.fixture(
            start_time=format_start_time(self.clock.milliseconds()), **changes
        )
        await self.cricket.repositories.fixtures.write_batch([fixture])
        return fixture

    async def poll(
        self, fixture: Fixture, runs: int, status: MatchStatus = MatchStatus.IN_PLAY
    ) -> None:
        """Process a feed with this score and deliver all pushes."""
        await self.clock.advance(2.5)
        now = self.clock.milliseconds()
        is_over = status.is_over
        innings = InningsFeed(
            1, "1", is_super_over=False, runs=runs, wickets=0, overs=Overs(runs // 6, runs % 6)
        )
        feed = MatchFeed(
            match_id=fixture.match_id,
            league_id=fixture.league_id,
            season_id=fixture.season_id,
            match_type="T20",
            total_overs=20,
            teams=(Side("1", "Lions", "LIO"), Side("2", "Tigers", "TIG")),
            starts_at=fixture.start_time,
            status=status,
            status_text="",
            is_live=not is_over,
            received_at=now,
            innings=(innings,),
            note="Lions won by 7 runs" if is_over else "",
            winner_team_id="1" if is_over else None,
        )
        await self.cricket.repositories.fixtures.update(
            fixture.match_id, status=status, live_updated_at=now, updated_at=now
        )
        await self.cricket.live.workers.process(feed, is_final=is_over)
        await self.cricket.live.workers.wait_idle()
        await self.deliver()

    async def confirm_result(self, fixture: Fixture, runs: int) -> None:
        """Let two polls agree that the match is finished."""
        for _ in range(CONFIRMING_POLLS):
            await self.poll(fixture, runs, MatchStatus.FINISHED)

    async def archive(self, fixture: Fixture) -> None:
        """Archive the match after ten minutes, as the reconciliation does."""
        await self.clock.advance(FINAL_AFTER_MS / 1000)
        await self.cricket.repositories.fixtures.archive(
            fixture.match_id, self.clock.milliseconds()
        )

    async def orchestrate(self, seconds: float = 30) -> None:
        """Run the orchestrator and deliver all pushes."""
        await self.clock.advance(seconds)
        await self.cricket.live.orchestrator.run()
        await self.deliver()

    async def deliver(self) -> None:
        """Deliver accepted pushes to the phones and wait for their reactions."""
        mailbox = self.apns.devices.mailbox(MAILBOX)
        while not mailbox.is_empty:
            by_device = {phone.device_id: phone for phone in self.phones.values()}
            for delivery in await mailbox.take():
                await by_device[delivery.device].receive(delivery)
            await asyncio.gather(*(phone.wait_idle() for phone in self.phones.values()))

    async def record(self, fixture: Fixture, phone: VirtualPhone) -> LiveActivity:
        owner = next(
            device.split("/")[0] for device, known in self.phones.items() if known is phone
        )
        now = self.clock.milliseconds()
        found = await self.cricket.repositories.activities.get(
            fixture.match_id, owner, phone.device_id, now
        )
        assert found is not None
        return found


async def _start(
    stack: AsyncExitStack, settings: Settings, clock: ManualClock
) -> tuple[Application, str]:
    application = await stack.enter_async_context(open_application(settings, clock))
    return application, await stack.enter_async_context(serving(build_app(application)))


@asynccontextmanager
async def open_backend_harness(directory: Path) -> AsyncIterator[BackendHarness]:
    clock = ManualClock(datetime(2026, 11, 15, 14, tzinfo=UTC))
    async with (
        ApnsSimulator(clock).serving() as apns,
        CognitoSimulator(clock, keys=signing_keys()).serving() as cognito,
        ClientBuilder().build() as client,
        AsyncExitStack() as stack,
    ):
        settings = Settings(
            data_dir=directory,
            backends=("cricket",),
            cricket_issuer=cognito.issuer,
            cricket_client_id=cognito.client_id,
        )
        settings = apns.configure(settings, directory / "authority.pem")
        application, url = await _start(stack, settings, clock)
        yield BackendHarness(clock, apns, cognito, client, settings, application, url, stack)
