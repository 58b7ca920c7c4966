"""One batch id is one reading: copies are duplicates, and anything else is a conflict."""

from typing import Any

import msgspec
import pytest

from tests.devices.harness import Board, DevicesServer, Json


async def send(server: DevicesServer, key: str, board: Board, *readings: object) -> Json:
    response = await server.post("/data", board.data(*readings), key=key)
    assert response.status == 200, response
    receipt: Json = response.json
    return receipt


def outcome(receipt: Json) -> tuple[int, int, list[tuple[int, str, str]]]:
    """Count acknowledged readings and duplicates, and list the rejections."""
    rejected = [(entry["index"], entry["field"], entry["code"]) for entry in receipt["rejected"]]
    acknowledged, duplicates = receipt["acknowledged_batch_ids"], receipt["duplicate_batch_ids"]
    return len(acknowledged), len(duplicates), rejected


def conflict(index: int) -> tuple[int, str, str]:
    return index, "batch_id", "batch_id_conflict"


@pytest.mark.parametrize(
    "change",
    [
        {"timestamp_ms": 3_471_292_800_001},
        {"sensors": {"bme280_temp_c": 20.25, "humidity_pct": 45.25}},
        {"sensors": {"bme280_temp_c": 20}},
        {"sensor_status": {"bme280": "error"}},
    ],
    ids=["time", "value", "sensors", "status"],
)
async def test_a_different_reading_with_a_used_batch_id_is_rejected(
    server: DevicesServer, key: str, change: dict[str, Any]
) -> None:
    """In a later request, and in the same one; the first reading stays as it is."""
    board = Board()
    first, other = board.reading(0), board.reading(1)
    receipt = await send(server, key, board, first, first | change, other)
    assert outcome(receipt) == (2, 0, [conflict(1)])
    assert outcome(await send(server, key, board, first | change)) == (0, 0, [conflict(0)])
    many = [first | change, *(board.reading(number) for number in range(2, 8)), first]
    assert outcome(await send(server, key, board, *many)) == (6, 1, [conflict(0)])
    [stored] = [
        found for found in await server.readings(board) if found["batch_id"] == first["batch_id"]
    ]
    assert (stored["timestamp_ms"], stored["sensors"]) == (first["timestamp_ms"], first["sensors"])


async def test_a_batch_id_of_another_board_is_rejected(server: DevicesServer, key: str) -> None:
    board, other = Board(), Board()
    reading = board.reading(0)
    await send(server, key, board, reading)
    receipt = await send(server, key, other, reading, other.reading(1))
    assert outcome(receipt) == (1, 0, [conflict(0)])
    assert "another board" in receipt["rejected"][0]["why"]
    assert len(await server.readings(other)) == 1


async def test_identical_copies_in_a_request_are_duplicates(
    server: DevicesServer, key: str
) -> None:
    board = Board()
    reading = board.reading(0)
    assert outcome(await send(server, key, board, reading, reading, reading)) == (1, 2, [])
    assert outcome(await send(server, key, board, reading, reading)) == (0, 2, [])
    assert len(await server.readings(board)) == 1


async def test_the_same_reading_in_another_notation_is_a_duplicate(
    server: DevicesServer, key: str
) -> None:
    """Other notations of numbers, another order of sensors, and the next boot of the board."""
    board = Board()
    texts = (b'{"a": 20.0, "b": 22.50, "c": 0.0}', b'{"c": -0.0, "b": 2.25e1, "a": 20}')
    first, again = (board.reading(0, sensors=msgspec.Raw(text)) for text in texts)
    assert outcome(await send(server, key, board, first)) == (1, 0, [])
    rebooted = Board(board.hardware_id, firmware_version="2.0.0")
    assert outcome(await send(server, key, rebooted, again)) == (0, 1, [])


async def test_invalid_copies_of_a_valid_reading_are_not_reported(
    server: DevicesServer, key: str
) -> None:
    board = Board()
    reading = board.reading(0)
    receipt = await send(server, key, board, {"batch_id": reading["batch_id"]}, reading)
    assert outcome(receipt) == (1, 0, [])
