"""A chart of one sensor: exact where all can be read, bounded and called sampled where it cannot."""

from dataclasses import dataclass
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tally.devices.model.records import Reading
from tests.devices.factories import random_readings, write_readings
from tests.devices.harness import FIRST_MS, Board, DevicesServer, Json, assert_error

SENSOR = "bme280_temp_c"
STEP_MS = 60_000


@dataclass(frozen=True, slots=True)
class ReadingHistory:
    """A board and all that it measured."""

    board: Board
    readings: list[Reading]

    def span(self) -> tuple[int, int]:
        return self.readings[0].timestamp_ms, self.readings[-1].timestamp_ms


async def history(server: DevicesServer, count: int) -> ReadingHistory:
    board = Board()
    readings = list(random_readings(board, count, STEP_MS))
    await server.post("/register", board.registration(), key=await server.new_key())
    await write_readings(server.application.store.engine, readings)
    return ReadingHistory(board, readings)


@pytest.fixture(scope="session")
async def short(server: DevicesServer) -> ReadingHistory:
    return await history(server, 300)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the usual bounds: what is short is then a long history."""
    monkeypatch.setattr("tally.devices.service.history.MAX_UNSAMPLED_READINGS", 100)
    monkeypatch.setattr("tally.devices.service.history.MAX_SERIES_READINGS", 200)


async def series(
    server: DevicesServer, board: Board, span: tuple[int, int], points: int, sensor: str = SENSOR
) -> Json:
    query = f"sensor={sensor}&from={span[0]}&to={span[1]}&points={points}"
    found: Json = await server.get_json(f"/devices/{board.hardware_id}/series?{query}")
    assert (found["hardware_id"], found["sensor"]) == (board.hardware_id, sensor)
    assert len(found["buckets"]) <= points
    return found


def recomputed(readings: list[Reading], span: tuple[int, int], points: int) -> list[Json]:
    """The buckets, the slow and obvious way."""
    first, last = span
    width = -(-(last - first + 1) // points)
    buckets: list[Json] = []
    for begin in range(first, last + 1, width):
        end = min(begin + width - 1, last)
        found = [reading.sensors for reading in readings if begin <= reading.timestamp_ms <= end]
        values = [Decimal(sensors[SENSOR]) for sensors in found if SENSOR in sensors]
        if values:
            figures = {
                "min": float(min(values)),
                "max": float(max(values)),
                "mean": float(sum(values) / len(values)),
            }
            buckets.append({"from_ms": begin, "to_ms": end, "count": len(values)} | figures)
    return buckets


@settings(max_examples=20)
@given(
    first=st.integers(FIRST_MS - 10 * STEP_MS, FIRST_MS + 310 * STEP_MS),
    length=st.integers(0, 400 * STEP_MS),
    points=st.integers(1, 500),
)
async def test_a_chart_is_exact(
    server: DevicesServer, short: ReadingHistory, first: int, length: int, points: int
) -> None:
    """Every bucket has the least, the most, the mean and the count of what was measured in it, whatever the span."""
    span = (first, first + length)
    found = await series(server, short.board, span, points)
    assert not found["sampled"]
    assert found["buckets"] == recomputed(short.readings, span, points)


@pytest.mark.usefixtures("impatient")
async def test_a_long_range_is_exact_where_no_bucket_has_too_many(
    server: DevicesServer, short: ReadingHistory
) -> None:
    """Read bucket by bucket, none up to its share: nothing is left out, so the chart is not called sampled."""
    first, _ = short.span()
    span = (first, first + 120 * STEP_MS)
    found = await series(server, short.board, span, 20)
    assert not found["sampled"]
    assert found["buckets"] == recomputed(short.readings, span, 20)


@pytest.mark.usefixtures("impatient")
async def test_a_chart_of_very_much_is_sampled_and_says_so(
    server: DevicesServer, short: ReadingHistory
) -> None:
    """Each bucket is read from its beginning, up to its share, and no more is looked at than the bounds say."""
    before = (await server.patterns())["One sensor by time range"]["items"]
    found = await series(server, short.board, short.span(), 20)
    assert found["sampled"]
    assert (await server.patterns())["One sensor by time range"]["items"] - before <= 100 + 200
    exact = {bucket["from_ms"]: bucket for bucket in recomputed(short.readings, short.span(), 20)}
    assert len(found["buckets"]) == len(exact) == 20
    for bucket in found["buckets"]:
        whole = exact[bucket["from_ms"]]
        assert 0 < bucket["count"] <= 10 < whole["count"]
        assert whole["min"] <= bucket["min"] <= bucket["mean"] <= bucket["max"] <= whole["max"]


async def test_the_chart_has_two_hundred_points_unless_told(
    server: DevicesServer, short: ReadingHistory
) -> None:
    first, last = short.span()
    found = await server.get_json(
        f"/devices/{short.board.hardware_id}/series?sensor={SENSOR}&from={first}&to={last}"
    )
    assert found["buckets"] == recomputed(short.readings, short.span(), 200)


@pytest.mark.parametrize(
    "sensor", ["unknown", "a.b", "%5B0%5D", "rounds%23", "%F0%9F%8C%B1", "sensors", "%27"]
)
async def test_a_sensor_that_nobody_has_makes_an_empty_chart(
    server: DevicesServer, short: ReadingHistory, sensor: str
) -> None:
    """However strange its name."""
    first, last = short.span()
    found = await server.get_json(
        f"/devices/{short.board.hardware_id}/series?sensor={sensor}&from={first}&to={last}"
    )
    assert (found["buckets"], found["sampled"]) == ([], False)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("from=0&to=1", "MISSING_FIELD"),
        ("sensor=x&to=1", "MISSING_FIELD"),
        ("sensor=x&from=1", "MISSING_FIELD"),
        ("sensor=&from=0&to=1", "INVALID_FORMAT"),
        (f"sensor={'x' * 65}&from=0&to=1", "INVALID_FORMAT"),
        ("sensor=x&from=2&to=1", "INVALID_FORMAT"),
        ("sensor=x&from=0&to=1&points=0", "INVALID_FORMAT"),
        ("sensor=x&from=0&to=1&points=501", "INVALID_FORMAT"),
        ("sensor=x&from=-1&to=1", "INVALID_FORMAT"),
    ],
)
async def test_a_chart_needs_a_sensor_and_a_span(
    server: DevicesServer, short: ReadingHistory, query: str, code: str
) -> None:
    assert_error(
        await server.operator_request(f"/devices/{short.board.hardware_id}/series?{query}"),
        400,
        code,
    )


async def test_a_chart_may_end_long_after_all_readings(
    server: DevicesServer, short: ReadingHistory
) -> None:
    """Up to where milliseconds have a digit more; the buckets then end with the time that a reading can have."""
    found = await series(server, short.board, (0, 99_999_999_999_999), 1)
    assert found["buckets"][0]["count"] == sum(
        SENSOR in reading.sensors for reading in short.readings
    )
    assert found["buckets"][0]["to_ms"] == 4_102_444_800_000
