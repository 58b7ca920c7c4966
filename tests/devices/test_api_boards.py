"""The API for boards: registration, and ingestion of each reading exactly once."""

import gzip
import uuid

import msgspec
import pytest

from tests.api_response import expect_error
from tests.devices.harness import DAY_MS, FIRST_MS, Board, DevicesServer, Json, gather


async def post_data(server: DevicesServer, key: str, content: Json) -> Json:
    """Post data as a board; return the receipt."""
    response = await server.post("/data", content, key=key)
    assert response.status == 200, response
    receipt: Json = response.json
    assert set(receipt) == {"acknowledged_batch_ids", "duplicate_batch_ids", "rejected"}
    return receipt


async def test_a_board_keeps_its_confirmation_id(server: DevicesServer, key: str) -> None:
    """The next registration updates everything else."""
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


async def test_of_concurrent_registrations_one_is_new(server: DevicesServer, key: str) -> None:
    """All get the same confirmation id."""
    board = Board()
    responses = await gather(
        *(server.post("/register", board.registration(), key=key) for _ in range(8))
    )
    assert (
        sorted(response.json["status"] for response in responses)
        == ["registered"] + ["updated"] * 7
    )
    assert len({response.json["confirmation_id"] for response in responses}) == 1


async def test_readings_are_acknowledged_once_and_then_duplicates(
    server: DevicesServer, key: str
) -> None:
    board = Board()
    readings = board.readings(5)
    ids = [reading["batch_id"] for reading in readings]
    first = await post_data(server, key, board.data(*readings))
    assert first == {"acknowledged_batch_ids": ids, "duplicate_batch_ids": [], "rejected": []}
    again = await post_data(server, key, board.data(*readings[::-1], board.reading(9)))
    assert again["duplicate_batch_ids"] == ids[::-1]
    assert again["acknowledged_batch_ids"] == [board.reading(9)["batch_id"]]
    assert [reading["batch_id"] for reading in await server.readings(board)] == [
        *ids,
        board.reading(9)["batch_id"],
    ]


async def test_readings_are_returned_as_sent(server: DevicesServer, key: str) -> None:
    """With the friendly name at the time of arrival."""
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
        "a reading of an earlier boot must not change the boot id"
    )


