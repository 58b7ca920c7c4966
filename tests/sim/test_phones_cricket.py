"""Virtual phones on the real cricket backend, including two devices of one user."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyreqwest.client import Client, ClientBuilder

from tally.app import Application, build_app, open_application
from tally.cricket.model.feed import MatchStatus
from tally.cricket.model.records import ActivityStatus, EndReason, Fixture, LiveActivity
from tally.cricket.repository.fixtures import FixtureRepository
from tally.cricket.repository.live_activities import LiveActivityRepository
from tally.kit.clock import SystemClock
from tally.kit.server import serving
from tally.settings import Settings
from tally.sim.apns.simulator import ApnsSimulator
from tally.sim.demo.phones import follow_live_matches
from tally.sim.oidc.cognito import CognitoSimulator
from tally.sim.phones.activitykit import ActivityState
from tally.sim.phones.cricket_client import CricketClient
from tally.sim.phones.follows import Bell
from tally.sim.phones.phone import VirtualPhone
from tally.sim.phones.push_services import LocalPushService
from tests.sim.phone_harness import IMMEDIATE_RETRIES


@dataclass
class CricketSite:
    """A server with the cricket backend, and phones that receive its pushes."""

    application: Application
    apns: ApnsSimulator
    cognito: CognitoSimulator
    client: Client
    url: str
    phones: dict[str, VirtualPhone] = field(default_factory=dict)

    def phone(self, owner: str, device: str, os_version: str = "17.4") -> VirtualPhone:
        async def token() -> str:
            return self.cognito.user_token(owner)

        api = CricketClient(self.client, f"{self.url}/cricket", token)
        phone = VirtualPhone(
            device,
            api,
            LocalPushService(self.apns.devices),
            self.application.clock,
            os_version,
            retry_policy=IMMEDIATE_RETRIES,
        )
        self.phones[device] = phone
        return phone

    async def deliver(self) -> None:
        """Hand on what Apple has taken so far, and let the apps do what they do about it."""
        mailbox = self.apns.devices.mailbox("phones")
        while not mailbox.is_empty:
            for delivery in await mailbox.take():
                await self.phones[delivery.device].receive(delivery)
            await asyncio.gather(*(phone.wait_idle() for phone in self.phones.values()))

    async def match(self, match_id: str) -> str:
        """A live match."""
        now = self.application.clock.milliseconds()
        fixture = Fixture(
            match_id=match_id,
            league_id="1",
            league_code="ipl",
            season_id="9",
            home_team_id="40",
            away_team_id="41",
            match_type="T20",
            start_time=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            status=MatchStatus.IN_PLAY,
            updated_at=now,
            live_updated_at=now,
        )
        await FixtureRepository(self.application.store).write_batch([fixture])
        return match_id

    async def record(self, match_id: str, owner: str, device: str) -> LiveActivity | None:
        activities = LiveActivityRepository(self.application.store)
        return await activities.get(match_id, owner, device, self.application.clock.milliseconds())


@asynccontextmanager
async def run_site(directory: Path) -> AsyncIterator[CricketSite]:
    clock = SystemClock()
    async with (
        ApnsSimulator(clock).serving() as apns,
        CognitoSimulator(clock).serving() as cognito,
        ClientBuilder().build() as client,
    ):
        settings = apns.configure(
            Settings(
                data_dir=directory,
                backends=("cricket",),
                cricket_issuer=cognito.issuer,
                cricket_client_id=cognito.client_id,
            ),
            directory / "authority.pem",
        )
        async with (
            open_application(settings, clock) as application,
            serving(build_app(application)) as url,
        ):
            yield CricketSite(application, apns, cognito, client, url)


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CricketSite]:
    async with run_site(tmp_path_factory.mktemp("site")) as running:
        yield running


async def test_following_a_live_match_starts_activities_on_every_device(site: CricketSite) -> None:
    """Both devices get a push-to-start, register tokens and have active records."""
    match = await site.match("101")
    phone, tablet = site.phone("ana", "ana-phone"), site.phone("ana", "ana-tablet")
    app = await phone.launch()
    await tablet.launch()
    assert await app.follows.follow(match, "40")
    await site.deliver()
    for device in (phone, tablet):
        activity = device.find_activity(match)
        assert activity is not None
        assert activity.attributes["teamId"] == "40"
        record = await site.record(match, "ana", device.device_id)
        assert record is not None
        assert (record.status, record.update_token) == (ActivityStatus.ACTIVE, activity.token)
    assert phone.bell(match) is Bell.FILLED


async def test_rotated_token_replaces_the_old_one(site: CricketSite) -> None:
    match = await site.match("102")
    phone = site.phone("ben", "ben-phone")
    app = await phone.launch()
    await app.follows.follow(match)
    await site.deliver()
    activity = phone.find_activity(match)
    assert activity is not None
    await phone.activity_kit.rotate_token(activity)
    await phone.wait_idle()
    record = await site.record(match, "ben", "ben-phone")
    assert record is not None
    assert (record.status, record.update_token) == (ActivityStatus.ACTIVE, activity.token)


async def test_unfollow_ends_the_activity_on_the_other_device(site: CricketSite) -> None:
    match = await site.match("103")
    phone, tablet = site.phone("cem", "cem-phone"), site.phone("cem", "cem-tablet")
    app = await phone.launch()
    await tablet.launch()
    await app.follows.follow(match)
    await site.deliver()
    assert tablet.find_activity(match) is not None
    await app.follows.unfollow(match)
    await site.deliver()
    for device in (phone, tablet):
        assert device.find_activity(match) is None
        record = await site.record(match, "cem", device.device_id)
        assert record is not None
        assert (record.status, record.end_reason) == (ActivityStatus.ENDED, EndReason.USER_UNFOLLOW)
    await tablet.launch()
    assert tablet.bell(match) is Bell.OUTLINE


async def test_dismissal_ends_and_unfollows(site: CricketSite) -> None:
    match = await site.match("104")
    phone = site.phone("dev", "dev-phone")
    app = await phone.launch()
    await app.follows.follow(match)
    await site.deliver()
    await phone.swipe_away(match)
    await phone.wait_idle()
    record = await site.record(match, "dev", "dev-phone")
    assert record is not None
    assert (record.status, record.end_reason) == (ActivityStatus.ENDED, EndReason.USER_DISMISSED)
    assert (await phone.api.follows(), phone.bell(match)) == ({}, Bell.OUTLINE)


async def test_offline_unfollow_reaches_the_server_at_the_next_launch(site: CricketSite) -> None:
    match = await site.match("105")
    phone = site.phone("eva", "eva-phone")
    app = await phone.launch()
    await app.follows.follow(match)
    await site.deliver()
    await phone.set_online(is_online=False)
    await app.follows.unfollow(match)
    phone.quit()
    await phone.set_online(is_online=True)
    assert match in await phone.api.follows()
    await phone.launch()
    assert await phone.api.follows() == {}


async def test_phones_of_the_demo_follow_live_matches_while_another_is_offline(
    site: CricketSite,
) -> None:
    await site.match("130")
    away, online = site.phone("ada", "ada-phone"), site.phone("bob", "bob-phone")
    for phone in (away, online):
        await phone.launch()
    await away.set_online(is_online=False)
    await follow_live_matches([away, online], random.Random(1))
    assert len(await online.api.follows()) == 1


async def test_app_started_activity_is_registered(
    site: CricketSite,
) -> None:
    """An older iOS shows the display state of the follow response."""
    match = await site.match("106")
    phone = site.phone("fay", "fay-phone", os_version="17.0")
    app = await phone.launch()
    await app.follows.follow(match)
    await phone.wait_idle()
    activity = phone.find_activity(match)
    assert activity is not None
    assert (activity.state, activity.is_push_started) == (ActivityState.ACTIVE, False)
    record = await site.record(match, "fay", "fay-phone")
    assert record is not None
    assert (record.status, record.update_token) == (ActivityStatus.ACTIVE, activity.token)
