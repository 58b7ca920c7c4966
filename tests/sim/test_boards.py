"""A virtual board under faults, on a real socket: it keeps what was not acknowledged, and in the end all is stored once."""

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
from tests.sim.greenhouse import Greenhouse, greenhouse

DATA = "/devices/data"
PATIENT = RetryPolicy(attempts=50, base=0.5, cap=60, deadline=1e6)


@pytest.fixture(scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Greenhouse]:
    async with greenhouse(tmp_path_factory.mktemp("greenhouse")) as house:
        yield house


@pytest.fixture(autouse=True)
def calm(house: Greenhouse) -> None:
    """No test leaves faults to the next."""
    house.faults.clear()


def ids(readings: Any) -> list[str]:
    return sorted(reading.batch_id for reading in readings)


async def test_a_board_registers_and_its_readings_are_stored_as_measured(house: Greenhouse) -> None:
    board = house.board()
    measured = [board.measure() for _ in range(3)]
    await board.deliver()
    assert board.confirmation_id is not None
    assert not board.buffer
    stored = await house.stored(board)
    assert ids(stored) == ids(measured)
    assert [{name: float(value) for name, value in each.sensors.items()} for each in stored] == [
        each.sensors for each in measured
    ]
    assert {each.boot_id for each in stored} == {board.boot_id}


def test_a_batch_id_is_made_as_the_firmware_makes_it(house: Greenhouse) -> None:
    """Windows follow each other without a gap, and no two have one name."""
    board = house.board()
    made = [board.measure() for _ in range(50)]
    pattern = re.compile(rf"{board.hardware_id}_{board.boot_id}_(\d+)_(\d+)")
    windows = [match.groups() for each in made if (match := pattern.fullmatch(each.batch_id))]
    assert len(windows) == len({each.batch_id for each in made}) == 50
    assert [end for _, end in windows[:-1]] == [start for start, _ in windows[1:]]
    assert [str(each.timestamp_ms) for each in made] == [end for _, end in windows]


async def test_what_was_measured_offline_goes_out_in_hundreds_oldest_first(
    house: Greenhouse,
) -> None:
    uplink = house.uplink()
    board = house.board(uplink)
    board.backfill(250, 300_000)
    before = house.faults.count(DATA)
    await board.deliver()
    assert house.faults.count(DATA) - before == 3
    assert (uplink.stats.sent, uplink.stats.acknowledged, board.measured_count) == (250, 250, 250)
    times = [reading.timestamp_ms for reading in await house.stored(board)]
    assert times == sorted(times)
    assert times[-1] - times[0] == 249 * 300_000


