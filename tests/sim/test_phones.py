"""A virtual phone behaves like a real one with the app on it: tokens, activities, follows, and the bell."""

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
from tests.sim.stadium import Ground, ground, numbers

HOUR = 3600
MINUTE = 60


@pytest.fixture(scope="module")
async def _place() -> AsyncIterator[Ground]:
    async with ground() as place:
        yield place


@pytest.fixture
def place(_place: Ground) -> Ground:
    stadium = _place.stadium
    stadium.faults.clear()
    for kept in (stadium.live, stadium.follows, stadium.ended, stadium.calls):
        kept.clear()
    return _place


async def test_the_first_launch_registers_the_phone_and_hands_in_its_start_token(
    place: Ground,
) -> None:
    phone = place.phone()
    await phone.launch()
    [device] = place.stadium.of("device")
    assert device == {
        "deviceToken": phone.device_token,
        "deviceId": "phone-1",
        "platform": "ios",
        "osVersion": "17.4",
        "appVersion": "1.0.0",
    }
    assert place.stadium.of("start token") == [
        {"pushToStartToken": phone.activity_kit.start_token, "deviceId": "phone-1"}
    ]


async def test_a_token_is_handed_in_once_and_again_when_it_has_changed(place: Ground) -> None:
    """A launch says hello every time, but repeats no token."""
    phone = place.phone()
    await phone.launch()
    phone.quit()
    await phone.launch()
    assert [len(place.stadium.of(name)) for name in ("device", "start token")] == [2, 1]
    new = await phone.activity_kit.rotate_start_token()
    await phone.launch()
    assert [body["pushToStartToken"] for body in place.stadium.of("start token")][1:] == [new]


async def test_a_token_that_did_not_arrive_is_tried_again_now_and_at_the_next_launch(
    place: Ground,
) -> None:
    phone = place.phone()
    place.stadium.faults.add(
        InjectedFault(path="/cricket/user/device/push-to-start", status=503, times=2)
    )
    await phone.launch()
    assert len(place.stadium.of("start token")) == 1
    phone = place.phone("phone-2")
    place.stadium.faults.add(
        InjectedFault(path="/cricket/user/device/push-to-start", status=503, times=3)
    )
    app = await phone.launch()
    assert (len(place.stadium.of("start token")), app.tokens.unsent) == (1, {"pushToStart"})
    phone.quit()
    await phone.launch()
    assert place.stadium.of("start token")[-1]["deviceId"] == "phone-2"


async def test_a_pushed_start_makes_an_activity_and_wakes_the_app_to_hand_in_its_token(
    place: Ground,
) -> None:
    """Also when the app has been quit: that is when it is needed most."""
    phone = place.phone()
    await phone.launch()
    phone.quit()
    activity = await place.start(phone, team="40")
    assert (activity.state, activity.is_push_started, activity.match_id) == (
        ActivityState.ACTIVE,
        True,
        "7",
    )
    assert place.stadium.of("update token") == [
        {"matchId": "7", "deviceId": "phone-1", "updateToken": activity.token, "teamId": "40"}
    ]
    assert [alert["title"] for alert in phone.activity_kit.alerts] == ["Live now"]


async def test_a_rotated_token_is_handed_in_and_the_old_one_is_gone_at_apple(place: Ground) -> None:
    phone = place.phone()
    await phone.launch()
    activity = await place.start(phone)
    old = activity.token
    assert old is not None
    await phone.activity_kit.rotate_token(activity)
    await phone.wait_idle()
    assert [body["updateToken"] for body in place.stadium.of("update token")] == [
        old,
        activity.token,
    ]
    assert place.apns.devices.tokens[old].retired_at_ms is not None
    await phone.launch()
    assert len(place.stadium.of("update token")) == 2


async def test_of_tokens_that_change_while_one_is_tried_the_newest_arrives_last(
    place: Ground,
) -> None:
    """However the network fails, the server never ends up with an older one."""
    phone = place.phone()
    await phone.launch()
    place.stadium.faults.add(InjectedFault(path="/cricket/matches/7/activity-token", delay=5))
    starting = asyncio.create_task(place.start(phone))
    await place.clock.until_sleeping()
    [activity] = phone.activity_kit.running()
    await phone.activity_kit.rotate_token(activity)
    await place.clock.advance(5)
    await starting
    await phone.wait_idle()
    assert phone.defaults.values("handedInTokens")["7"] == activity.token
    assert activity.token in [body["updateToken"] for body in place.stadium.of("update token")]


