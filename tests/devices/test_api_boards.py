"""The data plane: boards register and send, and every reading is stored once, whatever stands beside it."""

import gzip
import uuid
from typing import Any

import msgspec
import pytest

from tests.devices.site import DAY_MS, FIRST_MS, START_MS, Board, Json, Site, new_hardware_id, refused, together


async def sent(site: Site, key: str, content: Json) -> Json:
    """The receipt for a request of a board."""
    answer = await site.post("/data", content, key=key)
    assert answer.status == 200, answer
    receipt: Json = answer.json
    assert set(receipt) == {"acknowledged_batch_ids", "duplicate_batch_ids", "rejected"}
    return receipt


async def test_a_board_is_confirmed_and_keeps_its_confirmation(site: Site, key: str) -> None:
    """At the next boot it is known, and what it says of itself is taken."""
    board = Board()
    first = (await site.post("/register", board.registration(), key=key)).json
    assert first["status"] == "registered"
    assert uuid.UUID(first["confirmation_id"]).version == 4
    await site.clock.advance(60)
    rebooted = Board(board.hardware_id, firmware_version="2.0.0")
    again = (await site.post("/register", rebooted.registration(capabilities={"sensors": ["ds18b20"]}), key=key)).json
    assert again["status"] == "updated"
    assert again["confirmation_id"] == first["confirmation_id"]
    assert again["first_registered_at"] == first["first_registered_at"] < again["last_seen_at"]
    device = await site.found(f"/devices/{board.hardware_id}")
    assert (device["last_boot_id"], device["firmware_version"]) == (rebooted.boot_id, "2.0.0")
    assert device["capabilities"] == {"sensors": ["ds18b20"], "features": {}}


async def test_of_many_first_registrations_at_once_one_is_the_first(site: Site, key: str) -> None:
    """And all of them are told the same confirmation id, whichever it is."""
    board = Board()
    answers = await together(*(site.post("/register", board.registration(), key=key) for _ in range(8)))
    assert sorted(answer.json["status"] for answer in answers) == ["registered"] + ["updated"] * 7
    assert len({answer.json["confirmation_id"] for answer in answers}) == 1


async def test_readings_are_acknowledged_once_and_then_duplicates(site: Site, key: str) -> None:
    board = Board()
    readings = board.readings(5)
    ids = [reading["batch_id"] for reading in readings]
    first = await sent(site, key, board.data(*readings))
    assert first == {"acknowledged_batch_ids": ids, "duplicate_batch_ids": [], "rejected": []}
    again = await sent(site, key, board.data(*readings[::-1], board.reading(9)))
    assert again["duplicate_batch_ids"] == ids[::-1]
    assert again["acknowledged_batch_ids"] == [board.reading(9)["batch_id"]]
    assert [each["batch_id"] for each in await site.readings(board)] == [*ids, board.reading(9)["batch_id"]]


async def test_what_was_sent_is_what_is_shown(site: Site, key: str) -> None:
    """With the name that the device had when the reading arrived."""
    board = Board()
    await site.post("/register", board.registration(), key=key)
    await site.ask(f"/devices/{board.hardware_id}", "PATCH", {"friendly_name": "greenhouse"})
    older = str(uuid.uuid4())
    sensors = {"bme280_temp_c": 22.5, "rounds": 12, "pressure_hpa": 1013.25, "below": -0.1, "tiny": 1e-100, "huge": 2**70}
    status = {"bme280": "error", "ds18b20": "ok"}
    reading = board.reading(sensors=sensors, sensor_status=status, boot_id=older, firmware_version="0.9")
    await site.store(board, [reading], key)
    assert await site.found(f"/devices/{board.hardware_id}/latest") == {
        "hardware_id": board.hardware_id,
        "batch_id": reading["batch_id"],
        "timestamp_ms": reading["timestamp_ms"],
        "boot_id": older,
        "firmware_version": "0.9",
        "friendly_name": "greenhouse",
        "sensors": sensors,
        "sensor_status": status,
        "clock_ahead": False,
    }
    device = await site.found(f"/devices/{board.hardware_id}")
    assert device["last_boot_id"] == board.boot_id, "a reading from before the boot says nothing about the boot"


