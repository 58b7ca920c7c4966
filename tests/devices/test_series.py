"""Chart series: exact for short ranges, sampled with a bounded cost for dense ones."""

from dataclasses import dataclass
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tally.devices.model.records import Reading
from tests.api_response import expect_error
from tests.devices.factories import random_readings, write_readings
from tests.devices.harness import FIRST_MS, Board, DevicesServer, Json

SENSOR = "bme280_temp_c"
STEP_MS = 60_000


@dataclass(frozen=True, slots=True)
class BoardHistory:
    """A board and all its readings."""

    board: Board
    readings: list[Reading]

    def time_range(self) -> tuple[int, int]:
        return self.readings[0].timestamp_ms, self.readings[-1].timestamp_ms


async def create_history(server: DevicesServer, count: int) -> BoardHistory:
    board = Board()
    readings = list(random_readings(board, count, STEP_MS))
    await server.post("/register", board.registration(), key=await server.new_key())
    await write_readings(server.application.engine, readings)
    return BoardHistory(board, readings)


@pytest.fixture(scope="session")
async def short(server: DevicesServer) -> BoardHistory:
    return await create_history(server, 300)


@pytest.fixture
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limits, so that a short history is a dense one."""
    monkeypatch.setattr("tally.devices.service.history.MAX_UNSAMPLED_READINGS", 100)
    monkeypatch.setattr("tally.devices.service.history.MAX_SERIES_READINGS", 200)


async def series(
    server: DevicesServer,
    board: Board,
    time_range: tuple[int, int],
    points: int,
    sensor: str = SENSOR,
) -> Json:
    query = f"sensor={sensor}&from={time_range[0]}&to={time_range[1]}&points={points}"
    found: Json = await server.get_json(f"/devices/{board.hardware_id}/series?{query}")
    assert (found["hardware_id"], found["sensor"]) == (board.hardware_id, sensor)
    assert len(found["buckets"]) <= points
    return found


def expected_buckets(
    readings: list[Reading], time_range: tuple[int, int], points: int
) -> list[Json]:
    """Compute the buckets in the simplest way."""
    first, last = time_range
    width = -(-(last - first + 1) // points)
    buckets: list[Json] = []
    for begin in range(first, last + 1, width):
        end = min(begin + width - 1, last)
        found = [reading.sensors for reading in readings if begin <= reading.timestamp_ms <= end]
        values = [Decimal(sensors[SENSOR]) for sensors in found if SENSOR in sensors]
        if values:
            aggregates = {
                "min": float(min(values)),
                "max": float(max(values)),
                "mean": float(sum(values) / len(values)),
            }
            buckets.append({"from_ms": begin, "to_ms": end, "count": len(values)} | aggregates)
    return buckets


@settings(max_examples=20)
@given(
    first=st.integers(FIRST_MS - 10 * STEP_MS, FIRST_MS + 310 * STEP_MS),
    length=st.integers(0, 400 * STEP_MS),
    points=st.integers(1, 500),
)
async def test_a_series_is_exact(
    server: DevicesServer, short: BoardHistory, first: int, length: int, points: int
) -> None:
    """Every bucket has the right minimum, maximum, mean and count."""
    time_range = (first, first + length)
    found = await series(server, short.board, time_range, points)
    assert not found["sampled"]
    assert found["buckets"] == expected_buckets(short.readings, time_range, points)


@pytest.mark.usefixtures("low_limits")
async def test_a_dense_range_is_exact_if_no_bucket_exceeds_its_limit(
    server: DevicesServer, short: BoardHistory
) -> None:
    """All readings of all buckets are read, so the series is not sampled."""
    first, _ = short.time_range()
    time_range = (first, first + 120 * STEP_MS)
    found = await series(server, short.board, time_range, 20)
    assert not found["sampled"]
    assert found["buckets"] == expected_buckets(short.readings, time_range, 20)


@pytest.mark.usefixtures("low_limits")
async def test_a_very_dense_range_is_sampled(server: DevicesServer, short: BoardHistory) -> None:
    """Each bucket contains its first readings, and the cost stays within the limits."""
    before = (await server.patterns())["One sensor by time range"]["items"]
    found = await series(server, short.board, short.time_range(), 20)
    assert found["sampled"]
    assert (await server.patterns())["One sensor by time range"]["items"] - before <= 100 + 200
    exact = {
        bucket["from_ms"]: bucket
        for bucket in expected_buckets(short.readings, short.time_range(), 20)
    }
    assert len(found["buckets"]) == len(exact) == 20
    for bucket in found["buckets"]:
        complete = exact[bucket["from_ms"]]
        assert 0 < bucket["count"] <= 10 < complete["count"]
        assert (
            complete["min"] <= bucket["min"] <= bucket["mean"] <= bucket["max"] <= complete["max"]
        )


async def test_the_default_is_two_hundred_points(
    server: DevicesServer, short: BoardHistory
) -> None:
    first, last = short.time_range()
    found = await server.get_json(
        f"/devices/{short.board.hardware_id}/series?sensor={SENSOR}&from={first}&to={last}"
    )
    assert found["buckets"] == expected_buckets(short.readings, short.time_range(), 200)


@pytest.mark.parametrize(
    "sensor", ["unknown", "a.b", "%5B0%5D", "rounds%23", "%F0%9F%8C%B1", "sensors", "%27"]
)
async def test_an_unknown_sensor_has_an_empty_series(
    server: DevicesServer, short: BoardHistory, sensor: str
) -> None:
    """With any name."""
    first, last = short.time_range()
    found = await server.get_json(
        f"/devices/{short.board.hardware_id}/series?sensor={sensor}&from={first}&to={last}"
    )
    assert (found["buckets"], found["sampled"]) == ([], False)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("from=0&to=1", "missing_field"),
        ("sensor=x&to=1", "missing_field"),
        ("sensor=x&from=1", "missing_field"),
        ("sensor=&from=0&to=1", "invalid_field"),
        (f"sensor={'x' * 65}&from=0&to=1", "invalid_field"),
        ("sensor=x&from=2&to=1", "invalid_field"),
        ("sensor=x&from=0&to=1&points=0", "invalid_field"),
        ("sensor=x&from=0&to=1&points=501", "invalid_field"),
        ("sensor=x&from=-1&to=1", "invalid_field"),
    ],
)
async def test_an_invalid_series_query_is_rejected(
    server: DevicesServer, short: BoardHistory, query: str, code: str
) -> None:
    expect_error(
        await server.operator_request(f"/devices/{short.board.hardware_id}/series?{query}"),
        400,
        code,
    )


async def test_a_range_is_clipped_to_valid_timestamps(
    server: DevicesServer, short: BoardHistory
) -> None:
    """The last bucket ends with the latest valid timestamp."""
    found = await series(server, short.board, (0, 99_999_999_999_999), 1)
    assert found["buckets"][0]["count"] == sum(
        SENSOR in reading.sensors for reading in short.readings
    )
    assert found["buckets"][0]["to_ms"] == 4_102_444_800_000
