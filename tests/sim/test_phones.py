"""A virtual phone behaves like an iPhone with the app: tokens, activities, follows and the bell."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tally.cricket.model import payloads
from tally.sim.apns.devices import PushDelivery, TokenKind
from tally.sim.fault_injection import InjectedFault
from tally.sim.phones.activitykit import MAX_ALERTS, MAX_DISMISSED, ActivityState
from tally.sim.phones.follows import Bell
from tally.sim.phones.tokens import UserDefaults
from tests.sim.phone_harness import PhoneHarness, run_phone_harness, shown_numbers

HOUR = 3600
MINUTE = 60


@pytest.fixture(scope="module")
async def _harness() -> AsyncIterator[PhoneHarness]:
    async with run_phone_harness() as harness:
        yield harness


@pytest.fixture
def harness(_harness: PhoneHarness) -> PhoneHarness:
    cricket_api = _harness.cricket_api
    cricket_api.faults.clear()
    for collection in (cricket_api.live, cricket_api.follows, cricket_api.ended, cricket_api.calls):
        collection.clear()
    return _harness


async def test_first_launch_registers_phone_and_start_token(
    harness: PhoneHarness,
) -> None:
    phone = harness.phone()
    await phone.launch()
    [device] = harness.cricket_api.calls_of("device")
    assert device == {
        "deviceToken": phone.device_token,
        "deviceId": "phone-1",
        "platform": "ios",
        "osVersion": "17.4",
        "appVersion": "1.0.0",
    }
    assert harness.cricket_api.calls_of("start token") == [
        {"pushToStartToken": phone.activity_kit.start_token, "deviceId": "phone-1"}
    ]


async def test_token_is_registered_once_and_again_after_a_change(harness: PhoneHarness) -> None:
    """Every launch registers the device but repeats no token."""
    phone = harness.phone()
    await phone.launch()
    phone.quit()
    await phone.launch()
    assert [len(harness.cricket_api.calls_of(name)) for name in ("device", "start token")] == [2, 1]
    new = await phone.activity_kit.rotate_start_token()
    await phone.launch()
    assert [body["pushToStartToken"] for body in harness.cricket_api.calls_of("start token")][
        1:
    ] == [new]


async def test_failed_token_registration_is_retried_now_and_at_launch(
    harness: PhoneHarness,
) -> None:
    phone = harness.phone()
    harness.cricket_api.faults.add(
        InjectedFault(path="/cricket/user/device/push-to-start", status=503, times=2)
    )
    await phone.launch()
    assert len(harness.cricket_api.calls_of("start token")) == 1
    phone = harness.phone("phone-2")
    harness.cricket_api.faults.add(
        InjectedFault(path="/cricket/user/device/push-to-start", status=503, times=3)
    )
    app = await phone.launch()
    assert (len(harness.cricket_api.calls_of("start token")), app.tokens.unsent) == (
        1,
        {"pushToStart"},
    )
    phone.quit()
    await phone.launch()
    assert harness.cricket_api.calls_of("start token")[-1]["deviceId"] == "phone-2"


async def test_push_to_start_starts_an_activity_and_registers_its_token(
    harness: PhoneHarness,
) -> None:
    """Also when the app is not running."""
    phone = harness.phone()
    await phone.launch()
    phone.quit()
    activity = await harness.start(phone, team="40")
    assert (activity.state, activity.is_push_started, activity.match_id) == (
        ActivityState.ACTIVE,
        True,
        "7",
    )
    assert harness.cricket_api.calls_of("update token") == [
        {"matchId": "7", "deviceId": "phone-1", "updateToken": activity.token, "teamId": "40"}
    ]
    assert [alert["title"] for alert in phone.activity_kit.alerts] == ["Live now"]


async def test_rotated_token_is_registered_and_the_old_one_retired(
    harness: PhoneHarness,
) -> None:
    phone = harness.phone()
    await phone.launch()
    activity = await harness.start(phone)
    old = activity.token
    assert old is not None
    await phone.activity_kit.rotate_token(activity)
    await phone.wait_idle()
    assert [body["updateToken"] for body in harness.cricket_api.calls_of("update token")] == [
        old,
        activity.token,
    ]
    assert harness.apns.devices.tokens[old].retired_at_ms is not None
    await phone.launch()
    assert len(harness.cricket_api.calls_of("update token")) == 2


async def test_newest_of_rotating_tokens_is_registered_last(
    harness: PhoneHarness,
) -> None:
    """The server gets the newest token despite network failures."""
    phone = harness.phone()
    await phone.launch()
    harness.cricket_api.faults.add(InjectedFault(path="/cricket/matches/7/activity-token", delay=5))
    starting = asyncio.create_task(harness.start(phone))
    await harness.clock.until_sleeping()
    [activity] = phone.activity_kit.running()
    await phone.activity_kit.rotate_token(activity)
    await harness.clock.advance(5)
    await starting
    await phone.wait_idle()
    assert phone.defaults.values("handedInTokens")["7"] == activity.token
    assert activity.token in [
        body["updateToken"] for body in harness.cricket_api.calls_of("update token")
    ]


async def test_outdated_updates_are_ignored(harness: PhoneHarness) -> None:
    phone = harness.phone()
    await phone.launch()
    activity = await harness.start(phone)
    now = harness.clock.seconds()
    for number, at in ((1, now + 10), (2, now + 5), (3, now + 10), (4, now + 20)):
        await harness.update(phone, activity, number, at=at)
    assert shown_numbers(activity) == [0, 1, 3, 4]
    assert (phone.activity_kit.outdated, activity.updates) == (1, 3)


async def test_history_of_a_phone_is_bounded(harness: PhoneHarness) -> None:
    """Ended activities retain one content; alerts and activities are limited."""
    phone = harness.phone()
    await phone.launch()
    for match in range(MAX_ALERTS + 5):
        activity = await harness.start(phone, match=str(match))
        await harness.update(phone, activity, 1)
        assert shown_numbers(activity) == [0, 1]
        await phone.activity_kit.dismiss(activity)
        assert shown_numbers(activity) == [1]
    await phone.wait_idle()
    await phone.apply_time_limits()
    assert len(phone.activity_kit.activities) == MAX_DISMISSED
    assert (len(phone.activity_kit.alerts), phone.activity_kit.alert_count) == (
        MAX_ALERTS,
        MAX_ALERTS + 5,
    )


async def test_activity_is_stale_after_its_stale_date_until_updated(
    harness: PhoneHarness,
) -> None:
    phone = harness.phone()
    await phone.launch()
    activity = await harness.start(phone)
    await harness.clock.advance(1799)
    assert not activity.is_stale(harness.clock.seconds())
    await harness.clock.advance(1)
    assert activity.is_stale(harness.clock.seconds())
    await harness.update(phone, activity, 1, stale_at=harness.clock.seconds() + 60)
    assert not activity.is_stale(harness.clock.seconds())


@pytest.mark.parametrize(
    ("dismiss_in", "seen_after"),
    [(-1, 0), (900, 899), (None, 4 * HOUR - 1), (100 * HOUR, 4 * HOUR - 1)],
)
async def test_ended_activity_is_dismissed_at_its_dismissal_date(
    harness: PhoneHarness, dismiss_in: int | None, seen_after: int
) -> None:
    """Immediately, at the date, or after four hours at most."""
    phone = harness.phone()
    await phone.launch()
    activity = await harness.start(phone)
    now = harness.clock.seconds()
    end = payloads.end_payload(
        timestamp=now,
        content={"number": 9},
        dismiss_at=None if dismiss_in is None else now + dismiss_in,
    )
    await harness.send(phone, activity, end)
    assert phone.activity_kit.running() == []
    if seen_after:
        await harness.clock.advance(seen_after)
        await phone.apply_time_limits()
        assert phone.activity_kit.on_screen() == [activity]
        await harness.clock.advance(1)
        await phone.apply_time_limits()
    assert phone.activity_kit.on_screen() == []
    assert shown_numbers(activity)[-1] == 9
    assert activity.token is not None
    assert harness.apns.devices.tokens[activity.token].retired_at_ms is not None


async def test_activity_runs_for_at_most_eight_hours(harness: PhoneHarness) -> None:
    phone = harness.phone()
    await phone.launch()
    activity = await harness.start(phone)
    phone.quit()
    await harness.clock.advance(8 * HOUR - 1)
    await phone.apply_time_limits()
    assert activity.state is ActivityState.ACTIVE
    await harness.clock.advance(1)
    await phone.apply_time_limits()
    assert (activity.state, phone.activity_kit.on_screen()) == (ActivityState.ENDED, [activity])
    await harness.clock.advance(4 * HOUR)
    await phone.apply_time_limits()
    assert phone.activity_kit.on_screen() == []


async def test_second_start_replaces_the_first_activity(harness: PhoneHarness) -> None:
    """A match is on the Lock Screen at most once."""
    phone = harness.phone()
    await phone.launch()
    first = await harness.start(phone)
    second = await harness.start(phone)
    other = await harness.start(phone, "8")
    assert phone.activity_kit.running() == [second, other]
    assert first.state is not ActivityState.ACTIVE
    assert harness.cricket_api.calls_of("update token")[1]["updateToken"] == second.token


async def test_activity_ended_by_the_server_ends_on_the_phone(
    harness: PhoneHarness,
) -> None:
    harness.cricket_api.ended.add("7")
    phone = harness.phone()
    await phone.launch()
    activity = await harness.start(phone)
    assert activity.state is not ActivityState.ACTIVE


async def test_revoked_permission_ends_and_prevents_activities(harness: PhoneHarness) -> None:
    phone = harness.phone()
    app = await phone.launch()
    await app.follows.follow("7")
    await harness.start(phone)
    await phone.activity_kit.set_allowed(is_allowed=False)
    assert (phone.activity_kit.running(), phone.bell("7")) == ([], Bell.WARNING)
    await harness.start(phone)
    assert phone.activity_kit.running() == []
    await phone.activity_kit.set_allowed(is_allowed=True)
    assert phone.bell("7") is Bell.FILLED


async def test_bell_has_four_states(harness: PhoneHarness) -> None:
    """Outline, loading, filled, and a warning without permission."""
    phone = harness.phone()
    app = await phone.launch()
    assert phone.bell("7") is Bell.OUTLINE
    harness.cricket_api.faults.add(InjectedFault(path="/cricket/user/follow/match", delay=5))
    following = asyncio.create_task(app.follows.follow("7"))
    await harness.clock.until_sleeping()
    assert phone.bell("7") is Bell.LOADING
    await harness.clock.advance(5)
    assert await following
    assert phone.bell("7") is Bell.FILLED
    await phone.activity_kit.set_allowed(is_allowed=False)
    assert phone.bell("7") is Bell.WARNING
    await app.follows.unfollow("7")
    assert phone.bell("7") is Bell.OUTLINE


async def test_failed_follow_leaves_the_bell_unchanged(harness: PhoneHarness) -> None:
    phone = harness.phone()
    app = await phone.launch()
    harness.cricket_api.faults.add(InjectedFault(path="/cricket/user/follow/match", status=503))
    assert not await app.follows.follow("7")
    assert phone.bell("7") is Bell.OUTLINE
    assert "503" in phone.api.last_error


@pytest.mark.parametrize(
    ("os_version", "starts_itself"),
    [("16.4", True), ("17.1", True), ("17.2", False), ("18.0", False)],
)
async def test_phone_without_push_to_start_starts_the_activity_itself(
    harness: PhoneHarness, os_version: str, starts_itself: bool
) -> None:
    """Other phones wait for the push, so that there is only one activity."""
    harness.cricket_api.live["7"] = {"number": 3, "timestamp": harness.clock.seconds()}
    phone = harness.phone(os_version=os_version)
    app = await phone.launch()
    assert (phone.activity_kit.start_token is None) == starts_itself
    await app.follows.follow("7", "40")
    await phone.wait_idle()
    activity = phone.find_activity("7")
    assert (activity is not None) == starts_itself
    if activity is not None:
        assert shown_numbers(activity) == [3]
        assert harness.cricket_api.calls_of("update token")[0]["teamId"] == "40"


async def test_follows_survive_a_restart_without_network(
    harness: PhoneHarness, tmp_path: Path
) -> None:
    """They are read from the file on the phone."""
    path = tmp_path / "defaults.json"
    phone = harness.phone(defaults=UserDefaults(path))
    app = await phone.launch()
    await app.follows.follow("7")
    again = harness.phone(defaults=UserDefaults(path))
    again.api.is_online = False
    assert again.bell("7") is Bell.FILLED
    await again.launch()
    assert again.bell("7") is Bell.FILLED


async def test_launch_restores_followed_activities_and_ends_others(
    harness: PhoneHarness,
) -> None:
    """Another device of the user may have unfollowed in the meantime."""
    phone = harness.phone()
    app = await phone.launch()
    for match in ("7", "8"):
        await app.follows.follow(match)
        await harness.start(phone, match)
    phone.quit()
    del harness.cricket_api.follows["8"]
    await phone.launch()
    assert [activity.match_id for activity in phone.activity_kit.running()] == ["7"]
    assert phone.bell("8") is Bell.OUTLINE


async def test_token_missed_while_the_app_was_closed_is_registered_at_launch(
    harness: PhoneHarness,
) -> None:
    phone = harness.phone()
    app = await phone.launch()
    await app.follows.follow("7")
    phone.quit()
    harness.cricket_api.faults.add(
        InjectedFault(path="/cricket/matches/7/activity-token", status=503, times=3)
    )
    activity = await harness.start(phone)
    assert harness.cricket_api.calls_of("update token") == []
    await phone.launch()
    assert [body["updateToken"] for body in harness.cricket_api.calls_of("update token")] == [
        activity.token
    ]


async def test_running_app_ends_activities_after_30_minutes_without_update(
    harness: PhoneHarness,
) -> None:
    phone = harness.phone()
    app = await phone.launch()
    await app.follows.follow("7")
    activity = await harness.start(phone)
    await harness.clock.advance(20 * MINUTE)
    await harness.update(phone, activity, 1)
    await harness.clock.advance(30 * MINUTE - 1)
    await phone.apply_time_limits()
    assert activity.state is ActivityState.ACTIVE
    await harness.clock.advance(1)
    await phone.apply_time_limits()
    assert (phone.find_activity("7"), phone.bell("7")) == (None, Bell.FILLED)


async def test_dismissal_is_reported_and_unfollows(harness: PhoneHarness) -> None:
    phone = harness.phone()
    app = await phone.launch()
    await app.follows.follow("7")
    await harness.start(phone)
    await phone.swipe_away("7")
    await phone.wait_idle()
    assert harness.cricket_api.calls_of("dismissed") == [{"matchId": "7", "deviceId": "phone-1"}]
    assert (phone.bell("7"), phone.activity_kit.on_screen()) == (Bell.OUTLINE, [])


async def test_offline_dismissal_is_reported_at_the_next_launch(harness: PhoneHarness) -> None:
    phone = harness.phone()
    app = await phone.launch()
    await app.follows.follow("7")
    await harness.start(phone)
    await phone.set_online(is_online=False)
    phone.quit()
    await phone.swipe_away("7")
    await phone.wait_idle()
    assert (harness.cricket_api.calls_of("dismissed"), phone.bell("7")) == ([], Bell.OUTLINE)
    await phone.set_online(is_online=True)
    await phone.launch()
    assert harness.cricket_api.calls_of("dismissed") == [{"matchId": "7", "deviceId": "phone-1"}]
    assert phone.bell("7") is Bell.OUTLINE


async def test_offline_unfollow_applies_immediately_and_is_reported_later(
    harness: PhoneHarness,
) -> None:
    """It also survives a refresh of the follows before the report."""
    phone = harness.phone()
    app = await phone.launch()
    await app.follows.follow("7")
    await harness.start(phone)
    await phone.set_online(is_online=False)
    await app.follows.unfollow("7")
    assert (
        phone.bell("7"),
        phone.activity_kit.running(),
        harness.cricket_api.calls_of("unfollow"),
    ) == (
        Bell.OUTLINE,
        [],
        [],
    )
    phone.quit()
    await phone.set_online(is_online=True)
    harness.cricket_api.faults.add(
        InjectedFault(path="/cricket/user/follow/match", method="DELETE", status=503)
    )
    await phone.launch()
    assert (phone.bell("7"), "7" in harness.cricket_api.follows) == (Bell.OUTLINE, True)
    await phone.launch()
    assert harness.cricket_api.calls_of("unfollow") == [{"matchId": "7"}]
    assert phone.defaults.values("untold") == {}


async def test_following_again_cancels_a_pending_unfollow(harness: PhoneHarness) -> None:
    phone = harness.phone()
    app = await phone.launch()
    await app.follows.follow("7")
    phone.api.is_online = False
    await app.follows.unfollow("7")
    phone.api.is_online = True
    await app.follows.follow("7")
    await phone.launch()
    assert (harness.cricket_api.calls_of("unfollow"), phone.bell("7")) == ([], Bell.FILLED)


async def test_channel_activity_subscribes_and_registers_no_token(
    harness: PhoneHarness,
) -> None:
    phone = harness.phone(os_version="18.0")
    await phone.launch()
    activity = await harness.start(phone, channel="abc==")
    assert (activity.token, harness.cricket_api.calls_of("update token")) == (None, [])
    assert harness.apns.devices.subscribers["abc=="] == {"phone-1"}
    await harness.update(phone, activity, 1)
    assert shown_numbers(activity) == [0, 1]
    await phone.activity_kit.end(activity)
    assert harness.apns.devices.subscribers["abc=="] == set()


async def test_notifications_and_malformed_pushes_are_distinguished(harness: PhoneHarness) -> None:
    phone = harness.phone()
    await phone.launch()
    toss = payloads.notification_payload(payloads.Alert("Toss", "India bat"))
    await phone.receive(
        PushDelivery("phone-1", toss.decode(), "alert", 10, token=phone.device_token)
    )
    await phone.receive(
        PushDelivery(
            "phone-1", '{"aps": 1}', "liveactivity", 10, token=phone.activity_kit.start_token
        )
    )
    await phone.receive(
        PushDelivery(
            "phone-1", '{"aps":{"timestamp":1,"event":"update"}}', "liveactivity", 10, token="ab"
        )
    )
    assert [notice["aps"]["alert"]["title"] for notice in phone.notifications] == ["Toss"]
    assert (
        phone.activity_kit.malformed,
        phone.activity_kit.unknown,
        phone.activity_kit.running(),
    ) == (1, 1, [])


async def test_start_for_a_replaced_token_is_ignored(harness: PhoneHarness) -> None:
    phone = harness.phone()
    await phone.launch()
    old = phone.activity_kit.start_token
    await phone.activity_kit.rotate_start_token()
    payload = payloads.start_payload(
        timestamp=1,
        content={},
        attributes_type="M",
        attributes={"matchId": "7"},
        alert=payloads.Alert("", ""),
    )
    await phone.receive(PushDelivery("phone-1", payload.decode(), "liveactivity", 10, token=old))
    assert (phone.activity_kit.running(), phone.activity_kit.unknown) == ([], 1)
    assert old is not None
    assert harness.apns.devices.tokens[old].kind is TokenKind.START
