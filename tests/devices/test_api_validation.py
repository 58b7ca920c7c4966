"""Validation of readings, boards and capabilities; errors name the field."""

import uuid
from typing import Any

import msgspec
import pytest

from tests.api_response import expect_error
from tests.devices.harness import START_MS, Board, DevicesServer, Json, new_hardware_id
from tests.devices.test_api_boards import post_data


def changed(**changes: Any) -> Json:
    return changes


VALID_READINGS = {
    "no sensors": changed(sensors={}),
    "no status": changed(sensor_status={}),
    "zero": changed(sensors={"rain": 0, "wind": -0.0}),
    "the largest and smallest": changed(
        sensors={"a": 10**120, "b": -(10**120), "c": 1e-120, "d": -1e-120}
    ),
    "38 digits": changed(sensors={"a": int("9" * 38)}),
    "64 sensors": changed(sensors={f"s{number}": number for number in range(64)}),
    "long names": changed(sensors={"x" * 64: 1}, sensor_status={"y" * 64: "error"}),
    "names with dots": changed(sensors={"bme.temp-c_1": 1}),
    "a long batch id": changed(batch_id="AZaz09_-:." + "x" * 230),
}


@pytest.mark.parametrize("name", VALID_READINGS)
async def test_a_valid_reading_is_stored(server: DevicesServer, key: str, name: str) -> None:
    board = Board()
    reading = board.reading(batch_id=str(uuid.uuid4())) | VALID_READINGS[name]
    if len(reading["batch_id"]) > 200:
        reading["batch_id"] = (reading["batch_id"] + uuid.uuid4().hex)[-256:]
    await server.store_readings(board, [reading], key)
    latest = await server.get_json(f"/devices/{board.hardware_id}/latest")
    # JSON numbers are doubles: 1e+120 equals a one with 120 zeros.
    sent_values, shown_values = reading.pop("sensors"), latest["sensors"]
    assert as_floats(shown_values) == as_floats(sent_values)
    assert {field: latest[field] for field in reading} == reading


def as_floats(sensors: Json) -> dict[str, float]:
    return {sensor: float(value) for sensor, value in sensors.items()}


