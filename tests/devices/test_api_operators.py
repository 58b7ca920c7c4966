"""The operator API: API keys and devices."""

import re
import uuid
from datetime import timedelta

import pytest

from tally.kit.clock import ManualClock
from tests.api_response import expect_error
from tests.devices.conftest import StoreTarget
from tests.devices.harness import ADMIN, START, Board, DevicesServer, new_hardware_id, open_server

CONTROL_PLANE = [
    ("POST", "/api-keys"),
    ("GET", "/api-keys"),
    ("DELETE", "/api-keys/a1b2c3d4-e5f6-4890-abcd-ef1234567890"),
    ("GET", "/devices"),
    ("GET", "/devices/AA:BB:CC:DD:EE:FF"),
    ("PATCH", "/devices/AA:BB:CC:DD:EE:FF"),
    ("GET", "/devices/AA:BB:CC:DD:EE:FF/latest"),
    ("GET", "/devices/AA:BB:CC:DD:EE:FF/readings"),
    ("GET", "/devices/AA:BB:CC:DD:EE:FF/series?sensor=x&from=0&to=1"),
    ("GET", "/devices/AA:BB:CC:DD:EE:FF/export"),
    ("GET", "/devices/AA:BB:CC:DD:EE:FF/stream"),
]


@pytest.mark.parametrize(("method", "path"), CONTROL_PLANE)
async def test_the_control_plane_requires_the_operator_token(
    server: DevicesServer, method: str, path: str
) -> None:
    """Missing, empty, of another scheme, wrong, and truncated tokens are rejected."""
    expect_error(
        await server.operator_request(path, method, token=None),
        401,
        "missing_token",
        "Authorization",
    )
    for header in ("Bearer", "Bearer ", f"Basic {ADMIN}", ADMIN):
        response = await server.send(method, path, None, {"Authorization": header})
        expect_error(response, 401, "missing_token")
        assert response.headers["www-authenticate"] == "Bearer"
    for token in ("x", ADMIN[:-1], ADMIN + "x", ADMIN.upper()):
        expect_error(await server.operator_request(path, method, token=token), 401, "invalid_token")


@pytest.mark.parametrize("path", ["/register", "/data"])
async def test_the_data_plane_requires_an_api_key(
    server: DevicesServer, key: str, path: str
) -> None:
    """Missing, empty, malformed and unknown keys are rejected, and so is the operator token."""
    board = Board()
    content = board.registration() if path == "/register" else board.data(board.reading())
    expect_error(await server.post(path, content), 401, "missing_api_key", "X-API-Key")
    expect_error(await server.post(path, content, key=""), 401, "missing_api_key")
    for wrong in (
        "x",
        "0" * 63,
        "0" * 65,
        "g" * 64,
        "0" * 64,
        key.upper() if key.upper() != key else "0",
        ADMIN,
    ):
        expect_error(await server.post(path, content, key=wrong), 401, "invalid_api_key")
    expect_error(
        await server.post(path, content, headers={"Authorization": f"Bearer {ADMIN}"}),
        401,
        "missing_api_key",
    )
    expect_error(
        await server.operator_request(f"/devices/{board.hardware_id}"), 404, "device_not_found"
    )


async def test_an_api_key_is_not_an_operator_token(server: DevicesServer, key: str) -> None:
    expect_error(await server.operator_request("/devices", token=key), 401, "invalid_token")


async def test_only_the_creation_returns_the_key(server: DevicesServer) -> None:
    response = await server.operator_request(
        "/api-keys", "POST", {"description": "greenhouse cluster"}
    )
    assert response.status == 201
    assert response.headers["cache-control"] == "no-store"
    made = response.json
    assert re.fullmatch("[0-9a-f]{64}", made["api_key"])
    assert uuid.UUID(made["key_id"]).version == 4
    assert made["description"] == "greenhouse cluster"
    assert (
        made["api_key"] not in (await server.operator_request("/api-keys?limit=1000")).body.decode()
    )