async def test_a_bad_reading_never_loses_the_good_ones_beside_it(site: Site, key: str) -> None:
    board = Board()
    good = board.readings(3)
    bad = [board.reading(10, timestamp_ms=1), "no reading", None, {"batch_id": "b"}, board.reading(11, extra=1)]
    receipt = await sent(site, key, board.data(good[0], bad[0], bad[1], good[1], *bad[2:], good[2]))
    assert receipt["acknowledged_batch_ids"] == [reading["batch_id"] for reading in good]
    assert [(each["index"], each["field"]) for each in receipt["rejected"]] == [
        (1, "timestamp_ms"),
        (2, "body"),
        (4, "body"),
        (5, "timestamp_ms"),
        (6, "extra"),
    ]
    assert all(each["why"].startswith(each["field"]) for each in receipt["rejected"])
    assert await site.readings(board) == await site.readings(board, f"&to={FIRST_MS + 2 * 60_000}")


async def test_only_bad_readings_store_nothing(site: Site, key: str) -> None:
    board = Board()
    receipt = await sent(site, key, board.data(board.reading(sensors={"bme280_temp_c": "warm"})))
    assert receipt == {
        "acknowledged_batch_ids": [],
        "duplicate_batch_ids": [],
        "rejected": [{"index": 0, "field": "sensors[...]", "why": "sensors[...]: Expected `int | float`, got `str`"}],
    }
    refused(await site.ask(f"/devices/{board.hardware_id}"), 404, "DEVICE_NOT_FOUND")


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
async def test_a_batch_id_that_comes_thrice_in_a_request_comes_back_once(site: Site, key: str, order: tuple[int, ...]) -> None:
    """Good, broken and malformed: it is acknowledged, and that is all."""
    board = Board()
    good = board.reading(0)
    thrice = [good, good | {"timestamp_ms": 1}, {"batch_id": good["batch_id"]}]
    receipt = await sent(site, key, board.data(*(thrice[place] for place in order)))
    assert receipt == {"acknowledged_batch_ids": [good["batch_id"]], "duplicate_batch_ids": [], "rejected": []}
    again = await sent(site, key, board.data(*(thrice[place] for place in order)))
    assert again == {"acknowledged_batch_ids": [], "duplicate_batch_ids": [good["batch_id"]], "rejected": []}


async def test_a_hundred_readings_are_stored_and_a_hundred_and_one_refused(site: Site, key: str) -> None:
    board = Board()
    too_many = await site.post("/data", board.data(*board.readings(101)), key=key)
    refused(too_many, 400, "BATCH_SIZE_EXCEEDED", "100", "101")
    refused(await site.post("/data", board.data(*["?"] * 101), key=key), 400, "BATCH_SIZE_EXCEEDED")
    refused(await site.post("/data", board.data(), key=key), 400, "INVALID_FORMAT", "at least one")
    await site.store(board, board.readings(100), key)
    assert len(await site.readings(board)) == 100


async def test_a_board_that_never_registered_is_heard_and_can_be_found(site: Site, key: str) -> None:
    board = Board()
    await site.store(board, board.readings(1), key)
    device = await site.found(f"/devices/{board.hardware_id}")
    assert device["capabilities"] == {"sensors": [], "features": {}}
    assert (device["last_boot_id"], device["firmware_version"]) == (board.boot_id, board.firmware_version)
    assert device["first_registered_at"] == device["last_seen_at"]
    registered = (await site.post("/register", board.registration(), key=key)).json
    assert registered["confirmation_id"] == device["confirmation_id"]


async def test_a_reading_from_the_future_is_stored_and_flagged(site: Site, key: str) -> None:
    """More than a day ahead of our clock; up to a day, a board may be wrong in silence."""
    board = Board()
    now = site.clock.milliseconds()
    times = [now - DAY_MS, now + DAY_MS, now + DAY_MS + 1, 4_102_444_799_999]
    await site.store(board, [board.reading(timestamp_ms=at) for at in times], key)
    flags = {each["timestamp_ms"]: each["clock_ahead"] for each in await site.readings(board)}
    assert flags == dict(zip(times, [False, False, True, True], strict=True))


async def test_gzip_bodies_are_read(site: Site, key: str) -> None:
    board = Board()
    headers = {"X-API-Key": key, "Content-Type": "application/json", "Content-Encoding": "gzip"}
    registered = await site.send("POST", "/register", gzip.compress(msgspec.json.encode(board.registration())), headers)
    assert registered.status == 200
    body = gzip.compress(msgspec.json.encode(board.data(*board.readings(100))))
    answer = await site.send("POST", "/data", body, headers)
    assert len(answer.json["acknowledged_batch_ids"]) == 100