async def test_newer_states_are_shown_and_older_ones_ignored(place: Ground) -> None:
    phone = place.phone()
    await phone.launch()
    activity = await place.start(phone)
    now = place.clock.seconds()
    for number, at in ((1, now + 10), (2, now + 5), (3, now + 10), (4, now + 20)):
        await place.update(phone, activity, number, at=at)
    assert numbers(activity) == [0, 1, 3, 4]
    assert (phone.activity_kit.outdated, activity.updates) == (1, 3)


async def test_a_phone_remembers_a_bounded_part_of_what_it_has_seen(place: Ground) -> None:
    """A demo runs for days: of what is over there is the last state alone, and of activities and alerts the latest."""
    phone = place.phone()
    await phone.launch()
    for match in range(MAX_ALERTS + 5):
        activity = await place.start(phone, match=str(match))
        await place.update(phone, activity, 1)
        assert numbers(activity) == [0, 1]
        await phone.activity_kit.dismiss(activity)
        assert numbers(activity) == [1]
    await phone.wait_idle()
    await phone.apply_time_limits()
    assert len(phone.activity_kit.activities) == MAX_DISMISSED
    assert (len(phone.activity_kit.alerts), phone.activity_kit.alert_count) == (
        MAX_ALERTS,
        MAX_ALERTS + 5,
    )


async def test_an_activity_goes_stale_at_its_stale_date_until_it_hears_more(place: Ground) -> None:
    phone = place.phone()
    await phone.launch()
    activity = await place.start(phone)
    await place.clock.advance(1799)
    assert not activity.is_stale(place.clock.seconds())
    await place.clock.advance(1)
    assert activity.is_stale(place.clock.seconds())
    await place.update(phone, activity, 1, stale_at=place.clock.seconds() + 60)
    assert not activity.is_stale(place.clock.seconds())


@pytest.mark.parametrize(
    ("dismiss_in", "seen_after"),
    [(-1, 0), (900, 899), (None, 4 * HOUR - 1), (100 * HOUR, 4 * HOUR - 1)],
)
async def test_an_ended_activity_leaves_the_screen_when_it_is_told_to(
    place: Ground, dismiss_in: int | None, seen_after: int
) -> None:
    """At once, at its dismissal date, or after four hours at most."""
    phone = place.phone()
    await phone.launch()
    activity = await place.start(phone)
    now = place.clock.seconds()
    end = payloads.end_payload(
        timestamp=now,
        content={"number": 9},
        dismiss_at=None if dismiss_in is None else now + dismiss_in,
    )
    await place.send(phone, activity, end)
    assert phone.activity_kit.running() == []
    if seen_after:
        await place.clock.advance(seen_after)
        await phone.apply_time_limits()
        assert phone.activity_kit.on_screen() == [activity]
        await place.clock.advance(1)
        await phone.apply_time_limits()
    assert phone.activity_kit.on_screen() == []
    assert numbers(activity)[-1] == 9
    assert activity.token is not None
    assert place.apns.devices.tokens[activity.token].retired_at_ms is not None


async def test_an_activity_runs_for_eight_hours_at_most(place: Ground) -> None:
    phone = place.phone()
    await phone.launch()
    activity = await place.start(phone)
    phone.quit()
    await place.clock.advance(8 * HOUR - 1)
    await phone.apply_time_limits()
    assert activity.state is ActivityState.ACTIVE
    await place.clock.advance(1)
    await phone.apply_time_limits()
    assert (activity.state, phone.activity_kit.on_screen()) == (ActivityState.ENDED, [activity])
    await place.clock.advance(4 * HOUR)
    await phone.apply_time_limits()
    assert phone.activity_kit.on_screen() == []


async def test_a_second_start_for_a_match_takes_the_place_of_the_first(place: Ground) -> None:
    """Never the same match twice on a Lock Screen."""
    phone = place.phone()
    await phone.launch()
    first = await place.start(phone)
    second = await place.start(phone)
    other = await place.start(phone, "8")
    assert phone.activity_kit.running() == [second, other]
    assert first.state is not ActivityState.ACTIVE
    assert place.stadium.of("update token")[1]["updateToken"] == second.token