async def test_keys_are_listed_newest_first(fresh_server: DevicesServer) -> None:
    ids = []
    for _ in range(5):
        ids.append((await fresh_server.operator_request("/api-keys", "POST", {})).json["key_id"])
        await fresh_server.clock.advance(1)
    first = await fresh_server.get_json("/api-keys?limit=3")
    rest = await fresh_server.get_json(f"/api-keys?limit=3&cursor={first['next_cursor']}")
    assert [key["key_id"] for key in first["items"] + rest["items"]] == ids[::-1]
    assert rest["next_cursor"] is None
    assert set(first["items"][0]) == {
        "key_id",
        "created_at",
        "is_active",
        "description",
        "last_used_at",
        "hardware_ids",
        "group",
    }


async def test_every_server_rejects_a_revoked_key_within_five_seconds(
    store_target: StoreTarget,
) -> None:
    """Although each has it in its cache."""
    settings = await store_target.new_settings()
    async with open_server(settings) as one, open_server(settings) as other:
        key = await one.new_key()
        [listed] = (await one.get_json("/api-keys"))["items"]
        for server in (one, other):
            assert (await server.post("/register", Board().registration(), key=key)).status == 200
        assert (await one.operator_request(f"/api-keys/{listed['key_id']}", "DELETE")).status == 204
        for server in (one, other):
            await server.clock.advance(5)
            for path in ("/register", "/data"):
                expect_error(await server.post(path, {}, key=key), 401, "key_revoked", "revoked")
        [listed] = (await one.get_json("/api-keys"))["items"]
        assert listed["is_active"] is False


async def test_revoking_requires_an_existing_key(server: DevicesServer) -> None:
    expect_error(
        await server.operator_request(f"/api-keys/{uuid.uuid4()}", "DELETE"), 404, "key_not_found"
    )
    for invalid in ("x", "7c9e6679-7425-10de-944b-e07fc1f90ae7", "é"):
        expect_error(
            await server.operator_request(f"/api-keys/{invalid}", "DELETE"),
            400,
            "invalid_field",
            "key_id",
        )


@pytest.mark.parametrize(
    "content",
    [{"description": ""}, {"description": "x" * 257}, {"description": 7}, {"colour": 1}, [], 1],
)
async def test_an_invalid_description_is_rejected(server: DevicesServer, content: object) -> None:
    code = "unknown_field" if content == {"colour": 1} else "invalid_field"
    expect_error(await server.operator_request("/api-keys", "POST", content), 400, code)


async def test_last_used_is_updated_every_five_minutes_and_never_decreases(
    store_target: StoreTarget,
) -> None:
    """With two servers, one of them three minutes behind."""
    settings = await store_target.new_settings()
    behind = ManualClock(START - timedelta(minutes=3))
    async with open_server(settings) as ahead, open_server(settings, behind) as late:
        key = await ahead.new_key()

        async def last_used() -> str:
            [listed] = (await ahead.get_json("/api-keys"))["items"]
            return str(listed["last_used_at"])

        times_seen = []
        for minute in range(13):
            for server in (ahead, late):
                assert (await server.post("/data", Board().data("?"), key=key)).status == 200
                times_seen.append(await last_used())
                await server.clock.advance(60)
            assert times_seen == sorted(times_seen), minute
        assert sorted(set(times_seen)) == [
            f"2080-01-01T00:{minute:02}:00Z" for minute in (0, 5, 10)
        ]


async def test_last_seen_is_updated_every_five_minutes_and_never_decreases(
    store_target: StoreTarget,
) -> None:
    """With two servers, one of them seven minutes behind. A registration updates immediately."""
    settings = await store_target.new_settings()
    behind = ManualClock(START - timedelta(minutes=7))
    async with open_server(settings) as ahead, open_server(settings, behind) as late:
        board, key = Board(), await ahead.new_key()

        async def last_seen() -> str:
            return str((await ahead.get_json(f"/devices/{board.hardware_id}"))["last_seen_at"])

        times_seen = []
        for _ in range(11):
            for server in (late, ahead):
                await server.store_readings(board, [board.reading()], key)
                times_seen.append(await last_seen())
                await server.clock.advance(60)
        assert times_seen == sorted(times_seen)
        times = [
            "2079-12-31T23:53:00Z",
            *(f"2080-01-01T00:{minute:02}:00Z" for minute in (0, 5, 10)),
        ]
        assert list(dict.fromkeys(times_seen)) == times
        await late.post("/register", board.registration(), key=key)
        assert await last_seen() == times[-1]
        await ahead.post("/register", board.registration(), key=key)
        assert await last_seen() == "2080-01-01T00:11:00Z"


