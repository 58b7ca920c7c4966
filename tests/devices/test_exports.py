"""Exports in all three formats contain exactly the stored readings."""

import csv
import io
import random
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from tally.devices.api.schemas.exports import FORMATS, SENSORS
from tests.api_response import expect_error
from tests.devices.factories import random_readings, write_readings
from tests.devices.harness import ADMIN, FIRST_MS, MINUTE_MS, Board, DevicesServer, Json


@pytest.fixture(scope="session")
async def board(server: DevicesServer) -> Board:
    """A board whose readings cover all kinds of values."""
    board = Board()
    key = await server.new_key()
    await server.store_readings(board, board.readings(8), key)
    await write_readings(
        server.application.engine, random_readings(board, 600, 1_000, random.Random(1))
    )
    await server.operator_request(
        f"/devices/{board.hardware_id}", "PATCH", {"friendly_name": 'Beet "3", Süd'}
    )
    unusual = [
        *(board.reading(number) for number in (702, 703, 704)),
        board.reading(800, sensors={"wind": 2**60, "soil_moisture_pct": 2**60, "rain": 1e-7}),
        board.reading(801, sensors={}, sensor_status={}),
        board.reading(802, timestamp_ms=4_000_000_000_123, sensors=dict.fromkeys(SENSORS, -0.5)),
    ]
    await server.store_readings(board, unusual, key)
    return board


async def export(server: DevicesServer, board: Board, query: str) -> bytes:
    response = await server.operator_request(f"/devices/{board.hardware_id}/export?{query}")
    assert response.status == 200
    return response.body


async def test_ndjson_equals_the_api(server: DevicesServer, board: Board) -> None:
    lines = (await export(server, board, "format=ndjson")).splitlines()
    assert [msgspec.json.decode(line) for line in lines] == await server.readings(board)
    assert len(lines) == 614


async def test_csv_contains_every_reading(server: DevicesServer, board: Board) -> None:
    text = (await export(server, board, "format=csv")).decode()
    assert await export(server, board, "") == text.encode(), "CSV is the default"
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [from_row(row) for row in rows] == [
        comparable(reading) for reading in await server.readings(board)
    ]
    assert rows[-1]["time"] == "2096-10-02T07:06:40.123+00:00"


async def test_parquet_contains_every_reading(server: DevicesServer, board: Board) -> None:
    table = pq.read_table(io.BytesIO(await export(server, board, "format=parquet")))
    rows = table.to_pylist()
    assert [from_row(row) for row in rows] == [
        comparable(reading) for reading in await server.readings(board)
    ]
    assert rows[-1]["time"].isoformat(timespec="milliseconds") == "2096-10-02T07:06:40.123+00:00"
    assert rows[-1]["clock_ahead"] is True


def from_row(row: Json) -> Json:
    """Convert a CSV or Parquet row back to a reading."""
    named = {name: float(row[name]) for name in SENSORS if row[name] not in ("", None)}
    others = msgspec.json.decode(row["other_sensors"] or "{}")
    return {
        "hardware_id": row["hardware_id"],
        "batch_id": row["batch_id"],
        "timestamp_ms": int(row["timestamp_ms"]),
        "boot_id": row["boot_id"],
        "firmware_version": row["firmware_version"],
        "friendly_name": row["friendly_name"] or None,
        "sensors": named | others,
        "sensor_status": msgspec.json.decode(row["sensor_status"]),
        "clock_ahead": str(row["clock_ahead"]) == "True",
    }


def comparable(reading: Json) -> Json:
    """Convert the sensors with a column to floats."""
    sensors = {
        name: float(value) if name in SENSORS else value
        for name, value in reading["sensors"].items()
    }
    return reading | {"sensors": sensors}


@pytest.mark.parametrize("file_format", FORMATS)
async def test_response_headers_describe_the_file(
    server: DevicesServer, board: Board, file_format: str
) -> None:
    """Also for HEAD, which reads nothing."""
    path = f"/devices/{board.hardware_id}/export?format={file_format}&to={FIRST_MS}"
    for method in ("GET", "HEAD"):
        response = await server.send(method, path, None, {"Authorization": f"Bearer {ADMIN}"})
        assert response.headers["content-type"] == FORMATS[file_format].media_type
        name = f"readings-{board.hardware_id.replace(':', '')}.{file_format}"
        assert response.headers["content-disposition"] == f'attachment; filename="{name}"'
        assert bool(response.body) == (method == "GET")


@pytest.mark.parametrize("file_format", FORMATS)
async def test_an_export_respects_the_time_range(
    server: DevicesServer, board: Board, file_format: str
) -> None:
    time_range = f"from={FIRST_MS + 702 * MINUTE_MS}&to={FIRST_MS + 704 * MINUTE_MS}"
    body = await export(server, board, f"format={file_format}&{time_range}")
    assert [row["batch_id"] for row in parse_rows(file_format, body)] == [
        board.reading(number)["batch_id"] for number in (702, 703, 704)
    ]
    assert parse_rows(file_format, await export(server, board, f"format={file_format}&to=1")) == []


def parse_rows(file_format: str, body: bytes) -> list[Any]:
    if file_format == "csv":
        return list(csv.DictReader(io.StringIO(body.decode(), newline="")))
    if file_format == "ndjson":
        return [msgspec.json.decode(line) for line in body.splitlines()]
    rows: list[Any] = pq.read_table(io.BytesIO(body)).to_pylist()
    return rows


@pytest.mark.parametrize(
    "query", ["format=xls", "format=", "from=2&to=1", "points=3", "format=csv&format=csv"]
)
async def test_an_invalid_export_query_is_rejected(
    server: DevicesServer, board: Board, query: str
) -> None:
    expect_error(
        await server.operator_request(f"/devices/{board.hardware_id}/export?{query}"),
        400,
        "unknown_field" if query == "points=3" else "invalid_field",
    )


@pytest.mark.parametrize(
    "name", ["=1+1", "+1", "-1", "@SUM(A1)", "=cmd|' /C calc'!A0", '=HYPERLINK("x")']
)
async def test_csv_escapes_formulas(server: DevicesServer, name: str) -> None:
    board, key = Board(firmware_version=name), await server.new_key()
    await server.post("/register", board.registration(), key=key)
    assert (
        await server.operator_request(
            f"/devices/{board.hardware_id}", "PATCH", {"friendly_name": name}
        )
    ).status == 200
    await server.store_readings(board, [board.reading(batch_id=f"-{board.boot_id}")], key)
    [row] = parse_rows("csv", await export(server, board, "format=csv"))
    assert (row["friendly_name"], row["firmware_version"]) == (f"'{name}", f"'{name}")
    assert not any((row[column] or "").startswith(("=", "+", "-", "@")) for column in row)
    [other] = parse_rows("ndjson", await export(server, board, "format=ndjson"))
    assert other["friendly_name"] == name
