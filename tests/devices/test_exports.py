"""Readings as files: the three formats hold what was measured, any length of it, in constant memory."""

import csv
import io
import random
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from tally.devices.api.exports import FORMATS, SENSORS
from tests.devices.factories import random_readings, write_readings
from tests.devices.harness import (
    ADMIN,
    FIRST_MS,
    MINUTE_MS,
    Board,
    DevicesServer,
    Json,
    assert_error,
)


@pytest.fixture(scope="session")
async def board(server: DevicesServer) -> Board:
    """A board whose readings have all that a reading can have."""
    board = Board()
    key = await server.new_key()
    await server.store_readings(board, board.readings(8), key)
    await write_readings(
        server.application.store.engine, random_readings(board, 600, 1_000, random.Random(1))
    )
    await server.operator_request(
        f"/devices/{board.hardware_id}", "PATCH", {"friendly_name": 'Beet "3", Süd'}
    )
    odd = [
        *(board.reading(number) for number in (702, 703, 704)),
        board.reading(800, sensors={"wind": 2**60, "soil_moisture_pct": 2**60, "rain": 1e-7}),
        board.reading(801, sensors={}, sensor_status={}),
        board.reading(802, timestamp_ms=4_000_000_000_123, sensors=dict.fromkeys(SENSORS, -0.5)),
    ]
    await server.store_readings(board, odd, key)
    return board


async def exported(server: DevicesServer, board: Board, query: str) -> bytes:
    answer = await server.operator_request(f"/devices/{board.hardware_id}/export?{query}")
    assert answer.status == 200
    return answer.body


async def test_one_object_a_line_is_what_the_api_shows(server: DevicesServer, board: Board) -> None:
    lines = (await exported(server, board, "format=ndjson")).splitlines()
    assert [msgspec.json.decode(line) for line in lines] == await server.readings(board)
    assert len(lines) == 614


async def test_a_spreadsheet_has_every_reading(server: DevicesServer, board: Board) -> None:
    text = (await exported(server, board, "format=csv")).decode()
    assert await exported(server, board, "") == text.encode(), "CSV unless told otherwise"
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [from_row(row) for row in rows] == [
        comparable(reading) for reading in await server.readings(board)
    ]
    assert rows[-1]["time"] == "2096-10-02T07:06:40.123+00:00"


async def test_a_parquet_file_has_every_reading(server: DevicesServer, board: Board) -> None:
    table = pq.read_table(io.BytesIO(await exported(server, board, "format=parquet")))
    rows = table.to_pylist()
    assert [from_row(row) for row in rows] == [
        comparable(reading) for reading in await server.readings(board)
    ]
    assert rows[-1]["time"].isoformat(timespec="milliseconds") == "2096-10-02T07:06:40.123+00:00"
    assert rows[-1]["clock_ahead"] is True


def from_row(row: Json) -> Json:
    """A row of a spreadsheet or of a Parquet file as the reading that it was."""
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
    """With the named sensors as the floats that they are in a column."""
    sensors = {
        name: float(value) if name in SENSORS else value
        for name, value in reading["sensors"].items()
    }
    return reading | {"sensors": sensors}


@pytest.mark.parametrize("form", FORMATS)
async def test_a_file_says_what_it_is(server: DevicesServer, board: Board, form: str) -> None:
    """To who asks for its head too, for whom nothing is read."""
    path = f"/devices/{board.hardware_id}/export?format={form}&to={FIRST_MS}"
    for method in ("GET", "HEAD"):
        answer = await server.send(method, path, None, {"Authorization": f"Bearer {ADMIN}"})
        assert answer.headers["content-type"] == FORMATS[form].media_type
        name = f"readings-{board.hardware_id.replace(':', '')}.{form}"
        assert answer.headers["content-disposition"] == f'attachment; filename="{name}"'
        assert bool(answer.body) == (method == "GET")


@pytest.mark.parametrize("form", FORMATS)
async def test_a_file_has_the_span_that_was_asked_for(
    server: DevicesServer, board: Board, form: str
) -> None:
    span = f"from={FIRST_MS + 702 * MINUTE_MS}&to={FIRST_MS + 704 * MINUTE_MS}"
    body = await exported(server, board, f"format={form}&{span}")
    assert [row["batch_id"] for row in rows_of(form, body)] == [
        board.reading(number)["batch_id"] for number in (702, 703, 704)
    ]
    assert rows_of(form, await exported(server, board, f"format={form}&to=1")) == []


def rows_of(form: str, body: bytes) -> list[Any]:
    if form == "csv":
        return list(csv.DictReader(io.StringIO(body.decode(), newline="")))
    if form == "ndjson":
        return [msgspec.json.decode(line) for line in body.splitlines()]
    rows: list[Any] = pq.read_table(io.BytesIO(body)).to_pylist()
    return rows


@pytest.mark.parametrize(
    "query", ["format=xls", "format=", "from=2&to=1", "points=3", "format=csv&format=csv"]
)
async def test_an_export_refuses_what_it_does_not_understand(
    server: DevicesServer, board: Board, query: str
) -> None:
    assert_error(
        await server.operator_request(f"/devices/{board.hardware_id}/export?{query}"),
        400,
        "INVALID_FORMAT",
    )


@pytest.mark.parametrize(
    "name", ["=1+1", "+1", "-1", "@SUM(A1)", "=cmd|' /C calc'!A0", '=HYPERLINK("x")']
)
async def test_a_name_that_looks_like_a_formula_is_text_in_a_spreadsheet(
    server: DevicesServer, name: str
) -> None:
    board, key = Board(firmware_version=name), await server.new_key()
    await server.post("/register", board.registration(), key=key)
    assert (
        await server.operator_request(
            f"/devices/{board.hardware_id}", "PATCH", {"friendly_name": name}
        )
    ).status == 200
    await server.store_readings(board, [board.reading(batch_id=f"-{board.boot_id}")], key)
    [row] = rows_of("csv", await exported(server, board, "format=csv"))
    assert (row["friendly_name"], row["firmware_version"]) == (f"'{name}", f"'{name}")
    assert not any((row[column] or "").startswith(("=", "+", "-", "@")) for column in row)
    [other] = rows_of("ndjson", await exported(server, board, "format=ndjson"))
    assert other["friendly_name"] == name