async def test_the_same_readings_in_many_requests_at_once_are_stored_once(site: Site, key: str) -> None:
    board = Board()
    readings = board.readings(20)
    receipts = await together(*(sent(site, key, board.data(*readings[shift:], *readings[:shift])) for shift in range(6)))
    acknowledged = [batch_id for receipt in receipts for batch_id in receipt["acknowledged_batch_ids"]]
    assert sorted(acknowledged) == sorted(reading["batch_id"] for reading in readings)
    for receipt in receipts:
        both = receipt["acknowledged_batch_ids"] + receipt["duplicate_batch_ids"]
        assert sorted(both) == sorted(reading["batch_id"] for reading in readings)
    assert len(await site.readings(board)) == 20


async def test_ids_in_capitals_are_the_same_boot(site: Site, key: str) -> None:
    board = Board(boot_id=str(uuid.uuid4()).upper())
    await site.store(board, board.readings(1), key)
    assert (await site.found(f"/devices/{board.hardware_id}"))["last_boot_id"] == board.boot_id.lower()
    assert (await site.readings(board))[0]["boot_id"] == board.boot_id.lower()


async def test_anybody_may_ask_for_the_health(site: Site) -> None:
    answer = await site.send("GET", "/health")
    assert (answer.status, answer.json) == (200, {"status": "ok"})


def changed(**changes: Any) -> Json:
    return changes


GOOD_READINGS = {
    "no sensors": changed(sensors={}),
    "no status": changed(sensor_status={}),
    "zero": changed(sensors={"rain": 0, "wind": -0.0}),
    "the largest": changed(sensors={"a": 10**120, "b": -(10**120), "c": 1e-120, "d": -1e-120}),
    "38 digits": changed(sensors={"a": int("9" * 38)}),
    "64 sensors": changed(sensors={f"s{number}": number for number in range(64)}),
    "long names": changed(sensors={"x" * 64: 1}, sensor_status={"y" * 64: "error"}),
    "names with dots": changed(sensors={"bme.temp-c_1": 1}),
    "a long batch id": changed(batch_id="AZaz09_-:." + "x" * 230),
    "the year 2000": changed(timestamp_ms=946_684_800_000),
    "the end of 2099": changed(timestamp_ms=4_102_444_799_999),
}


@pytest.mark.parametrize("name", GOOD_READINGS)
async def test_what_keeps_the_rules_is_stored(site: Site, key: str, name: str) -> None:
    board = Board()
    reading = board.reading(batch_id=str(uuid.uuid4())) | GOOD_READINGS[name]
    if len(reading["batch_id"]) > 200:
        reading["batch_id"] = (reading["batch_id"] + uuid.uuid4().hex)[-256:]
    await site.store(board, [reading], key)
    latest = await site.found(f"/devices/{board.hardware_id}/latest")
    # JSON's numbers are doubles to most of its readers: 1e+120 is as good as a one with 120 zeros.
    sent_values, shown_values = reading.pop("sensors"), latest["sensors"]
    assert as_floats(shown_values) == as_floats(sent_values)
    assert {field: latest[field] for field in reading} == reading


def as_floats(sensors: Json) -> dict[str, float]:
    return {sensor: float(value) for sensor, value in sensors.items()}


BAD_READINGS: dict[str, tuple[str, Json]] = {
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
    "a boot id of another variant": ("boot_id", changed(boot_id="7c9e6679-7425-40de-c44b-e07fc1f90ae7")),
    "a boot id without dashes": ("boot_id", changed(boot_id="7c9e6679742540de944be07fc1f90ae7")),
    "an endless version": ("firmware_version", changed(firmware_version="1" * 65)),
    "an unprintable version": ("firmware_version", changed(firmware_version="1\x00")),
    "65 sensors": ("sensors", changed(sensors={f"s{number}": 1 for number in range(65)})),
    "65 states": ("sensors", changed(sensor_status={f"s{number}": "ok" for number in range(65)})),
    "a nameless sensor": ("sensors", changed(sensors={"": 1})),
    "a sensor with a long name": ("sensors", changed(sensors={"x" * 65: 1})),
    "a sensor with a space": ("sensors", changed(sensors={"a b": 1})),
    "a sensor as text": ("sensors[...]", changed(sensors={"a": "1"})),
    "a sensor as a flag": ("sensors[...]", changed(sensors={"a": True})),
    "a sensor as null": ("sensors[...]", changed(sensors={"a": None})),
    "sensors as a list": ("sensors", changed(sensors=[1])),
    "too large a value": ("sensors.a", changed(sensors={"a": 1.1e120})),
    "too small a value": ("sensors.a", changed(sensors={"a": 9e-121})),
    "39 digits": ("sensors.a", changed(sensors={"a": int("9" * 39)})),
    "an unknown status": ("sensor_status", changed(sensor_status={"bme280": "fine"})),
    "a status without a name": ("sensor_status", changed(sensor_status={"": "ok"})),
    "an unknown field": ("colour", changed(colour="green")),
}