@pytest.mark.parametrize(
    "fault",
    [
        InjectedFault(path=DATA, drop="before", times=2),
        InjectedFault(path=DATA, drop="after", times=2),
        InjectedFault(
            path=DATA, status=503, body='{"error":"UNAVAILABLE","message":"away"}', times=3
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
async def test_what_passes_is_waited_for(house: Greenhouse, fault: InjectedFault) -> None:
    """With pauses in between; and nothing is lost or stored twice."""
    board = house.board()
    measured = [board.measure() for _ in range(5)]
    house.faults.add(fault)
    pauses = len(house.clock.slept)
    await board.deliver()
    assert house.faults.pending == ()
    assert len(house.clock.slept) - pauses == fault.times
    assert not board.buffer
    assert ids(await house.stored(board)) == ids(measured)


async def test_an_answer_that_was_lost_makes_duplicates_and_these_are_not_kept(
    house: Greenhouse,
) -> None:
    uplink = house.uplink()
    board = house.board(uplink)
    board.backfill(4, 1000)
    house.faults.add(InjectedFault(path=DATA, drop="after"))
    await board.deliver()
    assert (uplink.stats.acknowledged, uplink.stats.duplicates, uplink.stats.failures) == (
        0,
        4,
        1,
    )
    assert len(await house.stored(board)) == 4


async def test_a_server_that_stays_away_is_given_up_for_now_with_all_in_the_buffer(
    house: Greenhouse,
) -> None:
    board = house.board()
    measured = [board.measure()]
    house.faults.add(InjectedFault(path=DATA, status=503, times=None))
    with pytest.raises(Unavailable):
        await board.deliver()
    measured.append(board.measure())
    assert [each.reading for each in board.buffer] == measured
    house.faults.clear()
    await board.deliver()
    assert ids(await house.stored(board)) == ids(measured)


async def test_a_wrong_key_is_not_tried_again_and_loses_nothing(house: Greenhouse) -> None:
    uplink = house.uplink(api_key=Secret("0" * 64))
    board = house.board(uplink)
    board.measure()
    with pytest.raises(ServerRejection, match="INVALID_API_KEY"):
        await board.deliver()
    assert uplink.stats.requests == 1
    assert len(board.buffer) == 1


async def test_the_server_says_how_long_to_wait_and_the_board_does(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """On a server that lets a key come once in a second, twice at once."""
    async with greenhouse(tmp_path_factory.mktemp("slow"), devices_rate_limit=1) as house:
        board = house.board()
        board.backfill(300, 1000)
        await board.deliver()
        assert len(await house.stored(board)) == 300
        assert house.clock.slept
        assert min(house.clock.slept) >= 1


async def test_a_slow_answer_is_not_waited_for_and_what_it_did_is_not_done_again(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The server takes minutes: the board has long come back, and the two deliveries meet."""
    async with greenhouse(
        tmp_path_factory.mktemp("late"), retry_policy=timedelta(milliseconds=300)
    ) as house:
        board = house.board()
        await board.register()
        measured = [board.measure() for _ in range(3)]
        house.faults.add(InjectedFault(path=DATA, delay=90))
        await board.deliver()
        await house.clock.world.advance(90)
        assert not board.buffer
        assert ids(await house.stored(board)) == ids(measured)


async def test_two_deliveries_of_the_same_readings_at_once_store_them_once(
    house: Greenhouse,
) -> None:
    uplink = house.uplink()
    board = house.board(uplink)
    measured = [board.measure() for _ in range(120)]
    await board.register()
    twin = copy.copy(board)
    twin.buffer = copy.copy(board.buffer)
    await asyncio.gather(board.deliver(), twin.deliver())
    assert (uplink.stats.acknowledged, uplink.stats.duplicates) == (120, 120)
    assert ids(await house.stored(board)) == ids(measured)


async def test_after_a_restart_old_readings_keep_their_boot(house: Greenhouse) -> None:
    board = house.board()
    before = board.measure()
    first_boot = board.boot_id
    await board.register()
    confirmed = board.confirmation_id
    board.boot()
    after = board.measure()
    await board.deliver()
    assert board.boot_id != first_boot
    assert board.confirmation_id == confirmed
    boots = {reading.batch_id: reading.boot_id for reading in await house.stored(board)}
    assert boots[before.batch_id] == first_boot
    assert boots[after.batch_id] == board.boot_id


async def test_a_reading_that_the_server_will_never_take_does_not_hold_up_the_others(
    house: Greenhouse,
) -> None:
    """A board whose clock stands in 1970 until it has met a time server."""
    uplink = house.uplink()
    board = house.board(uplink)
    board._window_start = 0
    bad = board.measure(at_ms=5_000)
    good = board.measure()
    await board.deliver()
    assert not board.buffer
    assert uplink.stats.rejected == 1
    assert ids(await house.stored(board)) == [good.batch_id] != [bad.batch_id]


def receipt(*acknowledged: str, rejected: tuple[int, ...] = ()) -> BatchReceipt:
    reasons = tuple(BoardRejection(index, "timestamp_ms", "too early") for index in rejected)
    return BatchReceipt(frozenset(acknowledged), frozenset(), reasons)


async def test_what_a_receipt_does_not_speak_of_is_sent_again(house: Greenhouse) -> None:
    board = house.board()
    first, second, third = (board.measure() for _ in range(3))
    board._remove_delivered(tuple(board.buffer), receipt(second.batch_id, rejected=(2,)))
    assert [each.reading for each in board.buffer] == [first]
    with pytest.raises(Unavailable, match="none of the readings"):
        board._remove_delivered(tuple(board.buffer), receipt(third.batch_id))
    assert len(board.buffer) == 1


async def test_a_request_that_is_too_large_is_halved(house: Greenhouse) -> None:
    uplink = house.uplink()
    board = house.board(uplink)
    board.backfill(100, 1000)
    house.faults.add(InjectedFault(path=DATA, status=413, body="{}", times=2))
    await board.deliver()
    assert uplink.stats.requests == 1 + 2 + 4
    assert len(await house.stored(board)) == 100


async def test_a_full_buffer_loses_the_oldest_and_says_how_many(house: Greenhouse) -> None:
    board = house.board(capacity=10)
    measured = [board.measure() for _ in range(13)]
    assert [each.reading for each in board.buffer] == measured[3:]
    assert board.dropped_count == 3


async def test_rate_limits_are_counted_as_failures_with_their_words(house: Greenhouse) -> None:
    uplink = house.uplink()
    board = house.board(uplink, retry_policy=RetryPolicy(attempts=1))
    board.measure()
    await board.register()
    house.faults.add(
        InjectedFault(path=DATA, status=429, body='{"error":"RATE_LIMITED","message":"Too many"}')
    )
    with pytest.raises(RateLimited) as refusal:
        await board.deliver()
    assert refusal.value.retry_after == 1
    assert uplink.stats.last_error == "429 RATE_LIMITED Too many"


async def test_a_cheap_clock_drifts() -> None:
    world = ManualClock()
    quartz = BoardClock(world, offset_ms=250, drift_ppm=40, started=world.monotonic())
    ahead = quartz.milliseconds() - world.milliseconds()
    await world.advance(86_400)
    assert ahead == 250
    assert quartz.milliseconds() - world.milliseconds() == 250 + 3456


@given(st.integers(0, 2**63), st.integers(1_700_000_000_000, 1_900_000_000_000))
@settings(max_examples=200)
def test_sensors_show_what_a_greenhouse_could(seed: int, moment: int) -> None:
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


LIES = (
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
        InjectedFault, path=st.just("/devices/"), status=st.just(200), body=st.sampled_from(LIES)
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
async def test_whatever_happens_every_reading_is_stored_once_in_the_end(
    house: Greenhouse, steps: list[tuple[str, Any]]
) -> None:
    """Any mixture of measuring, restarts, broken connections, refusals, lies, slow answers, and deliveries that overlap."""
    house.faults.clear()
    board = house.board(retry_policy=RetryPolicy(attempts=3, base=0.5, cap=60, deadline=1e6))
    measured: list[Any] = []
    for step, detail in steps:
        if step == "measure":
            measured += [board.measure() for _ in range(detail)]
        elif step == "restart":
            board.boot()
        elif step == "weather":
            house.faults.add(detail)
        else:
            await struggle(board, twice=step == "twice")
    house.faults.clear()
    board.retry_policy = PATIENT
    await board.deliver()
    assert not board.buffer
    assert board.dropped_count == 0
    stored = await house.stored(board)
    assert ids(stored) == ids(measured)


async def struggle(board: VirtualBoard, *, twice: bool) -> None:
    """Deliver, perhaps by two tasks at once, and do not mind if it fails."""
    outcomes = await asyncio.gather(
        *(board.deliver() for _ in range(2 if twice else 1)), return_exceptions=True
    )
    for outcome in outcomes:
        if outcome is not None and not isinstance(
            outcome, Unavailable | RateLimited | ServerRejection
        ):
            raise outcome
