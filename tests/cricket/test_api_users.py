"""The HTTP API of devices, follows and Live Activities, on SQLite and DynamoDB Local."""

import itertools
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from tally.sim.apns.devices import TokenKind
from tests.api_response import ApiResponse, expect_error
from tests.cricket.api_harness import ApiClient, ApiHarness, open_api_harness_on, open_stream
from tests.store.emulators import engines

ENGINES = engines("local")
DAYS_90 = 90 * 86_400
_numbers = itertools.count(1)


@pytest.fixture(scope="module", params=ENGINES)
async def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ApiHarness]:
    """Start one server with a live and three upcoming matches; each test has its own users."""
    async with open_api_harness_on(request.param, tmp_path_factory.mktemp("people")) as opened:
        opened.live_match(12)
        opened.sportmonks.schedule(3, first=opened.clock.now() + timedelta(hours=5))
        await opened.sync()
        await opened.poll()
        yield opened


@pytest.fixture
def ana(server: ApiHarness) -> ApiClient:
    return server.user(f"ana-{next(_numbers)}")


@pytest.fixture
async def live_id(server: ApiHarness, ana: ApiClient) -> str:
    (listed,) = (await ana.get_json("/matches/live"))["items"]
    return str(listed["matchId"])


@pytest.fixture
async def upcoming_id(server: ApiHarness, ana: ApiClient) -> str:
    listed = (await ana.get_json("/matches?status=not_started"))["items"]
    return str(listed[0]["matchId"])


def device(**changes: Any) -> dict[str, Any]:
    number = next(_numbers)
    usual = {
        "deviceToken": f"{number:032x}",
        "deviceId": f"PHONE-{number}",
        "platform": "ios",
        "osVersion": "17.4",
    }
    return usual | changes


def token() -> str:
    return f"{next(_numbers):064x}"


async def test_a_device_is_registered_listed_and_deleted(
    server: ApiHarness, ana: ApiClient
) -> None:
    assert (await ana.get_json("/user/device")) == {"items": [], "nextCursor": None}
    mine = device()
    made = await ana.post("/user/device", mine)
    assert made.status == 200, made
    assert made.json["expiresAt"] == server.clock.seconds() + DAYS_90
    assert (await ana.get_json("/user/device"))["items"] == [made.json]
    assert (await ana.delete(f"/user/device?deviceToken={mine['deviceToken']}")).status == 204
    assert (await ana.get_json("/user/device")) == {"items": [], "nextCursor": None}
    expect_error(
        await ana.delete(f"/user/device?deviceId={mine['deviceId']}"), 404, "device_not_found"
    )


async def test_a_new_device_token_replaces_the_old_one(server: ApiHarness, ana: ApiClient) -> None:
    mine = device()
    await ana.post("/user/device", mine)
    start = token()
    body = {"pushToStartToken": start, "deviceId": mine["deviceId"]}
    assert (await ana.put("/user/device/push-to-start", body)).json["hasPushToStartToken"] is True
    other = device()
    await ana.post("/user/device", other)
    server.skip_time(60)
    await ana.post("/user/device", mine | {"deviceToken": token()})
    found = {entry["deviceId"]: entry for entry in (await ana.get_json("/user/device"))["items"]}
    assert set(found) == {mine["deviceId"], other["deviceId"]}
    assert found[mine["deviceId"]]["deviceToken"] != mine["deviceToken"]
    assert found[mine["deviceId"]]["hasPushToStartToken"] is True, (
        "what starts its Live Activities is still known"
    )


async def test_exactly_one_device_identifier_is_required(ana: ApiClient) -> None:
    expect_error(await ana.delete("/user/device"), 400, "invalid_field")
    expect_error(
        await ana.put("/user/device/push-to-start", {"pushToStartToken": token()}),
        400,
        "invalid_field",
    )
    body = {"pushToStartToken": token(), "deviceId": "NOT-MINE"}
    expect_error(await ana.put("/user/device/push-to-start", body), 404, "device_not_found")


@pytest.mark.parametrize(
    "wrong",
    [
        {"deviceToken": "short"},
        {"deviceToken": "with spaces in it"},
        {"deviceId": "has#hash"},
        {"deviceId": ""},
        {"platform": "android"},
        {"osVersion": "x" * 65},
        {"unknown": 1},
    ],
)
async def test_an_invalid_device_is_rejected_with_its_field(
    ana: ApiClient, wrong: dict[str, Any]
) -> None:
    response = await ana.post("/user/device", device(**wrong))
    [field] = wrong
    code = "unknown_field" if field == "unknown" else "invalid_field"
    expect_error(response, 400, code, field, field=field)