async def test_an_activity_that_the_server_has_ended_is_ended_on_the_phone(place: Ground) -> None:
    place.stadium.ended.add("7")
    phone = place.phone()
    await phone.launch()
    activity = await place.start(phone)
    assert activity.state is not ActivityState.ACTIVE


async def test_without_permission_nothing_starts_and_what_runs_ends(place: Ground) -> None:
    phone = place.phone()
    app = await phone.launch()
    await app.follows.follow("7")
    await place.start(phone)
    await phone.activity_kit.set_allowed(is_allowed=False)
    assert (phone.activity_kit.running(), phone.bell("7")) == ([], Bell.WARNING)
    await place.start(phone)
    assert phone.activity_kit.running() == []
    await phone.activity_kit.set_allowed(is_allowed=True)
    assert phone.bell("7") is Bell.FILLED


async def test_the_bell_has_four_states(place: Ground) -> None:
    """Outline, loading while the server is asked, filled, and a warning without permission."""
    phone = place.phone()
    app = await phone.launch()
    assert phone.bell("7") is Bell.OUTLINE
    place.stadium.faults.add(InjectedFault(path="/cricket/user/follow/match", delay=5))
    following = asyncio.create_task(app.follows.follow("7"))
    await place.clock.until_sleeping()
    assert phone.bell("7") is Bell.LOADING
    await place.clock.advance(5)
    assert await following
    assert phone.bell("7") is Bell.FILLED
    await phone.activity_kit.set_allowed(is_allowed=False)
    assert phone.bell("7") is Bell.WARNING
    await app.follows.unfollow("7")
    assert phone.bell("7") is Bell.OUTLINE


async def test_a_follow_that_fails_leaves_the_bell_as_it_was(place: Ground) -> None:
    phone = place.phone()
    app = await phone.launch()
    place.stadium.faults.add(InjectedFault(path="/cricket/user/follow/match", status=503))
    assert not await app.follows.follow("7")
    assert phone.bell("7") is Bell.OUTLINE
    assert "503" in phone.api.last_error


@pytest.mark.parametrize(
    ("os_version", "starts_itself"),
    [("16.4", True), ("17.1", True), ("17.2", False), ("18.0", False)],
)
async def test_a_phone_that_no_push_can_start_one_on_starts_it_itself(
    place: Ground, os_version: str, starts_itself: bool
) -> None:
    """Others wait for the push, so that there are not two."""
    place.stadium.live["7"] = {"number": 3, "timestamp": place.clock.seconds()}
    phone = place.phone(os_version=os_version)
    app = await phone.launch()
    assert (phone.activity_kit.start_token is None) == starts_itself
    await app.follows.follow("7", "40")
    await phone.wait_idle()
    activity = phone.find_activity("7")
    assert (activity is not None) == starts_itself
    if activity is not None:
        assert numbers(activity) == [3]
        assert place.stadium.of("update token")[0]["teamId"] == "40"


async def test_what_is_followed_is_known_after_a_restart_before_any_network(
    place: Ground, tmp_path: Path
) -> None:
    """The bell is right at once, out of the file on the phone."""
    path = tmp_path / "defaults.json"
    phone = place.phone(defaults=UserDefaults(path))
    app = await phone.launch()
    await app.follows.follow("7")
    again = place.phone(defaults=UserDefaults(path))
    again.api.is_online = False
    assert again.bell("7") is Bell.FILLED
    await again.launch()
    assert again.bell("7") is Bell.FILLED


async def test_a_launch_goes_on_with_what_runs_and_ends_what_nobody_follows(place: Ground) -> None:
    """Restored from ActivityKit; another device of the same person may have unfollowed meanwhile."""
    phone = place.phone()
    app = await phone.launch()
    for match in ("7", "8"):
        await app.follows.follow(match)
        await place.start(phone, match)
    phone.quit()
    del place.stadium.follows["8"]
    await phone.launch()
    assert [activity.match_id for activity in phone.activity_kit.running()] == ["7"]
    assert phone.bell("8") is Bell.OUTLINE


async def test_a_token_that_was_lost_while_the_app_was_closed_is_handed_in_at_launch(
    place: Ground,
) -> None:
    phone = place.phone()
    app = await phone.launch()
    await app.follows.follow("7")
    phone.quit()
    place.stadium.faults.add(
        InjectedFault(path="/cricket/matches/7/activity-token", status=503, times=3)
    )
    activity = await place.start(phone)
    assert place.stadium.of("update token") == []
    await phone.launch()
    assert [body["updateToken"] for body in place.stadium.of("update token")] == [activity.token]


