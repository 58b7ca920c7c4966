"""Phones that change hands, sign-out and the deletion of a user, through the HTTP API.

All tests run on every engine.
"""

import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta

import msgspec
import pytest

from tally.app import CATALOGUE
from tally.cricket.model.records import NotificationKind, SentNotification
from tally.sim.apns.devices import TokenKind
from tally.store.api import Scan
from tally.store.catalogue import Catalogue
from tests.api_response import expect_error
from tests.cricket import factories
from tests.cricket.api_harness import ApiClient, ApiHarness, open_api_harness_on
from tests.store.emulators import engines

CRICKET_TABLES = Catalogue({"cricket": CATALOGUE.backends["cricket"]}).tables()
_numbers = itertools.count(1)


@pytest.fixture(scope="module", params=engines("local"))
async def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ApiHarness]:
    """Start one server with a live and an upcoming match; each test has its own users."""
    async with open_api_harness_on(request.param, tmp_path_factory.mktemp("owners")) as opened:
        opened.live_match(12)
        opened.sportmonks.schedule(1, first=opened.clock.now() + timedelta(hours=5))
        await opened.sync()
        await opened.poll()
        yield opened


@pytest.fixture
async def live_id(server: ApiHarness) -> str:
    (listed,) = (await server.user("anyone").get_json("/matches/live"))["items"]
    return str(listed["matchId"])


@dataclass(frozen=True, slots=True)
class SharedPhone:
    """A phone with its tokens."""

    server: ApiHarness
    device_id: str
    device_token: str
    start_token: str

    async def sign_in(self, user: ApiClient) -> None:
        """Register the phone for a user, as the app does after the sign-in."""
        body = {
            "deviceToken": self.device_token,
            "deviceId": self.device_id,
            "platform": "ios",
            "osVersion": "17.4",
        }
        assert (await user.post("/user/device", body)).status == 200
        start = {"pushToStartToken": self.start_token, "deviceId": self.device_id}
        assert (await user.put("/user/device/push-to-start", start)).status == 200

    async def display(self, user: ApiClient, match_id: str) -> str:
        """Follow a match and register its Live Activity; return the update token."""
        assert (await user.post(f"/user/follow/{match_id}", {})).status in {200, 201}
        token = self.server.apns.devices.issue(self.device_id, TokenKind.UPDATE)
        body = {"deviceId": self.device_id, "updateToken": token}
        assert (await user.post(f"/matches/{match_id}/activity-token", body)).status == 200
        return token

    def events(self, token: str) -> list[str]:
        return [
            msgspec.json.decode(payload)["aps"]["event"]
            for payload in self.server.apns.log.payloads(token)
        ]


@pytest.fixture
def phone(server: ApiHarness) -> SharedPhone:
    device_id = f"SHARED-{next(_numbers)}"
    devices = server.apns.devices
    devices.register(device_id, device_id)
    return SharedPhone(
        server,
        device_id,
        devices.issue(device_id, TokenKind.DEVICE),
        devices.issue(device_id, TokenKind.START),
    )


def new_user(server: ApiHarness) -> tuple[str, ApiClient]:
    user_id = factories.name("user")
    return user_id, server.user(user_id)


async def play_on(server: ApiHarness, match_id: str) -> None:
    """Deliver a ball, poll it, and check the activities after the time for a restart."""
    server.sportmonks.playbacks[int(match_id)].deliver(1)
    server.skip_time(301)
    await server.poll()
    await server.cricket.live.orchestrator.process(match_id)


