"""Charts are exact: every bucket has the aggregates that DuckDB computes from the same readings."""

import secrets
from dataclasses import dataclass, field
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tally.devices.model.records import Reading
from tally.devices.repository.readings import DEVICE_READINGS
from tally.devices.service import charts
from tally.store.api import Delete
from tests.api_response import expect_error
from tests.devices.factories import random_readings, write_readings
from tests.devices.harness import DAY_MS, FIRST_MS, START_MS, Board, DevicesServer, Json

SENSOR = "bme280_temp_c"
STEP_MS = 60_000
HOUR_MS = 3_600_000
_DECIMAL = pa.decimal128(38, 12)


@dataclass(slots=True, repr=False)
class BoardHistory:
    """A board and the readings that the server should have, by batch id."""

    board: Board = field(default_factory=Board)
    readings: dict[str, tuple[int, Decimal | None]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"BoardHistory({self.board.hardware_id})"

    def time_range(self) -> tuple[int, int]:
        times = [time for time, _ in self.readings.values()]
        return min(times), max(times)

    def expected(self, time_range: tuple[int, int], interval_ms: int) -> list[Json]:
        """Compute the buckets of a chart with DuckDB."""
        first, last = time_range
        if interval_ms % HOUR_MS == 0:
            unit = min(interval_ms, DAY_MS)
            first, last = first - first % unit, last - last % unit + unit - 1
        rows = [(time, value) for time, value in self.readings.values() if value is not None]
        with duckdb.connect() as database:
            times, values = [time for time, _ in rows], [value for _, value in rows]
            columns = {"time_ms": pa.array(times, pa.int64()), "value": pa.array(values, _DECIMAL)}
            database.register("readings", pa.table(columns))
            found = database.execute(
                """
                SELECT (time_ms - $first) // $interval AS bucket, count(*), min(value), max(value),
                  sum(value), arg_min(value, (time_ms, value)), arg_max(value, (time_ms, value))
                FROM readings WHERE time_ms BETWEEN $first AND $last
                GROUP BY bucket ORDER BY bucket
                """,
                {"first": first, "last": last, "interval": interval_ms},
            ).fetchall()
        return [
            {
                "from_ms": first + bucket * interval_ms,
                "to_ms": min(first + (bucket + 1) * interval_ms - 1, last),
                "count": count,
                "min": float(low),
                "max": float(high),
                "mean": float(Decimal(total) / count),
                "first": float(opening),
                "last": float(closing),
            }
            for bucket, count, low, high, total, opening, closing in found
        ]


async def create_history(server: DevicesServer, count: int, step_ms: int = STEP_MS) -> BoardHistory:
    history = BoardHistory()
    readings = list(random_readings(history.board, count, step_ms))
    await server.post("/register", history.board.registration(), key=await server.new_key())
    await write_readings(server.application.engine, readings)
    for reading in readings:
        history.readings[reading.batch_id] = reading.timestamp_ms, _value(reading)
    return history


def _value(reading: Reading) -> Decimal | None:
    value = reading.sensors.get(SENSOR)
    return None if value is None else Decimal(value)


@pytest.fixture(scope="session")
async def short(server: DevicesServer) -> BoardHistory:
    return await create_history(server, 300)


@pytest.fixture(scope="session")
async def long(server: DevicesServer) -> BoardHistory:
    """More readings than a chart may read: 25 days, one every six minutes."""
    return await create_history(server, 6_000, 6 * STEP_MS)


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


async def check_chart(
    server: DevicesServer, history: BoardHistory, time_range: tuple[int, int], points: int
) -> Json:
    """Require that a chart is what DuckDB computes, in buckets as short as possible."""
    found = await series(server, history.board, time_range, points)
    interval = found["interval_ms"]
    assert found["buckets"] == history.expected(time_range, interval)
    shortest = -(-(time_range[1] - time_range[0] + 1) // points)
    assert interval == shortest or (
        interval % HOUR_MS == 0 and interval < 3 * shortest + 2 * DAY_MS
    )
    return found


RANGES = st.tuples(
    st.integers(FIRST_MS - 2 * DAY_MS, FIRST_MS + 30 * DAY_MS),
    st.one_of(st.integers(0, DAY_MS), st.integers(0, 60 * DAY_MS)),
)


@settings(max_examples=15, deadline=None)
@given(time_range=RANGES, points=st.integers(1, 500))
async def test_a_chart_of_any_span_is_exact(
    server: DevicesServer,
    short: BoardHistory,
    long: BoardHistory,
    time_range: tuple[int, int],
    points: int,
) -> None:
    first, length = time_range
    await check_chart(server, short, (first, first + length), points)
    await check_chart(server, long, (first, first + length), points)


# Times within three days, often equal; numbers with few and with many digits.
TIMES = st.sampled_from([0, 1, HOUR_MS - 1, HOUR_MS, DAY_MS - 1, DAY_MS, 2 * DAY_MS + 5])
VALUES = st.one_of(
    st.decimals(-50, 50, places=1), st.decimals(-1_000_000, 1_000_000, places=9), st.just(0)
)
STEPS = st.one_of(
    st.tuples(st.just("send"), st.lists(st.tuples(TIMES, VALUES), min_size=1, max_size=6)),
    st.tuples(st.just("repeat"), st.integers(0, 30)),
    st.tuples(st.just("delete"), st.integers(0, 30)),
    st.tuples(st.just("chart"), st.tuples(TIMES, TIMES, st.sampled_from([1, 2, 5, 100]))),
)


@settings(max_examples=12, deadline=None)
@given(steps=st.lists(STEPS, min_size=1, max_size=14))
async def test_charts_are_exact_after_any_history(
    server: DevicesServer, key: str, steps: list[tuple[str, object]]
) -> None:
    """Late and duplicate readings, and deletions: charts include every acknowledged reading."""
    history, sent = BoardHistory(), list[Json]()
    await server.post("/register", history.board.registration(), key=key)
    for step in [*steps, ("chart", (0, 2 * DAY_MS + 5, 3)), ("chart", (0, 2 * DAY_MS + 5, 100))]:
        match step:
            case ("send", list(values)):
                new = [reading_of(history, time, value) for time, value in values]
                await server.store_readings(history.board, new, key)
                sent += new
            case ("repeat", int(number)) if sent:
                repeated = sent[number % len(sent)]
                await server.post("/data", history.board.data(repeated), key=key)
            case ("delete", int(number)) if history.readings:
                ids = [*history.readings]
                await delete_reading(server, history, ids[number % len(ids)])
            case ("chart", (int(first), int(last), int(points))):
                time_range = FIRST_MS + min(first, last), FIRST_MS + max(first, last)
                await check_chart(server, history, time_range, points)


def reading_of(history: BoardHistory, offset: int, value: Decimal) -> Json:
    """Make a reading, as JSON carries its value, and expect it in charts."""
    batch_id = secrets.token_hex(8)
    number = float(value)
    history.readings[batch_id] = FIRST_MS + offset, Decimal(repr(number))
    return history.board.reading(
        batch_id=batch_id, timestamp_ms=FIRST_MS + offset, sensors={SENSOR: number}
    )


async def delete_reading(server: DevicesServer, history: BoardHistory, batch_id: str) -> None:
    time, _ = history.readings.pop(batch_id)
    key = {"hardware_id": history.board.hardware_id, "ts_batch": f"{time:013}#{batch_id}"}
    await server.application.engine.delete(Delete(DEVICE_READINGS, key))


async def test_a_chart_has_fewer_points_if_the_range_has_too_many_readings(
    server: DevicesServer, long: BoardHistory
) -> None:
    """Short buckets read at most 5,000 readings; whole hours come from roll-ups."""
    first, _ = long.time_range()
    few = await check_chart(server, long, (first, first + 20 * DAY_MS - 1), 500)
    assert few["interval_ms"] == 20 * DAY_MS // 500
    many = await check_chart(server, long, (first, first + 500 * HOUR_MS - 500), 500)
    assert (charts.MAX_SHORT_READINGS, many["interval_ms"]) == (5_000, 2 * HOUR_MS)


async def test_charts_of_long_spans_read_no_readings(
    server: DevicesServer, long: BoardHistory
) -> None:
    before = (await server.patterns())["One sensor by time range"]["calls"]
    found = await check_chart(server, long, (FIRST_MS - 3650 * DAY_MS, START_MS), 500)
    assert found["interval_ms"] % DAY_MS == 0
    reads = 1 if server.has_stream_delay else 0  # the roll-ups may not be current there
    assert (await server.patterns())["One sensor by time range"]["calls"] == before + reads


async def test_a_mean_is_exact_before_it_is_rounded(server: DevicesServer, key: str) -> None:
    """Large values that cancel out do not hide small ones."""
    board = Board()
    values = [1e60, 0.1, -1e60, 1e-60, 0.2]
    readings = [
        board.reading(number, sensors={SENSOR: value}) for number, value in enumerate(values)
    ]
    await server.store_readings(board, readings, key)
    [bucket] = (await series(server, board, (FIRST_MS, FIRST_MS + 4 * HOUR_MS), 1))["buckets"]
    assert bucket["mean"] == float(Decimal("0.3") / 5)


async def test_the_default_is_two_hundred_points(
    server: DevicesServer, short: BoardHistory
) -> None:
    first, last = short.time_range()
    found = await server.get_json(
        f"/devices/{short.board.hardware_id}/series?sensor={SENSOR}&from={first}&to={last}"
    )
    assert found["interval_ms"] == -(-(last - first + 1) // 200)
    assert found["buckets"] == short.expected((first, last), found["interval_ms"])


@pytest.mark.parametrize(
    "sensor", ["unknown", "a.b", "%5B0%5D", "rounds%23", "%F0%9F%8C%B1", "sensors", "%27"]
)
@pytest.mark.parametrize("points", [1, 500])
async def test_an_unknown_sensor_has_an_empty_series(
    server: DevicesServer, short: BoardHistory, sensor: str, points: int
) -> None:
    """With any name."""
    first, last = short.time_range()
    found = await server.get_json(
        f"/devices/{short.board.hardware_id}/series?sensor={sensor}&from={first}&to={last}"
        f"&points={points}"
    )
    assert found["buckets"] == []


async def test_a_board_with_too_many_sensors_still_has_exact_charts(
    server: DevicesServer, key: str
) -> None:
    """Roll-ups hold 128 sensors; charts of such a board read its readings."""
    board = Board()
    readings = [
        board.reading(number, sensors={f"s{number}_{index}": index for index in range(64)})
        for number in range(3)
    ]
    await server.store_readings(board, readings, key)
    for sensor in ("s0_7", "s2_7"):
        found = await series(server, board, (FIRST_MS, FIRST_MS + DAY_MS), 1, sensor)
        assert [(bucket["count"], bucket["last"]) for bucket in found["buckets"]] == [(1, 7)]


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


async def test_a_range_may_exceed_valid_timestamps(
    server: DevicesServer, short: BoardHistory
) -> None:
    found = await series(server, short.board, (0, 99_999_999_999_999), 1)
    assert found["buckets"][0]["count"] == sum(
        value is not None for _, value in short.readings.values()
    )