async def test_users_cannot_see_or_delete_devices_of_others(
    server: ApiHarness, ana: ApiClient
) -> None:
    mine = device()
    await ana.post("/user/device", mine)
    bob = server.user(f"bob-{next(_numbers)}")
    assert (await bob.get_json("/user/device")) == {"items": [], "nextCursor": None}
    expect_error(
        await bob.delete(f"/user/device?deviceToken={mine['deviceToken']}"), 404, "device_not_found"
    )


async def test_a_match_is_followed_changed_and_unfollowed(ana: ApiClient, upcoming_id: str) -> None:
    expect_error(await ana.get(f"/user/follow/{upcoming_id}"), 404, "not_followed")
    made = await ana.post(f"/user/follow/{upcoming_id}", {})
    assert made.status == 200, made
    assert (made.json["teamId"], made.json["display"]) == (None, None)
    home = (await ana.get_json(f"/matches/{upcoming_id}"))["teams"][0]["teamId"]
    assert (await ana.patch(f"/user/follow/{upcoming_id}", {"teamId": home})).json["teamId"] == home
    assert (await ana.get_json(f"/user/follow/{upcoming_id}"))["teamId"] == home
    assert [follow["matchId"] for follow in (await ana.get_json("/user/follows"))["items"]] == [
        upcoming_id
    ]
    again = await ana.post(f"/user/follow/{upcoming_id}", {})
    assert again.json["createdAt"] == made.json["createdAt"]
    assert (await ana.delete(f"/user/follow/{upcoming_id}")).status == 204
    assert (await ana.delete(f"/user/follow/{upcoming_id}")).status == 204, (
        "the same again is no error"
    )
    expect_error(
        await ana.patch(f"/user/follow/{upcoming_id}", {"teamId": None}), 404, "not_followed"
    )
    assert (await ana.get_json("/user/follows"))["items"] == []


async def test_the_alert_choice_of_a_follow_is_set_changed_and_kept(
    ana: ApiClient, upcoming_id: str
) -> None:
    """Each of PATCH's fields changes alone, and a repeated follow without `alerts` keeps it."""
    path = f"/user/follow/{upcoming_id}"
    assert (await ana.post(path, {})).json["alerts"] == "all"
    assert (await ana.patch(path, {"alerts": "result"})).json["alerts"] == "result"
    home = (await ana.get_json(f"/matches/{upcoming_id}"))["teams"][0]["teamId"]
    changed = (await ana.patch(path, {"teamId": home})).json
    assert (changed["teamId"], changed["alerts"]) == (home, "result")
    changed = (await ana.patch(path, {"alerts": "milestones"})).json
    assert (changed["teamId"], changed["alerts"]) == (home, "milestones")
    assert (await ana.post(path, {})).json["alerts"] == "milestones"
    body = {"matchId": upcoming_id, "alerts": "all"}
    assert (await ana.post("/user/follow/match", body)).json["alerts"] == "all"
    assert (await ana.get_json(path))["alerts"] == "all"
    expect_error(await ana.patch(path, {"alerts": "wickets"}), 400, "invalid_field", "alerts")
    expect_error(await ana.patch(path, {}), 400, "nothing_to_change")


async def test_both_follow_routes_are_equivalent(ana: ApiClient, upcoming_id: str) -> None:
    made = await ana.post("/user/follow/match", {"matchId": upcoming_id})
    assert made.json["matchId"] == upcoming_id
    assert (await ana.get_json(f"/user/follow/{upcoming_id}")) == made.json
    assert (await ana.delete(f"/user/follow/match?matchId={upcoming_id}")).status == 204
    expect_error(await ana.get(f"/user/follow/{upcoming_id}"), 404, "not_followed")


async def test_an_invalid_follow_is_rejected(ana: ApiClient, upcoming_id: str) -> None:
    expect_error(await ana.post("/user/follow/404", {}), 404, "match_not_found")
    expect_error(
        await ana.post(f"/user/follow/{upcoming_id}", {"teamId": "7"}),
        400,
        "team_not_in_match",
        "team",
    )
    expect_error(await ana.post("/user/follow/match", {"matchId": "a#b"}), 400, "invalid_field")


