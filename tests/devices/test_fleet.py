"""Groups, sensors, desired states, and queries over many boards."""

import csv
import io
import subprocess

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tally.devices.model.rollups import HOUR_MS
from tally.devices.service import fleet_queries
from tests.api_response import expect_error
from tests.devices.harness import DAY_MS, FIRST_MS, MINUTE_MS, Board, DevicesServer, Json
from tests.needs import need_program


def new_group() -> str:
    return f"g{Board().hardware_id.replace(':', '')}"


async def new_members(server: DevicesServer, key: str, count: int) -> tuple[str, list[Board]]:
    """Create boards of a new group, sorted by hardware id."""
    group = new_group()
    boards = sorted((Board() for _ in range(count)), key=lambda board: board.hardware_id)
    for board in boards:
        await server.post("/register", board.registration(), key=key)
        response = await server.operator_request(
            f"/devices/{board.hardware_id}", "PATCH", {"group": group, "friendly_name": "b"}
        )
        assert response.status == 200, response
    return group, boards


async def test_a_device_has_a_group_and_tags(server: DevicesServer, key: str) -> None:
    """A field that is missing stays, and null removes one."""
    group, [board] = await new_members(server, key, 1)
    path = f"/devices/{board.hardware_id}"
    device = await server.get_json(path)
    assert (device["friendly_name"], device["group"], device["tags"]) == ("b", group, [])
    await server.operator_request(path, "PATCH", {"tags": ["roof", "east"]})
    device = await server.get_json(path)
    assert (device["friendly_name"], device["group"], device["tags"]) == (
        "b",
        group,
        ["east", "roof"],
    )
    await server.operator_request(path, "PATCH", {"group": None, "tags": []})
    device = await server.get_json(path)
    assert (device["group"], device["tags"]) == (None, [])
    expect_error(await server.operator_request(path, "PATCH", {}), 400, "missing_field")
    for changes in ({"group": "a b"}, {"tags": ["a", "a"]}, {"tags": ["x"] * 17}):
        expect_error(await server.operator_request(path, "PATCH", changes), 400, "invalid_field")
    unknown = await server.operator_request(
        f"/devices/{Board().hardware_id}", "PATCH", {"group": "g"}
    )
    expect_error(unknown, 404, "device_not_found")


