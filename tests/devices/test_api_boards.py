"""The data plane: boards register and send, and every reading is stored once, whatever stands beside it."""

import gzip
import uuid

import msgspec
import pytest

from tests.devices.harness import DAY_MS, FIRST_MS, Board, DevicesServer, Json, assert_error, gather


async def sent(server: DevicesServer, key: str, content: Json) -> Json:
    """The receipt for a request of a board."""
    answer = await server.post("/data", content, key=key)
    assert answer.status == 200, answer
    receipt: Json = answer.json
    assert set(receipt) == {"acknowledged_batch_ids", "duplicate_batch_ids", "rejected"}
    return receipt


async def test_a_board_is_confirmed_and_keeps_its_confirmation(
    server: DevicesServer, key: str
) -> None:
    """At the next boot it is known, and what it says of itself is taken."""
    board = Board()
    first = (await server.post("/register", board.registration(), key=key)).json
    assert first["status"] == "registered"
    assert uuid.UUID(first["confirmation_id"]).version == 4
    await server.clock.advance(60)
    rebooted = Board(board.hardware_id, firmware_version="2.0.0")
    again = (
        await server.post(
            "/register", rebooted.registration(capabilities={"sensors": ["ds18b20"]}), key=key
        )
    ).json
    assert again["status"] == "updated"
    assert again["confirmation_id"] == first["confirmation_id"]
    assert again["first_registered_at"] == first["first_registered_at"] < again["last_seen_at"]
    device = await server.get_json(f"/devices/{board.hardware_id}")
    assert (device["last_boot_id"], device["firmware_version"]) == (rebooted.boot_id, "2.0.0")
    assert device["capabilities"] == {"sensors": ["ds18b20"], "features": {}}


async def test_of_many_first_registrations_at_once_one_is_the_first(
    server: DevicesServer, key: str
) -> None:
    """And all of them are told the same confirmation id, whichever it is."""
    board = Board()
    answers = await gather(
        *(server.post("/register", board.registration(), key=key) for _ in range(8))
    )
    assert sorted(answer.json["status"] for answer in answers) == ["registered"] + ["updated"] * 7
    assert len({answer.json["confirmation_id"] for answer in answers}) == 1


async def test_readings_are_acknowledged_once_and_then_duplicates(
    server: DevicesServer, key: str
) -> None:
    board = Board()
    readings = board.readings(5)
    ids = [reading["batch_id"] for reading in readings]
    first = await sent(server, key, board.data(*readings))
    assert first == {"acknowledged_batch_ids": ids, "duplicate_batch_ids": [], "rejected": []}
    again = await sent(server, key, board.data(*readings[::-1], board.reading(9)))
    assert again["duplicate_batch_ids"] == ids[::-1]
    assert again["acknowledged_batch_ids"] == [board.reading(9)["batch_id"]]
    assert [each["batch_id"] for each in await server.readings(board)] == [
        *ids,
        board.reading(9)["batch_id"],
    ]


