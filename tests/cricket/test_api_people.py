"""Devices, follows and Live Activities as apps use them, over HTTP, on SQLite and DynamoDB Local."""

import contextlib
import itertools
import secrets
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from tally.sim.apns.devices import TokenKind
from tally.store.dynamodb import open_dynamodb
from tests.cricket.api_harness import (
    ApiClient,
    ApiHarness,
    ApiResponse,
    expect_error,
    open_api_harness,
    watching,
)
from tests.cricket.conftest import TABLES
from tests.store.emulators import MADE_UP, dynamodb_local, engines

ENGINES = engines("local")
DAYS_90 = 90 * 86_400
_numbers = itertools.count(1)


@pytest.fixture(scope="module", params=ENGINES)
async def ground(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ApiHarness]:
    """One server for all tests of the module, with a match that is live and three that come; each test has its own people."""
    async with contextlib.AsyncExitStack() as stack:
        changes: dict[str, Any] = {}
        if request.param == "local":
            changes = await _local_tables(
                stack.enter_context(dynamodb_local()),
                stack.enter_context(pytest.MonkeyPatch.context()),
            )
        opened = await stack.enter_async_context(
            open_api_harness(tmp_path_factory.mktemp("people"), **changes)
        )
        opened.live_match(12)
        opened.sportmonks.schedule(3, first=opened.clock.now() + timedelta(hours=5))
        await opened.sync()
        await opened.poll()
        yield opened