async def test_devices_of_a_group_are_listed_page_by_page(server: DevicesServer, key: str) -> None:
    group, boards = await new_members(server, key, 5)
    found: list[str] = []
    cursor = ""
    while True:
        page = await server.get_json(f"/devices?group={group}&limit=2{cursor}")
        found += [device["hardware_id"] for device in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert found == [board.hardware_id for board in boards]


async def test_sensors_have_units_and_unknown_ones_are_accepted(
    server: DevicesServer, key: str
) -> None:
    board = Board()
    reading = board.reading(0, sensors={"co2_ppm": 421, "bme280_temp_c": 20})
    await server.store_readings(board, [reading], key)
    expect_error(await server.operator_request("/sensors/co2_ppm"), 404, "sensor_not_found")
    body = {"unit": "ppm", "minimum": 0, "maximum": 10_000, "precision": 0}
    stored = await server.operator_request("/sensors/co2_ppm", "PUT", body)
    assert stored.json == {"sensor": "co2_ppm", "is_default": False, **body}
    span = f"from={FIRST_MS}&to={FIRST_MS + DAY_MS}"
    path = f"/devices/{board.hardware_id}"
    series = await server.get_json(f"{path}/series?sensor=co2_ppm&{span}")
    assert series["sensor_info"]["unit"] == "ppm"
    temperature = await server.get_json(f"{path}/series?sensor=bme280_temp_c&{span}")
    assert temperature["sensor_info"]["unit"] == "°C"
    text = (await server.operator_request(f"{path}/export?units=true")).body.decode()
    assert "bme280_temp_c (°C)" in next(csv.reader(io.StringIO(text)))
    parquet = (await server.operator_request(f"{path}/export?format=parquet")).body
    schema = pq.read_schema(pa.BufferReader(parquet))
    assert schema.field("bme280_temp_c").metadata[b"unit"].decode() == "°C"
    listed = {item["sensor"]: item for item in (await server.get_json("/sensors"))["items"]}
    assert listed["co2_ppm"]["unit"] == "ppm"
    assert listed["humidity_pct"]["is_default"]
    deleted = await server.operator_request("/sensors/co2_ppm", "DELETE")
    assert deleted.status == 204
    expect_error(await server.operator_request("/sensors/co2_ppm"), 404, "sensor_not_found")
    wrong = await server.operator_request("/sensors/x", "PUT", {"minimum": 2, "maximum": 1})
    expect_error(wrong, 400, "invalid_field")


async def test_a_board_receives_its_desired_state_until_it_reports_it(
    server: DevicesServer, key: str
) -> None:
    board = Board()
    path = f"/devices/{board.hardware_id}/desired-state"
    unknown = await server.operator_request(path, "PUT", {"state": {}})
    expect_error(unknown, 404, "device_not_found")
    first = await server.post("/register", board.registration(), key=key)
    assert "desired_state" not in first.json
    expect_error(await server.operator_request(path), 404, "desired_state_not_found")
    stored = await server.operator_request(path, "PUT", {"state": {"interval_s": 1.10}})
    assert (stored.json["version"], stored.json["is_applied"]) == (1, False)
    expected = {"version": 1, "state": {"interval_s": 1.1}}
    for number, reported in enumerate(({}, {"state_version": 0})):
        data = board.data(board.reading(number), **reported)
        assert (await server.post("/data", data, key=key)).json["desired_state"] == expected
    again = await server.post("/register", board.registration(state_version=0), key=key)
    assert again.json["desired_state"] == expected
    data = board.data(board.reading(7), state_version=1)
    assert "desired_state" not in (await server.post("/data", data, key=key)).json
    applied = await server.get_json(path)
    assert (applied["reported_version"], applied["is_applied"]) == (1, True)
    await server.operator_request(path, "PUT", {"state": {"interval_s": 5}})
    data = board.data(board.reading(8), state_version=1)
    received = (await server.post("/data", data, key=key)).json["desired_state"]
    assert received == {"version": 2, "state": {"interval_s": 5}}


async def test_a_desired_state_is_small_and_versioned(server: DevicesServer, key: str) -> None:
    board = Board()
    path = f"/devices/{board.hardware_id}/desired-state"
    await server.post("/register", board.registration(), key=key)
    largest = {"state": {"text": "x" * (4096 - len('{"text":""}'))}, "expected_version": 0}
    assert (await server.operator_request(path, "PUT", largest)).status == 200
    conflict = await server.operator_request(path, "PUT", largest)
    expect_error(conflict, 409, "version_conflict")
    too_large = {"state": {"text": "x" * 4096}}
    expect_error(await server.operator_request(path, "PUT", too_large), 413, "too_large")
    states: tuple[object, ...] = ([], "text", None, 1)
    for state in states:
        response = await server.operator_request(path, "PUT", {"state": state})
        expect_error(response, 400, "invalid_field")


async def test_latest_readings_of_a_group(server: DevicesServer, key: str) -> None:
    group, boards = await new_members(server, key, 3)
    for board in boards[:2]:
        await server.store_readings(board, board.readings(3), key)
    page = await server.get_json(f"/fleet/latest?group={group}&limit=2")
    rest = await server.get_json(f"/fleet/latest?group={group}&cursor={page['next_cursor']}")
    found = {item["hardware_id"]: item["reading"] for item in page["items"] + rest["items"]}
    times = [FIRST_MS + 2 * MINUTE_MS] * 2
    assert [found[board.hardware_id]["timestamp_ms"] for board in boards[:2]] == times
    assert found[boards[2].hardware_id] is None
    everything = await server.get_json("/fleet/latest?limit=1")
    assert len(everything["items"]) == 1


@pytest.mark.parametrize("days", [1, 20])
async def test_series_of_a_group_are_aligned(server: DevicesServer, key: str, days: int) -> None:
    """Each entry equals the one of the board's own chart, or is null."""
    group, boards = await new_members(server, key, 3)
    for number, board in enumerate(boards[:2]):
        readings = [
            board.reading(minute, sensors={"humidity_pct": 40 + number + minute % 7})
            for minute in range(number * 100, 1_500, 97)
        ]
        await server.store_readings(board, readings, key)
    span = f"sensor=humidity_pct&from={FIRST_MS}&to={FIRST_MS + days * DAY_MS}&points=50"
    found = await server.get_json(f"/fleet/series?group={group}&{span}")
    assert found["sensor_info"]["unit"] == "%"
    for entry in found["boards"]:
        own = await server.get_json(f"/devices/{entry['hardware_id']}/series?{span}")
        assert found["interval_ms"] == own["interval_ms"]
        buckets = {bucket["from_ms"]: bucket for bucket in own["buckets"]}
        assert buckets.keys() <= set(found["from_ms"])
        for index, start in enumerate(found["from_ms"]):
            bucket: Json = buckets.get(start, {"count": 0})
            assert entry["counts"][index] == bucket["count"]
            assert entry["means"][index] == bucket.get("mean")
            assert entry["minima"][index] == bucket.get("min")
            assert entry["maxima"][index] == bucket.get("max")
    unknown = await server.operator_request(f"/fleet/series?group={new_group()}&{span}")
    expect_error(unknown, 404, "group_not_found")


async def test_a_series_of_a_group_reads_a_limited_number_of_readings(
    server: DevicesServer, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readings without the sensor count, too."""
    monkeypatch.setattr(fleet_queries, "MAX_SERIES_READINGS", 100)
    group, boards = await new_members(server, key, 3)
    span = f"sensor=co2_ppm&from={FIRST_MS}&to={FIRST_MS + HOUR_MS - 1}&points=60"
    for board, interval_ms in zip(boards, (MINUTE_MS, MINUTE_MS, HOUR_MS), strict=True):
        await server.store_readings(board, board.readings(45), key)
        found = await server.get_json(f"/fleet/series?group={group}&{span}")
        assert found["interval_ms"] == interval_ms


async def test_the_export_of_a_group_has_all_readings(server: DevicesServer, key: str) -> None:
    group, boards = await new_members(server, key, 3)
    expected: list[str] = []
    for board in boards:
        await server.store_readings(board, board.readings(120), key)
        expected += [reading["batch_id"] for reading in await server.readings(board)]
    response = await server.operator_request(f"/fleet/export?group={group}")
    rows = list(csv.DictReader(io.StringIO(response.body.decode())))
    assert [row["batch_id"] for row in rows] == expected
    few = await server.operator_request(
        f"/fleet/export?group={group}&format=ndjson&from={FIRST_MS}&to={FIRST_MS}"
    )
    assert few.body.count(b"\n") == 3


async def test_metrics_have_the_latest_values(server: DevicesServer, key: str) -> None:
    group, boards = await new_members(server, key, 2)
    path = f"/devices/{boards[0].hardware_id}"
    await server.operator_request(path, "PATCH", {"friendly_name": 'a "quoted" \\ name'})
    for board in boards:
        readings = [board.reading(number, sensors={"humidity_pct": number}) for number in range(3)]
        await server.store_readings(board, readings, key)
    response = await server.operator_request(f"/fleet/metrics?group={group}")
    text = response.body.decode()
    lines = [line for line in text.splitlines() if line.startswith("tally_device_sensor_value")]
    assert lines == [
        f'tally_device_sensor_value{{hardware_id="{board.hardware_id}",name="{name}",'
        f'group="{group}",sensor="humidity_pct",unit="%"}} 2.0'
        for board, name in zip(boards, ('a \\"quoted\\" \\\\ name', "b"), strict=True)
    ]
    assert "tally_fleet_metrics_truncated 0" in text
    promtool = need_program("promtool", "prometheus")
    checked = subprocess.run(  # noqa: ASYNC221  (a short program with a fixed command)
        [promtool, "check", "metrics"], input=response.body, capture_output=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