async def test_what_was_sent_is_what_is_shown(server: DevicesServer, key: str) -> None:
    """With the name that the device had when the reading arrived."""
    board = Board()
    await server.post("/register", board.registration(), key=key)
    await server.operator_request(
        f"/devices/{board.hardware_id}", "PATCH", {"friendly_name": "greenhouse"}
    )
    older = str(uuid.uuid4())
    sensors = {
        "bme280_temp_c": 22.5,
        "rounds": 12,
        "pressure_hpa": 1013.25,
        "below": -0.1,
        "tiny": 1e-100,
        "huge": 2**70,
    }
    status = {"bme280": "error", "ds18b20": "ok"}
    reading = board.reading(
        sensors=sensors, sensor_status=status, boot_id=older, firmware_version="0.9"
    )
    await server.store_readings(board, [reading], key)
    assert await server.get_json(f"/devices/{board.hardware_id}/latest") == {
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
    device = await server.get_json(f"/devices/{board.hardware_id}")
    assert device["last_boot_id"] == board.boot_id, (
        "a reading from before the boot says nothing about the boot"
    )


async def test_a_bad_reading_never_loses_the_good_ones_beside_it(
    server: DevicesServer, key: str
) -> None:
    board = Board()
    good = board.readings(3)
    bad = [
        board.reading(10, timestamp_ms=1),
        "no reading",
        None,
        {"batch_id": "b"},
        board.reading(11, extra=1),
    ]
    receipt = await sent(
        server, key, board.data(good[0], bad[0], bad[1], good[1], *bad[2:], good[2])
    )
    assert receipt["acknowledged_batch_ids"] == [reading["batch_id"] for reading in good]
    assert [(each["index"], each["field"]) for each in receipt["rejected"]] == [
        (1, "timestamp_ms"),
        (2, "body"),
        (4, "body"),
        (5, "timestamp_ms"),
        (6, "extra"),
    ]
    assert all(each["why"].startswith(each["field"]) for each in receipt["rejected"])
    assert await server.readings(board) == await server.readings(
        board, f"&to={FIRST_MS + 2 * 60_000}"
    )


async def test_a_number_is_what_json_says_however_it_is_spelled(
    server: DevicesServer, key: str
) -> None:
    """Of one with more digits than a double has, as many as it has."""
    spelled = b'{"a": 22.50, "b": 1E2, "c": -0.0, "d": 0.1000000000000000055511151231257827, "e": 1.5e-7, "f": 123456789012.5}'
    board = Board()
    for number in range(2):  # read, and remembered
        await server.store_readings(
            board, [board.reading(number, sensors=msgspec.Raw(spelled))], key
        )
    shown = {"a": 22.5, "b": 100, "c": 0, "d": 0.1, "e": 1.5e-7, "f": 123456789012.5}
    assert [each["sensors"] for each in await server.readings(board)] == [shown, shown]


NO_NUMBER = "must be 0 or a number from 1E-120 to 1E+120 with at most 38 digits"


async def test_only_bad_readings_store_nothing(server: DevicesServer, key: str) -> None:
    board = Board()
    receipt = await sent(server, key, board.data(board.reading(sensors={"bme280_temp_c": "warm"})))
    assert receipt == {
        "acknowledged_batch_ids": [],
        "duplicate_batch_ids": [],
        "rejected": [
            {
                "index": 0,
                "field": "sensors.bme280_temp_c",
                "why": f"sensors.bme280_temp_c {NO_NUMBER}",
            }
        ],
    }
    assert_error(
        await server.operator_request(f"/devices/{board.hardware_id}"), 404, "DEVICE_NOT_FOUND"
    )


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
async def test_a_batch_id_that_comes_thrice_in_a_request_comes_back_once(
    server: DevicesServer, key: str, order: tuple[int, ...]
) -> None:
    """Good, broken and malformed: it is acknowledged, and that is all."""
    board = Board()
    good = board.reading(0)
    thrice = [good, good | {"timestamp_ms": 1}, {"batch_id": good["batch_id"]}]
    receipt = await sent(server, key, board.data(*(thrice[new_settings] for new_settings in order)))
    assert receipt == {
        "acknowledged_batch_ids": [good["batch_id"]],
        "duplicate_batch_ids": [],
        "rejected": [],
    }
    again = await sent(server, key, board.data(*(thrice[new_settings] for new_settings in order)))
    assert again == {
        "acknowledged_batch_ids": [],
        "duplicate_batch_ids": [good["batch_id"]],
        "rejected": [],
    }


async def test_a_hundred_readings_are_stored_and_a_hundred_and_one_refused(
    server: DevicesServer, key: str
) -> None:
    board = Board()
    too_many = await server.post("/data", board.data(*board.readings(101)), key=key)
    assert_error(too_many, 400, "BATCH_SIZE_EXCEEDED", "100", "101")
    assert_error(
        await server.post("/data", board.data(*["?"] * 101), key=key), 400, "BATCH_SIZE_EXCEEDED"
    )
    assert_error(
        await server.post("/data", board.data(), key=key), 400, "INVALID_FORMAT", "at least 1"
    )
    await server.store_readings(board, board.readings(100), key)
    assert len(await server.readings(board)) == 100


async def test_a_board_that_never_registered_is_heard_and_can_be_found(
    server: DevicesServer, key: str
) -> None:
    board = Board()
    await server.store_readings(board, board.readings(1), key)
    device = await server.get_json(f"/devices/{board.hardware_id}")
    assert device["capabilities"] == {"sensors": [], "features": {}}
    assert (device["last_boot_id"], device["firmware_version"]) == (
        board.boot_id,
        board.firmware_version,
    )
    assert device["first_registered_at"] == device["last_seen_at"]
    registered = (await server.post("/register", board.registration(), key=key)).json
    assert registered["confirmation_id"] == device["confirmation_id"]


async def test_a_reading_from_the_future_is_stored_and_flagged(
    server: DevicesServer, key: str
) -> None:
    """More than a day ahead of our clock; up to a day, a board may be wrong in silence."""
    board = Board()
    now = server.clock.milliseconds()
    times = [now - DAY_MS, now + DAY_MS, now + DAY_MS + 1, 4_102_444_799_999]
    await server.store_readings(board, [board.reading(timestamp_ms=at) for at in times], key)
    flags = {each["timestamp_ms"]: each["clock_ahead"] for each in await server.readings(board)}
    assert flags == dict(zip(times, [False, False, True, True], strict=True))


async def test_gzip_bodies_are_read(server: DevicesServer, key: str) -> None:
    board = Board()
    headers = {"X-API-Key": key, "Content-Type": "application/json", "Content-Encoding": "gzip"}
    registered = await server.send(
        "POST", "/register", gzip.compress(msgspec.json.encode(board.registration())), headers
    )
    assert registered.status == 200
    body = gzip.compress(msgspec.json.encode(board.data(*board.readings(100))))
    answer = await server.send("POST", "/data", body, headers)
    assert len(answer.json["acknowledged_batch_ids"]) == 100


async def test_the_same_readings_in_many_requests_at_once_are_stored_once(
    server: DevicesServer, key: str
) -> None:
    board = Board()
    readings = board.readings(20)
    receipts = await gather(
        *(sent(server, key, board.data(*readings[shift:], *readings[:shift])) for shift in range(6))
    )
    acknowledged = [
        batch_id for receipt in receipts for batch_id in receipt["acknowledged_batch_ids"]
    ]
    assert sorted(acknowledged) == sorted(reading["batch_id"] for reading in readings)
    for receipt in receipts:
        both = receipt["acknowledged_batch_ids"] + receipt["duplicate_batch_ids"]
        assert sorted(both) == sorted(reading["batch_id"] for reading in readings)
    assert len(await server.readings(board)) == 20


async def test_ids_in_capitals_are_the_same_boot(server: DevicesServer, key: str) -> None:
    board = Board(boot_id=str(uuid.uuid4()).upper())
    await server.store_readings(board, board.readings(1), key)
    assert (await server.get_json(f"/devices/{board.hardware_id}"))[
        "last_boot_id"
    ] == board.boot_id.lower()
    assert (await server.readings(board))[0]["boot_id"] == board.boot_id.lower()


async def test_anybody_may_ask_for_the_health(server: DevicesServer) -> None:
    answer = await server.send("GET", "/health")
    assert (answer.status, answer.json) == (200, {"status": "ok"})