async def test_half_an_hour_without_news_ends_an_activity_while_the_app_runs(place: Ground) -> None:
    phone = place.phone()
    app = await phone.launch()
    await app.follows.follow("7")
    activity = await place.start(phone)
    await place.clock.advance(20 * MINUTE)
    await place.update(phone, activity, 1)
    await place.clock.advance(30 * MINUTE - 1)
    await phone.apply_time_limits()
    assert activity.state is ActivityState.ACTIVE
    await place.clock.advance(1)
    await phone.apply_time_limits()
    assert (phone.find_activity("7"), phone.bell("7")) == (None, Bell.FILLED)


async def test_swiping_an_activity_away_tells_the_server_and_unfollows(place: Ground) -> None:
    phone = place.phone()
    app = await phone.launch()
    await app.follows.follow("7")
    await place.start(phone)
    await phone.swipe_away("7")
    await phone.wait_idle()
    assert place.stadium.of("dismissed") == [{"matchId": "7", "deviceId": "phone-1"}]
    assert (phone.bell("7"), phone.activity_kit.on_screen()) == (Bell.OUTLINE, [])


async def test_what_was_swiped_away_offline_is_told_at_the_next_launch(place: Ground) -> None:
    phone = place.phone()
    app = await phone.launch()
    await app.follows.follow("7")
    await place.start(phone)
    await phone.set_online(is_online=False)
    phone.quit()
    await phone.swipe_away("7")
    await phone.wait_idle()
    assert (place.stadium.of("dismissed"), phone.bell("7")) == ([], Bell.OUTLINE)
    await phone.set_online(is_online=True)
    await phone.launch()
    assert place.stadium.of("dismissed") == [{"matchId": "7", "deviceId": "phone-1"}]
    assert phone.bell("7") is Bell.OUTLINE


async def test_an_unfollow_without_network_holds_at_once_and_is_told_at_the_next_launch(
    place: Ground,
) -> None:
    """Also when the server is asked what is followed before it has been told."""
    phone = place.phone()
    app = await phone.launch()
    await app.follows.follow("7")
    await place.start(phone)
    await phone.set_online(is_online=False)
    await app.follows.unfollow("7")
    assert (phone.bell("7"), phone.activity_kit.running(), place.stadium.of("unfollow")) == (
        Bell.OUTLINE,
        [],
        [],
    )
    phone.quit()
    await phone.set_online(is_online=True)
    place.stadium.faults.add(
        InjectedFault(path="/cricket/user/follow/match", method="DELETE", status=503)
    )
    await phone.launch()
    assert (phone.bell("7"), "7" in place.stadium.follows) == (Bell.OUTLINE, True)
    await phone.launch()
    assert place.stadium.of("unfollow") == [{"matchId": "7"}]
    assert phone.defaults.values("untold") == {}


async def test_following_again_takes_an_untold_unfollow_back(place: Ground) -> None:
    phone = place.phone()
    app = await phone.launch()
    await app.follows.follow("7")
    phone.api.is_online = False
    await app.follows.unfollow("7")
    phone.api.is_online = True
    await app.follows.follow("7")
    await phone.launch()
    assert (place.stadium.of("unfollow"), phone.bell("7")) == ([], Bell.FILLED)


async def test_an_activity_on_a_channel_listens_there_and_hands_in_no_token(place: Ground) -> None:
    phone = place.phone(os_version="18.0")
    await phone.launch()
    activity = await place.start(phone, channel="abc==")
    assert (activity.token, place.stadium.of("update token")) == (None, [])
    assert place.apns.devices.subscribers["abc=="] == {"phone-1"}
    await place.update(phone, activity, 1)
    assert numbers(activity) == [0, 1]
    await phone.activity_kit.end(activity)
    assert place.apns.devices.subscribers["abc=="] == set()


async def test_notifications_and_nonsense_are_told_apart(place: Ground) -> None:
    phone = place.phone()
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


async def test_a_start_for_a_token_that_has_been_replaced_is_ignored(place: Ground) -> None:
    phone = place.phone()
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
    assert place.apns.devices.tokens[old].kind is TokenKind.START
