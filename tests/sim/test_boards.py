"""A virtual board under faults: it buffers unacknowledged readings, and each is stored once."""

import asyncio
import copy
import random
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tally.errors import RateLimited, Unavailable
from tally.kit.clock import ManualClock
from tally.kit.retry import RetryPolicy
from tally.settings import Secret
from tally.sim.boards.board import BoardClock, VirtualBoard
from tally.sim.boards.devices_client import BatchReceipt, BoardRejection
from tally.sim.boards.sensors import DAY_MS, SENSOR_NAMES, GreenhouseSensors
from tally.sim.fault_injection import InjectedFault
from tally.sim.http_client import ServerRejection
from tests.sim.devices_harness import ADMIN_TOKEN, DevicesHarness, run_devices_server

DATA = "/devices/data"
PATIENT = RetryPolicy(attempts=50, base=0.5, cap=60, deadline=1e6)


@pytest.fixture(scope="module")
async def harness(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DevicesHarness]:
    async with run_devices_server(tmp_path_factory.mktemp("greenhouse")) as harness:
        yield harness


@pytest.fixture(autouse=True)
def no_faults(harness: DevicesHarness) -> None:
    """Clear faults before each test."""
    harness.faults.clear()


def ids(readings: Any) -> list[str]:
    return sorted(reading.batch_id for reading in readings)


async def test_board_registers_and_readings_are_stored(
    harness: DevicesHarness,
) -> None:
    board = harness.board()
    measured = [board.measure() for _ in range(3)]
    await board.deliver()
    assert board.confirmation_id is not None
    assert not board.buffer
    stored = await harness.stored(board)
    assert ids(stored) == ids(measured)
    assert [
        {name: float(value) for name, value in reading.sensors.items()} for reading in stored
    ] == [reading.sensors for reading in measured]
    assert {reading.boot_id for reading in stored} == {board.boot_id}


def test_batch_id_has_the_firmware_format(harness: DevicesHarness) -> None:
    """Windows are contiguous and batch ids are unique."""
    board = harness.board()
    measures = [board.measure() for _ in range(50)]
    pattern = re.compile(rf"{board.hardware_id}_{board.boot_id}_(\d+)_(\d+)")
    windows = [
        match.groups() for reading in measures if (match := pattern.fullmatch(reading.batch_id))
    ]
    assert len(windows) == len({reading.batch_id for reading in measures}) == 50
    assert [end for _, end in windows[:-1]] == [start for start, _ in windows[1:]]
    assert [str(reading.timestamp_ms) for reading in measures] == [end for _, end in windows]


async def test_offline_readings_are_sent_in_batches_oldest_first(
    harness: DevicesHarness,
) -> None:
    devices = harness.devices_client()
    board = harness.board(devices)
    board.backfill(250, 300_000)
    before = harness.faults.count(DATA)
    await board.deliver()
    assert harness.faults.count(DATA) - before == 3
    assert (devices.stats.sent, devices.stats.acknowledged, board.measured_count) == (250, 250, 250)
    times = [reading.timestamp_ms for reading in await harness.stored(board)]
    assert times == sorted(times)
    assert times[-1] - times[0] == 249 * 300_000


@pytest.mark.parametrize(
    "fault",
    [
        InjectedFault(path=DATA, drop="before", times=2),
        InjectedFault(path=DATA, drop="after", times=2),
        InjectedFault(
            path=DATA, status=503, body='{"code":"unavailable","detail":"away"}', times=3
        ),
        InjectedFault(
            path=DATA, status=502, body="<html>a proxy", content_type="text/html", times=2
        ),
        InjectedFault(
            path=DATA,
            status=200,
            body="<html>welcome to the hotel's network",
            content_type="text/html",
            times=2,
        ),
        InjectedFault(path=DATA, status=200, body='{"acknowledged_batch_ids": [', times=2),
        InjectedFault(path=DATA, status=429, body="{}", times=2),
        InjectedFault(path="/devices/register", drop="before", times=2),
        InjectedFault(path="/devices/register", drop="after", times=2),
    ],
    ids=lambda fault: f"{fault.path.rpartition('/')[2]} {fault.drop or fault.status}",
)
async def test_transient_errors_are_retried_with_backoff(
    harness: DevicesHarness, fault: InjectedFault
) -> None:
    """Nothing is lost or stored twice."""
    board = harness.board()
    measured = [board.measure() for _ in range(5)]
    harness.faults.add(fault)
    pauses = len(harness.clock.slept)
    await board.deliver()
    assert harness.faults.pending == ()
    assert len(harness.clock.slept) - pauses == fault.times
    assert not board.buffer
    assert ids(await harness.stored(board)) == ids(measured)