async def test_following_a_live_match_returns_its_display_and_starts_an_activity(
    server: ApiHarness, ana: ApiClient, live_id: str
) -> None:
    phone = f"PHONE-{next(_numbers)}"
    server.apns.devices.register(phone, phone)
    start = server.apns.devices.issue(phone, TokenKind.START)
    await ana.post("/user/device", device(deviceId=phone))
    await ana.put("/user/device/push-to-start", {"pushToStartToken": start, "deviceId": phone})
    made = await ana.post(f"/user/follow/{live_id}", {})
    assert made.json["display"]["status"] == "in_play"
    state = await server.admin().get_json(f"/admin/matches/{live_id}/state")
    assert state["activities"].get("pending", 0) >= 1
    update = token()
    body = {"deviceId": phone, "updateToken": update}
    active = await ana.post(f"/matches/{live_id}/activity-token", body)
    assert (active.status, active.json["status"]) == (200, "active")
    rotated = await ana.post(f"/matches/{live_id}/activity-token", body | {"updateToken": token()})
    assert rotated.json["createdAt"] == active.json["createdAt"]
    assert (
        await ana.post(f"/matches/{live_id}/activity-dismissed", {"deviceId": phone})
    ).status == 204
    expect_error(await ana.get(f"/user/follow/{live_id}"), 404, "not_followed")
    expect_error(await ana.post(f"/matches/{live_id}/activity-token", body), 409, "activity_ended")


async def test_subscriptions_are_deleted_with_the_follow(
    server: ApiHarness, ana: ApiClient, live_id: str
) -> None:
    await ana.post(f"/user/follow/{live_id}", {})
    first, second = token(), token()
    for device in (first, second):
        assert (await ana.post(f"/user/activity/{live_id}", {"pushToken": device})).status == 200
    assert (await ana.delete(f"/user/activity/{live_id}?pushToken={first}")).status == 204
    expect_error(
        await ana.delete(f"/user/activity/{live_id}?pushToken={first}"),
        404,
        "subscription_not_found",
    )
    bob = server.user(f"bob-{next(_numbers)}")
    expect_error(
        await bob.delete(f"/user/activity/{live_id}?pushToken={second}"),
        404,
        "subscription_not_found",
    )
    await ana.delete(f"/user/follow/{live_id}")
    expect_error(
        await ana.delete(f"/user/activity/{live_id}?pushToken={second}"),
        404,
        "subscription_not_found",
    )


async def test_the_follows_of_a_user_are_paginated(server: ApiHarness) -> None:
    eve = server.user(f"eve-{next(_numbers)}")
    listed = (await eve.get_json("/matches?status=not_started"))["items"]
    for match in listed:
        await eve.post(f"/user/follow/{match['matchId']}", {})
    first = await eve.get_json("/user/follows?limit=2")
    rest = await eve.get_json(f"/user/follows?limit=2&cursor={first['nextCursor']}")
    found = [device["matchId"] for device in (*first["items"], *rest["items"])]
    assert sorted(found) == sorted(match["matchId"] for match in listed)


async def test_a_stream_receives_events_and_display_states(
    server: ApiHarness, ana: ApiClient, live_id: str
) -> None:
    async with open_stream(ana, f"/matches/{live_id}/events") as reader:
        snapshot, first = await reader.event(), await reader.event()
        assert (snapshot["event"], first["event"]) == ("snapshot", "display")
        server.sportmonks.playbacks[int(live_id)].deliver(6)
        server.skip_time(3)
        await server.poll()
        events = [await reader.event()]
        while events[-1]["event"] != "display":
            events.append(await reader.event())
    assert live_id in events[-1]["data"]
    assert events[-1]["data"] != first["data"]


async def test_every_error_has_the_same_format(ana: ApiClient, server: ApiHarness) -> None:
    responses: list[ApiResponse] = [
        await ana.send("POST", "/user/device", b"{"),
        await ana.send("POST", "/user/device", b"[]"),
        await ana.send("PATCH", "/user/device", {}),
        await ana.get("/nowhere"),
        await ana.send("POST", "/user/device", b"x" * 2_000_000),
    ]
    for response, code in zip(
        responses,
        ("malformed_json", "invalid_field", "method_not_allowed", "not_found", "too_large"),
        strict=True,
    ):
        expect_error(response, response.status, code)