async def test_devices_are_listed_by_activity(fresh_server: DevicesServer) -> None:
    """Most recently seen first, each device on one page."""
    key = await fresh_server.new_key()
    boards = [Board() for _ in range(5)]
    for board in boards:
        await fresh_server.post("/register", board.registration(), key=key)
        await fresh_server.clock.advance(400)
    await fresh_server.store_readings(boards[0], [boards[0].reading()], key)
    listed: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = await fresh_server.get_json(
            "/devices?limit=2" + (f"&cursor={cursor}" if cursor else "")
        )
        listed += [device["hardware_id"] for device in page["items"]]
        cursor = page["next_cursor"]
    assert listed == [board.hardware_id for board in (boards[0], *boards[:0:-1])]


async def test_a_device_can_be_named_and_unnamed(server: DevicesServer, key: str) -> None:
    board = Board()
    await server.post("/register", board.registration(), key=key)
    path = f"/devices/{board.hardware_id}"
    named = await server.operator_request(path, "PATCH", {"friendly_name": "Gewächshaus 🌱"})
    assert (named.status, named.json["friendly_name"]) == (200, "Gewächshaus 🌱")
    assert (await server.get_json(path))["friendly_name"] == "Gewächshaus 🌱"
    await server.store_readings(board, [board.reading(0)], key)
    assert (await server.operator_request(path, "PATCH", {"friendly_name": None})).json[
        "friendly_name"
    ] is None
    await server.store_readings(board, [board.reading(1)], key)
    assert [reading["friendly_name"] for reading in await server.readings(board)] == [
        "Gewächshaus 🌱",
        None,
    ]


async def test_another_server_uses_a_new_name_within_a_minute(store_target: StoreTarget) -> None:
    settings = await store_target.new_settings()
    async with open_server(settings) as one, open_server(settings) as other:
        board, key = Board(), await one.new_key()
        await other.store_readings(board, [board.reading(0)], key)
        await one.operator_request(
            f"/devices/{board.hardware_id}", "PATCH", {"friendly_name": "new"}
        )
        await other.clock.advance(60)
        await other.store_readings(board, [board.reading(1)], key)
        assert [reading["friendly_name"] for reading in await one.readings(board)] == [None, "new"]


@pytest.mark.parametrize("name", ["", "x" * 129, "a\nb", "a\x00", 7, ["x"]])
async def test_an_invalid_name_is_rejected(server: DevicesServer, key: str, name: object) -> None:
    board = Board()
    await server.post("/register", board.registration(), key=key)
    response = await server.operator_request(
        f"/devices/{board.hardware_id}", "PATCH", {"friendly_name": name}
    )
    expect_error(response, 400, "invalid_field", "friendly_name")
    expect_error(
        await server.operator_request(f"/devices/{board.hardware_id}", "PATCH", {}),
        400,
        "missing_field",
        "friendly_name",
    )


async def test_unknown_resources_are_not_found(server: DevicesServer) -> None:
    unknown = new_hardware_id()
    for path in ("", "/latest", "/readings", "/series?sensor=x&from=0&to=1", "/export", "/stream"):
        expect_error(
            await server.operator_request(f"/devices/{unknown}{path}"),
            404,
            "device_not_found",
            unknown,
        )
        expect_error(
            await server.operator_request(f"/devices/{unknown.lower()}x{path}"),
            400,
            "invalid_field",
            "hardware_id",
        )
    expect_error(
        await server.operator_request(f"/devices/{unknown}", "PATCH", {"friendly_name": "x"}),
        404,
        "device_not_found",
    )
    expect_error(await server.operator_request("/nowhere"), 404, "not_found")
    expect_error(
        await server.operator_request("/devices", "DELETE"), 405, "method_not_allowed", "GET"
    )


@pytest.mark.parametrize("path", ["/devices", "/api-keys"])
@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=1001", "limit=x", "limit=", "limit=1&limit=2", "colour=green", "limit=1.5"],
)
async def test_an_invalid_list_query_is_rejected(
    server: DevicesServer, path: str, query: str
) -> None:
    name = query.partition("=")[0]
    codes = {"colour": "unknown_field", "cursor": "invalid_cursor"}
    expect_error(
        await server.operator_request(f"{path}?{query}"),
        400,
        codes.get(name, "invalid_field"),
        name,
        field=name,
    )