async def test_lost_response_causes_duplicates_that_are_not_stored(
    harness: DevicesHarness,
) -> None:
    devices = harness.devices_client()
    board = harness.board(devices)
    board.backfill(4, 1000)
    harness.faults.add(InjectedFault(path=DATA, drop="after"))
    await board.deliver()
    assert (devices.stats.acknowledged, devices.stats.duplicates, devices.stats.failures) == (
        0,
        4,
        1,
    )
    assert len(await harness.stored(board)) == 4


async def test_unavailable_server_leaves_readings_in_the_buffer(
    harness: DevicesHarness,
) -> None:
    board = harness.board()
    measured = [board.measure()]
    harness.faults.add(InjectedFault(path=DATA, status=503, times=None))
    with pytest.raises(Unavailable):
        await board.deliver()
    measured.append(board.measure())
    assert [buffered.reading for buffered in board.buffer] == measured
    harness.faults.clear()
    await board.deliver()
    assert ids(await harness.stored(board)) == ids(measured)


async def test_wrong_key_is_not_retried_and_loses_nothing(harness: DevicesHarness) -> None:
    devices = harness.devices_client(api_key=Secret("0" * 64))
    board = harness.board(devices)
    board.measure()
    with pytest.raises(ServerRejection, match="invalid_api_key"):
        await board.deliver()
    assert devices.stats.requests == 1
    assert len(board.buffer) == 1