async def _local_tables(url: str, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Settings of tables that nobody else has, made and empty."""
    patch.setenv("AWS_ACCESS_KEY_ID", MADE_UP.access_key)
    patch.setenv("AWS_SECRET_ACCESS_KEY", MADE_UP.secret_key)
    prefix = f"tally-test-{secrets.token_hex(4)}-"
    async with open_dynamodb(endpoint=url, region="us-east-1", table_prefix=prefix) as engine:
        for table in TABLES:
            await engine.create_table(table)
    return {"store_engine": "dynamodb", "dynamodb_endpoint": url, "dynamodb_table_prefix": prefix}


@pytest.fixture
def ana(ground: ApiHarness) -> ApiClient:
    return ground.person(f"ana-{next(_numbers)}")


@pytest.fixture
async def live_id(ground: ApiHarness, ana: ApiClient) -> str:
    (listed,) = (await ana.found("/matches/live"))["matches"]
    return str(listed["matchId"])


@pytest.fixture
async def coming_id(ground: ApiHarness, ana: ApiClient) -> str:
    listed = (await ana.found("/matches?status=not_started"))["matches"]
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


async def test_a_device_is_registered_listed_and_forgotten(
    ground: ApiHarness, ana: ApiClient
) -> None:
    assert (await ana.found("/user/device")) == {"devices": []}
    mine = device()
    made = await ana.post("/user/device", mine)
    assert made.status == 200, made
    assert made.json["expiresAt"] == ground.clock.seconds() + DAYS_90
    assert (await ana.found("/user/device"))["devices"] == [made.json]
    assert (await ana.delete(f"/user/device?deviceToken={mine['deviceToken']}")).status == 204
    assert (await ana.found("/user/device")) == {"devices": []}
    expect_error(
        await ana.delete(f"/user/device?deviceId={mine['deviceId']}"), 404, "device_not_found"
    )


async def test_a_new_token_of_a_device_takes_the_place_of_the_old_one(
    ground: ApiHarness, ana: ApiClient
) -> None:
    mine = device()
    await ana.post("/user/device", mine)
    start = token()
    body = {"pushToStartToken": start, "deviceId": mine["deviceId"]}
    assert (await ana.put("/user/device/push-to-start", body)).json["hasPushToStartToken"] is True
    other = device()
    await ana.post("/user/device", other)
    ground.pass_time(60)
    await ana.post("/user/device", mine | {"deviceToken": token()})
    found = {each["deviceId"]: each for each in (await ana.found("/user/device"))["devices"]}
    assert set(found) == {mine["deviceId"], other["deviceId"]}
    assert found[mine["deviceId"]]["deviceToken"] != mine["deviceToken"]
    assert found[mine["deviceId"]]["hasPushToStartToken"] is True, (
        "what starts its Live Activities is still known"
    )


async def test_devices_are_told_apart_by_exactly_one_name(ana: ApiClient) -> None:
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
async def test_a_device_that_makes_no_sense_is_refused_by_the_field(
    ana: ApiClient, wrong: dict[str, Any]
) -> None:
    answer = await ana.post("/user/device", device(**wrong))
    assert answer.status == 400, answer
    assert next(iter(wrong)) in answer.json["error"]["message"]


async def test_nobody_sees_or_deletes_the_devices_of_others(
    ground: ApiHarness, ana: ApiClient
) -> None:
    mine = device()
    await ana.post("/user/device", mine)
    bob = ground.person(f"bob-{next(_numbers)}")
    assert (await bob.found("/user/device")) == {"devices": []}
    expect_error(
        await bob.delete(f"/user/device?deviceToken={mine['deviceToken']}"), 404, "device_not_found"
    )


async def test_a_match_is_followed_a_side_is_taken_and_left_again(
    ana: ApiClient, coming_id: str
) -> None:
    expect_error(await ana.get(f"/user/follow/{coming_id}"), 404, "not_followed")
    made = await ana.post(f"/user/follow/{coming_id}", {})
    assert made.status == 200, made
    assert (made.json["teamId"], made.json["display"]) == (None, None)
    home = (await ana.found(f"/matches/{coming_id}"))["teams"][0]["teamId"]
    assert (await ana.patch(f"/user/follow/{coming_id}", {"teamId": home})).json["teamId"] == home
    assert (await ana.found(f"/user/follow/{coming_id}"))["teamId"] == home
    assert [each["matchId"] for each in (await ana.found("/user/follows"))["follows"]] == [
        coming_id
    ]
    again = await ana.post(f"/user/follow/{coming_id}", {})
    assert again.json["createdAt"] == made.json["createdAt"]
    assert (await ana.delete(f"/user/follow/{coming_id}")).status == 204
    assert (await ana.delete(f"/user/follow/{coming_id}")).status == 204, (
        "the same again is no error"
    )
    expect_error(
        await ana.patch(f"/user/follow/{coming_id}", {"teamId": None}), 404, "not_followed"
    )
    assert (await ana.found("/user/follows"))["follows"] == []


async def test_both_spellings_of_the_follow_routes_do_the_same(
    ana: ApiClient, coming_id: str
) -> None:
    made = await ana.post("/user/follow/match", {"matchId": coming_id})
    assert made.json["matchId"] == coming_id
    assert (await ana.found(f"/user/follow/{coming_id}")) == made.json
    assert (await ana.delete(f"/user/follow/match?matchId={coming_id}")).status == 204
    expect_error(await ana.get(f"/user/follow/{coming_id}"), 404, "not_followed")


async def test_what_cannot_be_followed_is_refused(ana: ApiClient, coming_id: str) -> None:
    expect_error(await ana.post("/user/follow/404", {}), 404, "match_not_found")
    expect_error(
        await ana.post(f"/user/follow/{coming_id}", {"teamId": "7"}),
        400,
        "team_not_in_match",
        "team",
    )
    expect_error(await ana.post("/user/follow/match", {"matchId": "a#b"}), 400, "invalid_field")


async def test_following_a_live_match_shows_it_at_once_and_starts_it_on_the_device(
    ground: ApiHarness, ana: ApiClient, live_id: str
) -> None:
    phone = f"PHONE-{next(_numbers)}"
    ground.apns.devices.register(phone, phone)
    start = ground.apns.devices.issue(phone, TokenKind.START)
    await ana.post("/user/device", device(deviceId=phone))
    await ana.put("/user/device/push-to-start", {"pushToStartToken": start, "deviceId": phone})
    made = await ana.post(f"/user/follow/{live_id}", {})
    assert made.json["display"]["status"] == "in_play"
    state = await ground.operator().found(f"/admin/matches/{live_id}/state")
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


async def test_subscriptions_of_apps_are_kept_and_go_with_the_follow(
    ground: ApiHarness, ana: ApiClient, live_id: str
) -> None:
    await ana.post(f"/user/follow/{live_id}", {})
    first, second = token(), token()
    for each in (first, second):
        assert (await ana.post(f"/user/activity/{live_id}", {"pushToken": each})).status == 200
    assert (await ana.delete(f"/user/activity/{live_id}?pushToken={first}")).status == 204
    expect_error(
        await ana.delete(f"/user/activity/{live_id}?pushToken={first}"),
        404,
        "subscription_not_found",
    )
    bob = ground.person(f"bob-{next(_numbers)}")
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


async def test_what_one_follows_comes_page_by_page(ground: ApiHarness) -> None:
    eve = ground.person(f"eve-{next(_numbers)}")
    listed = (await eve.found("/matches?status=not_started"))["matches"]
    for match in listed:
        await eve.post(f"/user/follow/{match['matchId']}", {})
    first = await eve.found("/user/follows?limit=2")
    rest = await eve.found(f"/user/follows?limit=2&cursor={first['nextCursor']}")
    found = [each["matchId"] for each in (*first["follows"], *rest["follows"])]
    assert sorted(found) == sorted(match["matchId"] for match in listed)


async def test_whoever_watches_a_match_is_told_as_it_happens(
    ground: ApiHarness, ana: ApiClient, live_id: str
) -> None:
    async with watching(ana, f"/matches/{live_id}/events") as watcher:
        first = await watcher.event()
        assert first["event"] == "display"
        ground.sportmonks.playbacks[int(live_id)].deliver(6)
        ground.pass_time(3)
        await ground.poll()
        told = [await watcher.event()]
        while told[-1]["event"] != "display":
            told.append(await watcher.event())
    assert live_id in told[-1]["data"]
    assert told[-1]["data"] != first["data"]


async def test_every_error_has_the_one_shape(ana: ApiClient, ground: ApiHarness) -> None:
    answers: list[ApiResponse] = [
        await ana.send("POST", "/user/device", b"{"),
        await ana.send("POST", "/user/device", b"[]"),
        await ana.send("PATCH", "/user/device", {}),
        await ana.get("/nowhere"),
        await ana.send("POST", "/user/device", b"x" * 2_000_000),
    ]
    for answer, code in zip(
        answers,
        ("malformed_json", "invalid_field", "method_not_allowed", "not_found", "too_large"),
        strict=True,
    ):
        expect_error(answer, answer.status, code)
