"""Virtual phones on the real backend: follow, start, rotate, swipe away, unfollow, two devices of one person."""

import asyncio
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
from tally.sim.oidc.cognito import CognitoSimulator
from tally.sim.phones.activitykit import ActivityState
from tally.sim.phones.cricket_client import CricketClient
from tally.sim.phones.follows import Bell
from tally.sim.phones.phone import VirtualPhone
from tally.sim.phones.push_services import LocalPushService
from tests.sim.stadium import AT_ONCE


@dataclass
class Site:
    """A server with cricket on it, and phones that are read to from here."""

    parts: Application
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
            self.parts.clock,
            os_version,
            retry_policy=AT_ONCE,
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
        now = self.parts.clock.milliseconds()
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
        await FixtureRepository(self.parts.store).write_batch([fixture])
        return match_id

    async def record(self, match_id: str, owner: str, device: str) -> LiveActivity | None:
        found = LiveActivityRepository(self.parts.store)
        return await found.get(match_id, owner, device, self.parts.clock.milliseconds())


@asynccontextmanager
async def site(directory: Path) -> AsyncIterator[Site]:
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
        async with open_application(settings, clock) as parts, serving(build_app(parts)) as url:
            yield Site(parts, apns, cognito, client, url)


@pytest.fixture(scope="module")
async def there(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with site(tmp_path_factory.mktemp("site")) as opened:
        yield opened


async def test_following_a_live_match_shows_it_on_every_device_of_the_person(there: Site) -> None:
    """Push-to-start on both, tokens handed in by both, both records active."""
    match = await there.match("101")
    phone, tablet = there.phone("ana", "ana-phone"), there.phone("ana", "ana-tablet")
    app = await phone.launch()
    await tablet.launch()
    assert await app.follows.follow(match, "40")
    await there.deliver()
    for device in (phone, tablet):
        activity = device.find_activity(match)
        assert activity is not None
        assert activity.attributes["teamId"] == "40"
        record = await there.record(match, "ana", device.device_id)
        assert record is not None
        assert (record.status, record.update_token) == (ActivityStatus.ACTIVE, activity.token)
    assert phone.bell(match) is Bell.FILLED


async def test_a_rotated_token_replaces_the_old_one_in_place(there: Site) -> None:
    match = await there.match("102")
    phone = there.phone("ben", "ben-phone")
    app = await phone.launch()
    await app.follows.follow(match)
    await there.deliver()
    activity = phone.find_activity(match)
    assert activity is not None
    await phone.activity_kit.rotate_token(activity)
    await phone.wait_idle()
    record = await there.record(match, "ben", "ben-phone")
    assert record is not None
    assert (record.status, record.update_token) == (ActivityStatus.ACTIVE, activity.token)


async def test_an_unfollow_takes_the_match_off_the_other_device_too(there: Site) -> None:
    match = await there.match("103")
    phone, tablet = there.phone("cem", "cem-phone"), there.phone("cem", "cem-tablet")
    app = await phone.launch()
    await tablet.launch()
    await app.follows.follow(match)
    await there.deliver()
    assert tablet.find_activity(match) is not None
    await app.follows.unfollow(match)
    await there.deliver()
    for device in (phone, tablet):
        assert device.find_activity(match) is None
        record = await there.record(match, "cem", device.device_id)
        assert record is not None
        assert (record.status, record.end_reason) == (ActivityStatus.ENDED, EndReason.USER_UNFOLLOW)
    await tablet.launch()
    assert tablet.bell(match) is Bell.OUTLINE


async def test_swiping_away_ends_and_unfollows(there: Site) -> None:
    match = await there.match("104")
    phone = there.phone("dev", "dev-phone")
    app = await phone.launch()
    await app.follows.follow(match)
    await there.deliver()
    await phone.swipe_away(match)
    await phone.wait_idle()
    record = await there.record(match, "dev", "dev-phone")
    assert record is not None
    assert (record.status, record.end_reason) == (ActivityStatus.ENDED, EndReason.USER_DISMISSED)
    assert (await phone.api.follows(), phone.bell(match)) == ({}, Bell.OUTLINE)


async def test_an_offline_unfollow_reaches_the_server_at_the_next_launch(there: Site) -> None:
    match = await there.match("105")
    phone = there.phone("eva", "eva-phone")
    app = await phone.launch()
    await app.follows.follow(match)
    await there.deliver()
    await phone.set_online(is_online=False)
    await app.follows.unfollow(match)
    phone.quit()
    await phone.set_online(is_online=True)
    assert match in await phone.api.follows()
    await phone.launch()
    assert await phone.api.follows() == {}


async def test_a_phone_that_starts_its_activity_itself_is_registered_the_same_way(
    there: Site,
) -> None:
    """An older iOS: the follow's answer is what it shows at once."""
    match = await there.match("106")
    phone = there.phone("fay", "fay-phone", os_version="17.0")
    app = await phone.launch()
    await app.follows.follow(match)
    await phone.wait_idle()
    activity = phone.find_activity(match)
    assert activity is not None
    assert (activity.state, activity.is_push_started) == (ActivityState.ACTIVE, False)
    record = await there.record(match, "fay", "fay-phone")
    assert record is not None
    assert (record.status, record.update_token) == (ActivityStatus.ACTIVE, activity.token)
