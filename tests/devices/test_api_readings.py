"""Queries by time: the latest reading, and pages with signed cursors."""

import base64
from datetime import timedelta
from typing import Any

import pytest

from tally.kit.clock import ManualClock
from tally.kit.cursors import Cursors, query_fingerprint
from tally.settings import Secret
from tests.api_response import expect_error
from tests.devices.conftest import StoreTarget
from tests.devices.harness import (
    FIRST_MS,
    MINUTE_MS,
    START,
    START_MS,
    Board,
    DevicesServer,
    open_server,
)


@pytest.fixture(scope="session")
async def board(server: DevicesServer) -> Board:
    """A board with ten readings, a minute apart."""
    board = Board()
    await server.store_readings(board, board.readings(10))
    return board


def numbers(found: list[dict[str, Any]]) -> list[int]:
    return [(reading["timestamp_ms"] - FIRST_MS) // MINUTE_MS for reading in found]


async def test_the_latest_reading_has_the_latest_timestamp(
    server: DevicesServer, board: Board
) -> None:
    latest = await server.get_json(f"/devices/{board.hardware_id}/latest")
    assert latest["batch_id"] == board.reading(9)["batch_id"]


async def test_a_device_without_readings(server: DevicesServer, key: str) -> None:
    silent = Board()
    await server.post("/register", silent.registration(), key=key)
    expect_error(
        await server.operator_request(f"/devices/{silent.hardware_id}/latest"),
        404,
        "no_readings",
        silent.hardware_id,
    )
    assert await server.get_json(f"/devices/{silent.hardware_id}/readings") == {
        "items": [],
        "next_cursor": None,
    }


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", list(range(10))),
        ("?order=desc", list(range(9, -1, -1))),
        (f"?from={FIRST_MS + 3 * MINUTE_MS}&to={FIRST_MS + 5 * MINUTE_MS}", [3, 4, 5]),
        (f"?from={FIRST_MS + 3 * MINUTE_MS + 1}&to={FIRST_MS + 5 * MINUTE_MS - 1}", [4]),
        (f"?from={FIRST_MS + 8 * MINUTE_MS}&order=desc", [9, 8]),
        (f"?to={FIRST_MS}", [0]),
        ("?limit=2", [0, 1]),
        ("?from=0&to=0", []),
        ("?from=99999999999999&to=99999999999999", []),
    ],
)
async def test_a_time_range_is_inclusive(
    server: DevicesServer, board: Board, query: str, expected: list[int]
) -> None:
    page = await server.get_json(f"/devices/{board.hardware_id}/readings{query}")
    assert numbers(page["items"]) == expected


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_pages_contain_each_reading_once(
    server: DevicesServer, board: Board, order: str
) -> None:
    """Also if the limit changes between pages."""
    path = f"/devices/{board.hardware_id}/readings?order={order}"
    page = await server.get_json(f"{path}&limit=4")
    found = numbers(page["items"])
    while page["next_cursor"]:
        page = await server.get_json(f"{path}&limit=3&cursor={page['next_cursor']}")
        found += numbers(page["items"])
    assert found == sorted(range(10), reverse=order == "desc")


@pytest.mark.parametrize(
    "query",
    [
        "from=x",
        "to=-1",
        "to=1.5",
        "from=100000000000000",
        "from=5&to=4",
        "order=up",
        "order=",
        "limit=0",
        "limit=1001",
        "colour=green",
        "from=1&from=2",
        "cursor=",
        "cursor=%00",
        "limit=99999999999999999999",
    ],
)
async def test_an_invalid_query_is_rejected(
    server: DevicesServer, board: Board, query: str
) -> None:
    codes = {"colour": "unknown_field", "cursor": "invalid_cursor"}
    expect_error(
        await server.operator_request(f"/devices/{board.hardware_id}/readings?{query}"),
        400,
        codes.get(query.partition("=")[0], "invalid_field"),
    )


async def get_cursor(server: DevicesServer, board: Board, query: str = "limit=2") -> str:
    page = await server.get_json(f"/devices/{board.hardware_id}/readings?{query}")
    assert page["next_cursor"]
    return str(page["next_cursor"])


async def test_a_cursor_is_bound_to_its_query(server: DevicesServer, board: Board) -> None:
    """Another device, order, range or list rejects it."""
    cursor = await get_cursor(server, board)
    other = Board()
    await server.store_readings(other, other.readings(3))
    own = f"/devices/{board.hardware_id}/readings"
    assert numbers((await server.get_json(f"{own}?cursor={cursor}"))["items"]) == list(range(2, 10))
    for path in (
        f"/devices/{other.hardware_id}/readings?cursor={cursor}",
        f"{own}?order=desc&cursor={cursor}",
        f"{own}?from=1&cursor={cursor}",
        f"{own}?to=4102444799999&cursor={cursor}",
        f"/devices?cursor={cursor}",
        f"/api-keys?cursor={cursor}",
    ):
        expect_error(await server.operator_request(path), 400, "invalid_cursor", "cursor")


async def test_a_forged_cursor_is_rejected(server: DevicesServer, board: Board) -> None:
    """Every byte is authenticated, and another secret is invalid."""
    cursor = await get_cursor(server, board)
    decoded = base64.urlsafe_b64decode(cursor + "==")
    purpose: dict[str, str | int] = {
        "device": board.hardware_id,
        "from": 0,
        "to": 4_102_444_800_000,
        "order": "asc",
    }
    other_cursors = Cursors(Secret("another secret, as long as one must be"))
    page_key = {"hardware_id": board.hardware_id, "ts_batch": "0000000000000#"}
    forged = [
        other_cursors.encode(query_fingerprint("devices.readings", **purpose), page_key),
        "x",
        "AAAA",
        cursor[:-2],
        cursor + "AA",
    ]
    for position in range(0, len(decoded), 7):
        changed = bytearray(decoded)
        changed[position] ^= 1
        forged.append(base64.urlsafe_b64encode(bytes(changed)).rstrip(b"=").decode())
    for wrong in forged:
        expect_error(
            await server.operator_request(f"/devices/{board.hardware_id}/readings?cursor={wrong}"),
            400,
            "invalid_cursor",
            "cursor",
        )


async def test_a_cursor_is_valid_on_another_server(store_target: StoreTarget) -> None:
    settings = await store_target.new_settings()
    async with open_server(settings) as one, open_server(settings) as other:
        board = Board()
        await one.store_readings(board, board.readings(4))
        cursor = await get_cursor(one, board)
        page = await other.get_json(f"/devices/{board.hardware_id}/readings?cursor={cursor}")
        assert numbers(page["items"]) == [2, 3]


async def test_expired_readings_are_deleted(store_target: StoreTarget) -> None:
    """The retention counts from the timestamp."""
    settings = await store_target.new_settings(devices_retention_days=31)
    board = Board()
    young = board.reading(50_000, timestamp_ms=START_MS)
    async with open_server(settings) as server:
        await server.store_readings(board, [*board.readings(2), young])
        assert len(await server.readings(board)) == 3
    async with open_server(settings, ManualClock(START + timedelta(days=2))) as later:
        await later.application.job_runner().run("ttl-sweep")
        remaining = [reading["batch_id"] for reading in await later.readings(board)]
    # DynamoDB deletes expired items at a time of its choice.
    assert (
        remaining == [young["batch_id"]]
        if store_target.engine == "sqlite"
        else young["batch_id"] in remaining
    )