async def test_an_invalid_reading_does_not_affect_valid_ones(
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
    receipt = await post_data(
        server, key, board.data(good[0], bad[0], bad[1], good[1], *bad[2:], good[2])
    )
    assert receipt["acknowledged_batch_ids"] == [reading["batch_id"] for reading in good]
    assert [(rejection["index"], rejection["field"]) for rejection in receipt["rejected"]] == [
        (1, "timestamp_ms"),
        (2, "body"),
        (4, "body"),
        (5, "timestamp_ms"),
        (6, "extra"),
    ]
    assert all(rejection["why"].startswith(rejection["field"]) for rejection in receipt["rejected"])
    assert await server.readings(board) == await server.readings(
        board, f"&to={FIRST_MS + 2 * 60_000}"
    )


async def test_numbers_are_exact_in_any_notation(server: DevicesServer, key: str) -> None:
    """Numbers beyond the precision of a double are rounded to it."""
    sensors = (
        b'{"a": 22.50, "b": 1E2, "c": -0.0, "d": 0.1000000000000000055511151231257827, '
        b'"e": 1.5e-7, "f": 123456789012.5}'
    )
    board = Board()
    for number in range(2):  # parsed, then cached
        await server.store_readings(
            board, [board.reading(number, sensors=msgspec.Raw(sensors))], key
        )
    expected = {"a": 22.5, "b": 100, "c": 0, "d": 0.1, "e": 1.5e-7, "f": 123456789012.5}
    assert [reading["sensors"] for reading in await server.readings(board)] == [expected] * 2


NUMBER_RULE = "must be 0 or a number from 1E-120 to 1E+120 with at most 38 digits"


async def test_a_request_with_only_invalid_readings_stores_nothing(
    server: DevicesServer, key: str
) -> None:
    board = Board()
    receipt = await post_data(
        server, key, board.data(board.reading(sensors={"bme280_temp_c": "warm"}))
    )
    assert receipt == {
        "acknowledged_batch_ids": [],
        "duplicate_batch_ids": [],
        "rejected": [
            {
                "index": 0,
                "field": "sensors.bme280_temp_c",
                "why": f"sensors.bme280_temp_c {NUMBER_RULE}",
                "code": "invalid_field",
            }
        ],
    }
    expect_error(
        await server.operator_request(f"/devices/{board.hardware_id}"), 404, "device_not_found"
    )


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
async def test_a_repeated_batch_id_is_reported_once(
    server: DevicesServer, key: str, order: tuple[int, ...]
) -> None:
    """One valid copy is acknowledged, even if the other copies are invalid."""
    board = Board()
    good = board.reading(0)
    copies = [good, good | {"timestamp_ms": 1}, {"batch_id": good["batch_id"]}]
    receipt = await post_data(server, key, board.data(*(copies[position] for position in order)))
    assert receipt == {
        "acknowledged_batch_ids": [good["batch_id"]],
        "duplicate_batch_ids": [],
        "rejected": [],
    }
    again = await post_data(server, key, board.data(*(copies[position] for position in order)))
    assert again == {
        "acknowledged_batch_ids": [],
        "duplicate_batch_ids": [good["batch_id"]],
        "rejected": [],
    }


async def test_the_limit_is_a_hundred_readings(server: DevicesServer, key: str) -> None:
    board = Board()
    too_many = await server.post("/data", board.data(*board.readings(101)), key=key)
    expect_error(too_many, 400, "batch_size_exceeded", "100", "101")
    expect_error(
        await server.post("/data", board.data(*["?"] * 101), key=key), 400, "batch_size_exceeded"
    )
    expect_error(
        await server.post("/data", board.data(), key=key), 400, "invalid_field", "at least 1"
    )
    await server.store_readings(board, board.readings(100), key)
    assert len(await server.readings(board)) == 100


async def test_an_unregistered_board_can_post_data(server: DevicesServer, key: str) -> None:
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
    assert registered["status"] == "registered"
    again = (await server.post("/register", board.registration(), key=key)).json
    assert again["status"] == "updated"


async def test_readings_from_the_future_are_flagged(server: DevicesServer, key: str) -> None:
    """If they are more than a day ahead of the server's clock."""
    board = Board()
    now = server.clock.milliseconds()
    times = [now - DAY_MS, now + DAY_MS, now + DAY_MS + 1, 4_102_444_799_999]
    await server.store_readings(board, [board.reading(timestamp_ms=time) for time in times], key)
    flags = {
        reading["timestamp_ms"]: reading["clock_ahead"] for reading in await server.readings(board)
    }
    assert flags == dict(zip(times, [False, False, True, True], strict=True))


async def test_gzip_bodies_are_decompressed(server: DevicesServer, key: str) -> None:
    board = Board()
    headers = {"X-API-Key": key, "Content-Type": "application/json", "Content-Encoding": "gzip"}
    registered = await server.send(
        "POST", "/register", gzip.compress(msgspec.json.encode(board.registration())), headers
    )
    assert registered.status == 200
    body = gzip.compress(msgspec.json.encode(board.data(*board.readings(100))))
    response = await server.send("POST", "/data", body, headers)
    assert len(response.json["acknowledged_batch_ids"]) == 100


async def test_concurrent_requests_with_the_same_readings_store_them_once(
    server: DevicesServer, key: str
) -> None:
    board = Board()
    readings = board.readings(20)
    receipts = await gather(
        *(
            post_data(server, key, board.data(*readings[shift:], *readings[:shift]))
            for shift in range(6)
        )
    )
    acknowledged = [
        batch_id for receipt in receipts for batch_id in receipt["acknowledged_batch_ids"]
    ]
    assert sorted(acknowledged) == sorted(reading["batch_id"] for reading in readings)
    for receipt in receipts:
        both = receipt["acknowledged_batch_ids"] + receipt["duplicate_batch_ids"]
        assert sorted(both) == sorted(reading["batch_id"] for reading in readings)
    assert len(await server.readings(board)) == 20


async def test_boot_ids_are_case_insensitive(server: DevicesServer, key: str) -> None:
    board = Board(boot_id=str(uuid.uuid4()).upper())
    await server.store_readings(board, board.readings(1), key)
    assert (await server.get_json(f"/devices/{board.hardware_id}"))[
        "last_boot_id"
    ] == board.boot_id.lower()
    assert (await server.readings(board))[0]["boot_id"] == board.boot_id.lower()


async def test_health_requires_no_credentials(server: DevicesServer) -> None:
    response = await server.send("GET", "/health")
    assert (response.status, response.json) == (200, {"status": "ok"})