@pytest.mark.parametrize("name", BAD_READINGS)
async def test_what_breaks_a_rule_is_rejected_with_its_place_and_field(site: Site, key: str, name: str) -> None:
    board = Board()
    field, changes = BAD_READINGS[name]
    receipt = await sent(site, key, board.data(board.reading(0), board.reading(1) | changes))
    assert receipt["acknowledged_batch_ids"] == [board.reading(0)["batch_id"]]
    [rejected] = receipt["rejected"]
    assert (rejected["index"], rejected["field"]) == (1, field)
    assert rejected["why"].startswith(field)
    assert len(await site.readings(board)) == 1


@pytest.mark.parametrize("field", ["batch_id", "timestamp_ms", "sensors"])
async def test_a_reading_without_a_field_is_rejected_by_its_name(site: Site, key: str, field: str) -> None:
    board = Board()
    incomplete = {name: value for name, value in board.reading().items() if name != field}
    receipt = await sent(site, key, board.data(incomplete))
    assert receipt["rejected"] == [{"index": 0, "field": field, "why": f"{field} is missing"}]


BAD_HEADS: dict[str, Json] = {
    "hardware_id": changed(hardware_id="aa:bb:cc:dd:ee:ff"),
    "boot_id": changed(boot_id="7c9e6679-7425-10de-944b-e07fc1f90ae7"),
    "firmware_version": changed(firmware_version=""),
}


@pytest.mark.parametrize("route", ["/register", "/data"])
@pytest.mark.parametrize("field", BAD_HEADS)
async def test_a_board_that_does_not_say_properly_who_it_is_is_refused(site: Site, key: str, route: str, field: str) -> None:
    board = Board()
    content = board.registration() if route == "/register" else board.data(board.reading())
    refused(await site.post(route, content | BAD_HEADS[field], key=key), 400, "INVALID_FORMAT", field)
    refused(await site.post(route, content | {field: 7}, key=key), 400, "INVALID_FORMAT", field)
    missing = {name: value for name, value in content.items() if name != field}
    refused(await site.post(route, missing, key=key), 400, "MISSING_FIELD", field)
    refused(await site.ask(f"/devices/{board.hardware_id}"), 404, "DEVICE_NOT_FOUND")


@pytest.mark.parametrize(
    "hardware_id", ["AA:BB:CC:DD:EE", "AA:BB:CC:DD:EE:FF:00", "AA-BB-CC-DD-EE-FF", "AA:BB:CC:DD:EE:GG", "AA:BB:CC:DD:EE:FF\n", ""]
)
async def test_a_hardware_id_is_a_mac_address_in_capitals(site: Site, key: str, hardware_id: str) -> None:
    refused(await site.post("/register", Board(hardware_id).registration(), key=key), 400, "INVALID_FORMAT", "hardware_id")


BAD_CAPABILITIES: dict[str, tuple[Any, str]] = {
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


@pytest.mark.parametrize("name", BAD_CAPABILITIES)
async def test_capabilities_are_sensors_and_features(site: Site, key: str, name: str) -> None:
    capabilities, field = BAD_CAPABILITIES[name]
    answer = await site.post("/register", Board().registration(capabilities=capabilities), key=key)
    refused(answer, 400, "INVALID_FORMAT", field)


async def test_a_registration_says_what_the_board_can_do(site: Site, key: str) -> None:
    content = Board().registration()
    del content["capabilities"]
    refused(await site.post("/register", content, key=key), 400, "MISSING_FIELD", "capabilities")


async def test_unknown_fields_are_named(site: Site, key: str) -> None:
    board = Board(new_hardware_id())
    refused(await site.post("/register", board.registration(color=1), key=key), 400, "INVALID_FORMAT", "color")
    refused(await site.post("/data", board.data(board.reading(), color=1), key=key), 400, "INVALID_FORMAT", "color")