INVALID_READINGS: dict[str, tuple[str, Json]] = {
    "no batch id": ("batch_id", changed(batch_id="")),
    "a batch id of 257": ("batch_id", changed(batch_id="x" * 257)),
    "a batch id with a space": ("batch_id", changed(batch_id="a b")),
    "a batch id with an umlaut": ("batch_id", changed(batch_id="ä")),
    "a batch id with a separator": ("batch_id", changed(batch_id="a#b")),
    "a batch id with a line end": ("batch_id", changed(batch_id="a\n")),
    "a batch id that is a number": ("batch_id", changed(batch_id=7)),
    "before 2000": ("timestamp_ms", changed(timestamp_ms=946_684_799_999)),
    "in 2100": ("timestamp_ms", changed(timestamp_ms=4_102_444_800_000)),
    "negative time": ("timestamp_ms", changed(timestamp_ms=-1)),
    "seconds": ("timestamp_ms", changed(timestamp_ms=START_MS // 1000)),
    "time past 64 bits": ("timestamp_ms", changed(timestamp_ms=2**64)),
    "time as a float": ("timestamp_ms", changed(timestamp_ms=1.5)),
    "time as text": ("timestamp_ms", changed(timestamp_ms=str(START_MS))),
    "time as a flag": ("timestamp_ms", changed(timestamp_ms=True)),
    "a boot id of version 1": ("boot_id", changed(boot_id="7c9e6679-7425-10de-944b-e07fc1f90ae7")),
    "a boot id of another variant": (
        "boot_id",
        changed(boot_id="7c9e6679-7425-40de-c44b-e07fc1f90ae7"),
    ),
    "a boot id without dashes": ("boot_id", changed(boot_id="7c9e6679742540de944be07fc1f90ae7")),
    "an empty boot id": ("boot_id", changed(boot_id="")),
    "an empty version": ("firmware_version", changed(firmware_version="")),
    "400 digits": ("sensors.a", changed(sensors={"a": int("1" * 400)})),
    "a version of 65": ("firmware_version", changed(firmware_version="1" * 65)),
    "an unprintable version": ("firmware_version", changed(firmware_version="1\x00")),
    "65 sensors": ("sensors", changed(sensors={f"s{number}": 1 for number in range(65)})),
    "65 states": (
        "sensor_status",
        changed(sensor_status={f"s{number}": "ok" for number in range(65)}),
    ),
    "a nameless sensor": ("sensors", changed(sensors={"": 1})),
    "a sensor with a long name": ("sensors", changed(sensors={"x" * 65: 1})),
    "a sensor with a space": ("sensors", changed(sensors={"a b": 1})),
    "a sensor as text": ("sensors.a", changed(sensors={"a": "1"})),
    "a sensor as a flag": ("sensors.a", changed(sensors={"a": True})),
    "a sensor as null": ("sensors.a", changed(sensors={"a": None})),
    "sensors as a list": ("sensors", changed(sensors=[1])),
    "too large a value": ("sensors.a", changed(sensors={"a": 1.1e120})),
    "too small a value": ("sensors.a", changed(sensors={"a": 9e-121})),
    "39 digits": ("sensors.a", changed(sensors={"a": int("9" * 39)})),
    "an unknown status": ("sensor_status", changed(sensor_status={"bme280": "fine"})),
    "a status without a name": ("sensor_status", changed(sensor_status={"": "ok"})),
    "an unknown field": ("colour", changed(colour="green")),
}


@pytest.mark.parametrize("name", INVALID_READINGS)
async def test_an_invalid_reading_is_rejected_with_index_and_field(
    server: DevicesServer, key: str, name: str
) -> None:
    board = Board()
    field, changes = INVALID_READINGS[name]
    receipt = await post_data(server, key, board.data(board.reading(0), board.reading(1) | changes))
    assert receipt["acknowledged_batch_ids"] == [board.reading(0)["batch_id"]]
    [rejected] = receipt["rejected"]
    assert (rejected["index"], rejected["field"]) == (1, field)
    assert rejected["why"].startswith(field)
    assert len(await server.readings(board)) == 1


@pytest.mark.parametrize("field", ["batch_id", "timestamp_ms", "sensors"])
async def test_a_missing_field_is_named(server: DevicesServer, key: str, field: str) -> None:
    board = Board()
    incomplete = {name: value for name, value in board.reading().items() if name != field}
    receipt = await post_data(server, key, board.data(incomplete))
    assert receipt["rejected"] == [
        {"index": 0, "field": field, "why": f"{field} is missing", "code": "missing_field"}
    ]


INVALID_IDENTITIES: dict[str, Json] = {
    "hardware_id": changed(hardware_id="aa:bb:cc:dd:ee:ff"),
    "boot_id": changed(boot_id="7c9e6679-7425-10de-944b-e07fc1f90ae7"),
    "firmware_version": changed(firmware_version=""),
}


@pytest.mark.parametrize("route", ["/register", "/data"])
@pytest.mark.parametrize("field", INVALID_IDENTITIES)
async def test_an_invalid_board_identity_is_rejected(
    server: DevicesServer, key: str, route: str, field: str
) -> None:
    board = Board()
    content = board.registration() if route == "/register" else board.data(board.reading())
    expect_error(
        await server.post(route, content | INVALID_IDENTITIES[field], key=key),
        400,
        "invalid_field",
        field,
    )
    expect_error(
        await server.post(route, content | {field: 7}, key=key), 400, "invalid_field", field
    )
    missing = {name: value for name, value in content.items() if name != field}
    expect_error(await server.post(route, missing, key=key), 400, "missing_field", field)
    expect_error(
        await server.operator_request(f"/devices/{board.hardware_id}"), 404, "device_not_found"
    )


@pytest.mark.parametrize(
    "hardware_id",
    [
        "AA:BB:CC:DD:EE",
        "AA:BB:CC:DD:EE:FF:00",
        "AA-BB-CC-DD-EE-FF",
        "AA:BB:CC:DD:EE:GG",
        "AA:BB:CC:DD:EE:FF\n",
        "",
    ],
)
async def test_a_hardware_id_is_an_upper_case_mac_address(
    server: DevicesServer, key: str, hardware_id: str
) -> None:
    expect_error(
        await server.post("/register", Board(hardware_id).registration(), key=key),
        400,
        "invalid_field",
        "hardware_id",
    )


async def test_a_reading_that_is_not_utf_8_is_rejected_and_the_others_are_stored(
    server: DevicesServer, key: str
) -> None:
    """A board with a damaged batch id would otherwise repeat its upload for ever."""
    board = Board()
    damaged, intact = board.reading(batch_id="damaged"), board.reading()
    body = msgspec.json.encode(board.data(damaged, intact)).replace(b"damaged", b"\xff")
    headers = {"X-API-Key": key, "Content-Type": "application/json"}
    response = await server.send("POST", "/data", body, headers)
    assert response.status == 200, response
    assert response.json["acknowledged_batch_ids"] == [intact["batch_id"]]
    (rejected,) = response.json["rejected"]
    assert (rejected["index"], "batch_id" in rejected) == (0, False)
    assert rejected["code"] == "malformed_json"


INVALID_CAPABILITIES: dict[str, tuple[Any, str]] = {
    "none": (None, "capabilities"),
    "a list": ([], "capabilities"),
    "sensors as text": ({"sensors": "bme280"}, "capabilities.sensors"),
    "a nameless sensor": ({"sensors": [""]}, "capabilities.sensors"),
    "a strange sensor": ({"sensors": ["b m e"]}, "capabilities.sensors"),
    "65 sensors": ({"sensors": ["x"] * 65}, "capabilities"),
    "a feature that is no flag": ({"features": {"tft": 1}}, "capabilities.features"),
    "a strange feature": ({"features": {"t f t": True}}, "capabilities.features"),
    "an unknown part": ({"colours": []}, "capabilities.colours"),
}


@pytest.mark.parametrize("name", INVALID_CAPABILITIES)
async def test_invalid_capabilities_are_rejected(
    server: DevicesServer, key: str, name: str
) -> None:
    capabilities, field = INVALID_CAPABILITIES[name]
    response = await server.post(
        "/register", Board().registration(capabilities=capabilities), key=key
    )
    code = "unknown_field" if name == "an unknown part" else "invalid_field"
    expect_error(response, 400, code, field)


async def test_a_registration_requires_capabilities(server: DevicesServer, key: str) -> None:
    content = Board().registration()
    del content["capabilities"]
    expect_error(
        await server.post("/register", content, key=key), 400, "missing_field", "capabilities"
    )


async def test_unknown_fields_are_rejected_by_name(server: DevicesServer, key: str) -> None:
    board = Board(new_hardware_id())
    expect_error(
        await server.post("/register", board.registration(color=1), key=key),
        400,
        "unknown_field",
        "color",
    )
    expect_error(
        await server.post("/data", board.data(board.reading(), color=1), key=key),
        400,
        "unknown_field",
        "color",
    )