async def test_board_honours_retry_after(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The server allows one request per second with a burst of two."""
    async with run_devices_server(tmp_path_factory.mktemp("slow"), devices_rate_limit=1) as harness:
        board = harness.board()
        board.backfill(300, 1000)
        await board.deliver()
        assert len(await harness.stored(board)) == 300
        assert harness.clock.slept
        assert min(harness.clock.slept) >= 1


async def test_timed_out_request_is_retried_without_duplicates(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The server responds after minutes, when the board has already retried."""
    async with run_devices_server(
        tmp_path_factory.mktemp("late"), request_timeout=timedelta(milliseconds=300)
    ) as harness:
        board = harness.board()
        await board.register()
        measured = [board.measure() for _ in range(3)]
        harness.faults.add(InjectedFault(path=DATA, delay=90))
        await board.deliver()
        await harness.clock.server_clock.advance(90)
        assert not board.buffer
        assert ids(await harness.stored(board)) == ids(measured)


async def test_concurrent_deliveries_store_readings_once(
    harness: DevicesHarness,
) -> None:
    devices = harness.devices_client()
    board = harness.board(devices)
    measured = [board.measure() for _ in range(120)]
    await board.register()
    twin = copy.copy(board)
    twin.buffer = copy.copy(board.buffer)
    await asyncio.gather(board.deliver(), twin.deliver())
    assert (devices.stats.acknowledged, devices.stats.duplicates) == (120, 120)
    assert ids(await harness.stored(board)) == ids(measured)


async def test_readings_keep_their_boot_id_after_a_restart(harness: DevicesHarness) -> None:
    board = harness.board()
    before = board.measure()
    first_boot = board.boot_id
    await board.register()
    confirmed = board.confirmation_id
    board.boot()
    after = board.measure()
    await board.deliver()
    assert board.boot_id != first_boot
    assert board.confirmation_id == confirmed
    boots = {reading.batch_id: reading.boot_id for reading in await harness.stored(board)}
    assert boots[before.batch_id] == first_boot
    assert boots[after.batch_id] == board.boot_id


async def test_rejected_reading_does_not_block_others(
    harness: DevicesHarness,
) -> None:
    """The clock of a board is in 1970 until it has synchronized."""
    devices = harness.devices_client()
    board = harness.board(devices)
    board._window_start = 0
    bad = board.measure(at_ms=5_000)
    good = board.measure()
    await board.deliver()
    assert not board.buffer
    assert devices.stats.rejected == 1
    assert ids(await harness.stored(board)) == [good.batch_id] != [bad.batch_id]


def receipt(*acknowledged: str, rejected: tuple[int, ...] = ()) -> BatchReceipt:
    reasons = tuple(BoardRejection(index, "timestamp_ms", "too early") for index in rejected)
    return BatchReceipt(frozenset(acknowledged), frozenset(), reasons)


async def test_readings_missing_from_the_receipt_are_resent(harness: DevicesHarness) -> None:
    board = harness.board()
    first, second, third = (board.measure() for _ in range(3))
    board._remove_delivered(tuple(board.buffer), receipt(second.batch_id, rejected=(2,)))
    assert [buffered.reading for buffered in board.buffer] == [first]
    with pytest.raises(Unavailable, match="none of the readings"):
        board._remove_delivered(tuple(board.buffer), receipt(third.batch_id))
    assert len(board.buffer) == 1


async def test_batch_size_is_halved_after_413(harness: DevicesHarness) -> None:
    devices = harness.devices_client()
    board = harness.board(devices)
    board.backfill(100, 1000)
    harness.faults.add(InjectedFault(path=DATA, status=413, body="{}", times=2))
    await board.deliver()
    assert devices.stats.requests == 1 + 2 + 4
    assert len(await harness.stored(board)) == 100


async def test_full_buffer_drops_and_counts_the_oldest(harness: DevicesHarness) -> None:
    board = harness.board(capacity=10)
    measured = [board.measure() for _ in range(13)]
    assert [buffered.reading for buffered in board.buffer] == measured[3:]
    assert board.dropped_count == 3


async def test_rate_limiting_counts_as_failure_with_message(harness: DevicesHarness) -> None:
    devices = harness.devices_client()
    board = harness.board(devices, retry_policy=RetryPolicy(attempts=1))
    board.measure()
    await board.register()
    harness.faults.add(
        InjectedFault(
            path=DATA, status=429, body='{"code":"rate_limit_exceeded","detail":"Too many"}'
        )
    )
    with pytest.raises(RateLimited) as refusal:
        await board.deliver()
    assert refusal.value.retry_after == 1
    assert devices.stats.last_error == "429 rate_limit_exceeded Too many"


async def test_board_clock_drifts() -> None:
    clock = ManualClock()
    board_clock = BoardClock(clock, offset_ms=250, drift_ppm=40, started=clock.monotonic())
    ahead = board_clock.milliseconds() - clock.milliseconds()
    await clock.advance(86_400)
    assert ahead == 250
    assert board_clock.milliseconds() - clock.milliseconds() == 250 + 3456


@given(st.integers(0, 2**63), st.integers(1_700_000_000_000, 1_900_000_000_000))
@settings(max_examples=200)
def test_sensor_values_are_plausible(seed: int, moment: int) -> None:
    values, statuses = GreenhouseSensors.at_random_location(random.Random(seed)).measure(moment)
    assert set(statuses) == set(SENSOR_NAMES)
    plausible = {
        "bme280_temp_c": (-10, 50),
        "ds18b20_temp_c": (-10, 50),
        "humidity_pct": (0, 100),
        "pressure_hpa": (950, 1080),
        "soil_moisture_pct": (0, 100),
    }
    assert set(values) <= set(plausible)
    assert all(plausible[name][0] <= value <= plausible[name][1] for name, value in values.items())


def test_afternoons_are_warmer_than_nights() -> None:
    sensors = GreenhouseSensors(random.Random(1), warmth=20, dryness=0, pressure=1013)
    start = 20_000 * DAY_MS
    assert sensors.measure(start + DAY_MS * 15 // 24)[0]["bme280_temp_c"] > 24
    assert sensors.measure(start + DAY_MS * 3 // 24)[0]["bme280_temp_c"] < 16


WRONG_BODIES = (
    "",
    "<html>",
    "{}",
    '{"rejected":1}',
    '{"acknowledged_batch_ids":[],"duplicate_batch_ids":[],"rejected":[]}',
)
WEATHER = st.one_of(
    st.builds(
        InjectedFault,
        path=st.just(DATA),
        drop=st.sampled_from(["before", "after"]),
        times=st.integers(1, 3),
    ),
    st.builds(
        InjectedFault,
        path=st.just("/devices/"),
        status=st.sampled_from([429, 500, 502, 503, 413]),
        body=st.just("{}"),
    ),
    st.builds(
        InjectedFault,
        path=st.just("/devices/"),
        status=st.just(200),
        body=st.sampled_from(WRONG_BODIES),
    ),
)
STEPS = st.one_of(
    st.tuples(st.just("measure"), st.integers(1, 130)),
    st.tuples(st.just("restart"), st.none()),
    st.tuples(st.just("weather"), WEATHER),
    st.tuples(st.just("deliver"), st.integers(1, 6)),
    st.tuples(st.just("twice"), st.none()),
)


@pytest.mark.soak
@settings(max_examples=30)
@given(steps=st.lists(STEPS, max_size=12))
async def test_every_reading_is_eventually_stored_once(
    harness: DevicesHarness, steps: list[tuple[str, Any]]
) -> None:
    """Any mix of measurements, restarts, connection failures, errors and overlapping deliveries."""
    harness.faults.clear()
    board = harness.board(retry_policy=RetryPolicy(attempts=3, base=0.5, cap=60, deadline=1e6))
    measured: list[Any] = []
    for step, detail in steps:
        if step == "measure":
            measured += [board.measure() for _ in range(detail)]
        elif step == "restart":
            board.boot()
        elif step == "weather":
            harness.faults.add(detail)
        else:
            await try_deliver(board, twice=step == "twice")
    harness.faults.clear()
    board.retry_policy = PATIENT
    await board.deliver()
    assert not board.buffer
    assert board.dropped_count == 0
    stored = await harness.stored(board)
    assert ids(stored) == ids(measured)


async def try_deliver(board: VirtualBoard, *, twice: bool) -> None:
    """Deliver, optionally from two tasks, and ignore failures."""
    outcomes = await asyncio.gather(
        *(board.deliver() for _ in range(2 if twice else 1)), return_exceptions=True
    )
    for outcome in outcomes:
        if outcome is not None and not isinstance(
            outcome, Unavailable | RateLimited | ServerRejection
        ):
            raise outcome


async def test_a_board_applies_its_desired_state_and_reports_it(harness: DevicesHarness) -> None:
    """Also after a restart; an interval out of range is ignored."""
    board = harness.board()
    await board.register()
    url = f"{harness.url}/devices/{board.hardware_id}/desired-state"

    async def put(state: dict[str, object]) -> None:
        request = harness.client.put(url).bearer_auth(ADMIN_TOKEN.reveal())
        assert (await request.body_json({"state": state}).build().send()).status == 200

    async def reported() -> int:
        response = await harness.client.get(url).bearer_auth(ADMIN_TOKEN.reveal()).build().send()
        version: int = (await response.json())["reported_version"]
        return version

    await put({"interval_s": 60})
    board.measure()
    await board.deliver()
    assert (board.applied.version, board.interval(300)) == (1, 60)
    board.boot()
    board.measure()
    await board.deliver()
    assert (await reported(), board.interval(300)) == (1, 60)
    await put({"interval_s": -1})
    await board.register()
    assert (board.applied.version, board.interval(300)) == (2, 300)