async def test_the_second_user_of_a_phone_takes_it_over(
    server: ApiHarness, phone: SharedPhone, live_id: str
) -> None:
    """The first user's activity ends; no update, start or notification of theirs arrives."""
    (_, ana), (_, ben) = new_user(server), new_user(server)
    await phone.sign_in(ana)
    token = await phone.display(ana, live_id)
    server.skip_time(1)
    await phone.sign_in(ben)
    before = phone.events(token)
    assert before[-1] == "end"
    assert (await ana.get_json("/user/device"))["items"] == []
    assert len((await ben.get_json("/user/device"))["items"]) == 1
    await play_on(server, live_id)
    assert phone.events(token) == before
    assert phone.events(phone.start_token) == ["start"]
    assert (await ana.get(f"/user/follow/{live_id}")).status == 200
    expect_error(await ben.get(f"/user/follow/{live_id}"), 404, "not_followed")
    late = {"deviceId": phone.device_id, "updateToken": token}
    expect_error(await ben.post(f"/matches/{live_id}/activity-token", late), 409, "activity_ended")


async def test_signing_out_ends_the_activities_of_the_phone(
    server: ApiHarness, phone: SharedPhone, live_id: str
) -> None:
    """The follow remains, and the next sign-in starts the match again."""
    _, ana = new_user(server)
    await phone.sign_in(ana)
    token = await phone.display(ana, live_id)
    assert (await ana.delete(f"/user/device?deviceId={phone.device_id}")).status == 204
    before = phone.events(token)
    assert before[-1] == "end"
    await play_on(server, live_id)
    assert (phone.events(token), phone.events(phone.start_token)) == (before, ["start"])
    await phone.sign_in(ana)
    assert phone.events(phone.start_token) == ["start", "start"]


async def tables_with(server: ApiHarness, user_id: str) -> set[str]:
    """Return the cricket tables in which an item contains the user ID."""
    found = set()
    for table in CRICKET_TABLES:
        start = None
        while True:
            page = await server.application.engine.scan(Scan(table, start=start, consistent=True))
            found |= {table.name for item in page.items if user_id in repr(item)}
            start = page.next
            if start is None:
                break
    return found


async def test_nothing_of_a_deleted_user_is_left(
    server: ApiHarness, phone: SharedPhone, live_id: str
) -> None:
    """A running activity ends; other users keep theirs, and a restoration brings nothing back."""
    (user_id, ana), (other_id, ben) = new_user(server), new_user(server)
    repositories, now = server.cricket.repositories, server.clock.seconds()
    await phone.sign_in(ana)
    token = await phone.display(ana, live_id)
    match = (await ana.get_json("/matches?status=not_started"))["items"][0]
    upcoming_id, team_id = str(match["matchId"]), str(match["teams"][0]["teamId"])
    for user in (ana, ben):
        assert (await user.put(f"/user/follow/team/{team_id}", {})).status == 200
        assert (await user.post(f"/user/follow/{live_id}", {})).status in {200, 201}
    own_token = server.apns.devices.issue(phone.device_id, TokenKind.UPDATE)
    subscribed = await ana.post(f"/user/activity/{live_id}", {"pushToken": own_token})
    assert subscribed.status == 200
    kept = factories.follow(factories.number(), user_id=user_id)
    await repositories.deleted_follows.keep([kept], now)
    for match_id, kind in itertools.product(
        (live_id, upcoming_id, kept.match_id), NotificationKind
    ):
        await repositories.notifications.mark_sent(
            SentNotification(
                match_id=match_id,
                user_id=user_id,
                kind=kind,
                sent_at=now * 1000,
                expires_at=now + 3_600,
            )
        )
    assert await tables_with(server, user_id) == {
        "cricket-activity-subscriptions",
        "cricket-deleted-follows",
        "cricket-devices",
        "cricket-match-follows",
        "cricket-prematch-notifications",
        "cricket-team-follows",
        "live-activities",
    }
    for _ in range(2):
        assert (await ana.delete("/user")).status == 204
    assert await tables_with(server, user_id) == set()
    assert await tables_with(server, other_id) == {"cricket-match-follows", "cricket-team-follows"}
    assert [phone.events(sent)[-1] for sent in (token, own_token)] == ["end", "end"]
    await play_on(server, live_id)
    assert await tables_with(server, user_id) == set()
    assert phone.events(phone.start_token) == ["start"]
