"""Boards whose clocks are wrong: too old, ahead, and what operators see of it."""

from tests.devices.conftest import StoreTarget
from tests.devices.harness import DAY_MS, MINUTE_MS, Board, DevicesServer, open_server

RETENTION_DAYS = 90


async def test_readings_older_than_the_retention_are_rejected(
    server: DevicesServer, key: str
) -> None:
    """Also those of a clock that was never set; younger ones in the same request are stored."""
    board, now = Board(), server.clock.milliseconds()
    oldest = (now // 1000 - RETENTION_DAYS * 86_400 + 1) * 1000
    sent = [
        board.reading(number, timestamp_ms=time)
        for number, time in enumerate((946_684_800_000, oldest - 1, oldest, now))
    ]
    response = await server.post("/data", board.data(*sent), key=key)
    assert response.json["acknowledged_batch_ids"] == [entry["batch_id"] for entry in sent[2:]]
    assert [entry["index"] for entry in response.json["rejected"]] == [0, 1]
    for rejection in response.json["rejected"]:
        assert (rejection["code"], rejection["field"]) == ("too_old", "timestamp_ms")
        assert "90 days" in rejection["why"]
    assert len(await server.readings(board)) == 2


async def test_a_reading_from_a_clock_ahead_is_never_the_latest(
    store_target: StoreTarget,
) -> None:
    """Not even when its time has come."""
    async with open_server(await store_target.new_settings()) as server:
        board, now = Board(), server.clock.milliseconds()
        path = f"/devices/{board.hardware_id}/latest"
        times = [now - MINUTE_MS, now + 2 * DAY_MS, now + 3 * DAY_MS, 4_102_444_799_999]
        sent = [board.reading(number, timestamp_ms=time) for number, time in enumerate(times)]
        await server.store_readings(board, sent)
        for days in (0, 2.5, 10):
            await server.clock.advance(days * 86_400)
            assert (await server.get_json(path))["batch_id"] == sent[0]["batch_id"]
        assert len(await server.readings(board)) == 4
        current = board.reading(9, timestamp_ms=server.clock.milliseconds())
        await server.store_readings(board, [current])
        assert (await server.get_json(path))["batch_id"] == current["batch_id"]


async def test_a_board_with_only_readings_from_a_clock_ahead_has_no_latest_reading(
    server: DevicesServer, key: str
) -> None:
    board, now = Board(), server.clock.milliseconds()
    await server.store_readings(board, [board.reading(timestamp_ms=now + 2 * DAY_MS)], key)
    response = await server.operator_request(f"/devices/{board.hardware_id}/latest")
    assert (response.status, response.json["code"]) == (404, "no_readings")


async def clock_offset(server: DevicesServer, board: Board) -> int | None:
    device = await server.get_json(f"/devices/{board.hardware_id}")
    offset: int | None = device["clock_offset_ms"]
    return offset


async def test_the_device_shows_the_offset_of_its_clock(server: DevicesServer, key: str) -> None:
    """As soon as the clock becomes wrong or right, although activity is recorded rarely."""
    board, now = Board(), server.clock.milliseconds()
    await server.post("/register", board.registration(), key=key)
    assert await clock_offset(server, board) is None
    for number, offset in enumerate((-2_000, 5 * DAY_MS, 6 * DAY_MS, 0)):
        reading = board.reading(number, timestamp_ms=now + offset)
        await server.store_readings(board, [reading], key)
        expected = 5 * DAY_MS if offset == 6 * DAY_MS else offset  # recorded less than 5 min ago
        assert await clock_offset(server, board) == expected


async def test_a_clock_that_was_never_set_shows_although_no_reading_is_stored(
    server: DevicesServer, key: str
) -> None:
    board, start = Board(), 946_684_800_000
    receipt = await server.post("/data", board.data(board.reading(timestamp_ms=start)), key=key)
    assert receipt.json["rejected"][0]["code"] == "too_old"
    assert await clock_offset(server, board) == start - server.clock.milliseconds()
    assert await server.readings(board) == []
