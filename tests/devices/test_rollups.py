"""Roll-ups count every reading once, whatever happens to their consumer, and outlive readings."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path

import pytest

from tally.devices.model.records import Number
from tally.devices.model.rollups import SensorRollup
from tally.devices.repository.devices import DeviceRepository
from tally.devices.repository.measurements import MeasurementRepository
from tally.devices.repository.readings import DEVICE_READINGS
from tally.devices.repository.rollup_items import decode_rollup, encode_rollup
from tally.devices.repository.rollups import (
    ALL_BUILT,
    DEVICE_ROLLUPS,
    Resolution,
    RollupRepository,
    StoredRollup,
)
from tally.devices.service import change_backlog, rollup_builder
from tally.devices.service.rollup_builder import RollupBuilder
from tally.devices.service.rollups import RollupConsumer
from tally.kit.clock import ManualClock, SystemClock
from tally.kit.tasks import cancel_all
from tally.store.access import access_pattern
from tests.devices.conftest import StoreTarget
from tests.devices.factories import random_readings, write_readings
from tests.devices.harness import (
    DAY_MS,
    FIRST_MS,
    MINUTE_MS,
    START,
    START_MS,
    Board,
    DevicesServer,
    make_settings,
    open_server,
    wait_until_built,
)
from tests.devices.test_alarms import wait_for

RETENTION_SECONDS = 90 * 86_400


@dataclass(frozen=True, slots=True)
class NoLocks:
    """Locks that every owner gets, as if each had stopped before the other one started."""

    async def acquire(self, _name: str, _seconds: float) -> bool:
        return True

    async def extend(self, _name: str, _seconds: float) -> bool:
        return True

    async def release(self, _name: str) -> None:
        return None


def new_consumer(server: DevicesServer) -> RollupConsumer:
    """A consumer of another instance, which does not respect locks."""
    store = server.application.store
    rollups, measurements = RollupRepository(store), MeasurementRepository(store)
    builder = RollupBuilder(
        rollups, measurements, DeviceRepository(store), server.clock, RETENTION_SECONDS
    )
    return RollupConsumer(rollups, measurements, builder, NoLocks(), SystemClock())


async def counts(server: DevicesServer, board: Board, sensor: str = "rounds") -> list[int]:
    """Return the counts of a chart with one bucket per day."""
    first, last = FIRST_MS - DAY_MS, FIRST_MS + 100 * DAY_MS
    found = await server.get_json(
        f"/devices/{board.hardware_id}/series?sensor={sensor}&from={first}&to={last}&points=102"
    )
    assert found["interval_ms"] == DAY_MS
    return [bucket["count"] for bucket in found["buckets"]]


async def test_consumers_that_crash_and_overlap_count_every_reading_once(tmp_path: Path) -> None:
    """Three consumers work at the same time, and are cancelled at any point."""
    rng, board = random.Random(7), Board()
    async with open_server(make_settings(data_dir=tmp_path)) as server:
        key = await server.new_key()
        await server.post("/register", board.registration(), key=key)
        readings = list(random_readings(board, 3_000, 6 * MINUTE_MS))
        await wait_until_built(server)
        writing = asyncio.create_task(write_readings(server.application.engine, readings))
        while not writing.done():
            tasks = [asyncio.create_task(new_consumer(server).run()) for _ in range(2)]
            await asyncio.sleep(rng.random() / 20)
            await cancel_all(tasks)
        await writing
        assert sum(await counts(server, board)) == 3_000


async def test_readings_from_before_the_roll_ups_are_built_while_boards_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an upgrade; charts are right before, meanwhile and afterwards."""
    monkeypatch.setattr(rollup_builder, "MAX_STEP_READINGS", 100)
    boards = [Board() for _ in range(3)]
    settings = make_settings(data_dir=tmp_path)
    async with open_server(settings) as server:
        for board in boards:
            await server.post("/register", board.registration(), key=await server.new_key())
            await write_readings(
                server.application.engine, random_readings(board, 1_000, 12 * MINUTE_MS)
            )
        await server.application.engine.drop_table(DEVICE_ROLLUPS.name)
    async with open_server(settings) as server:
        key = await server.new_key()
        for number in range(20):
            board = boards[number % 3]
            new = board.reading(number * 700, sensors={"rounds": number})
            await server.store_readings(board, [new], key)
            assert sum(await counts(server, board)) == 1_000 + number // 3 + 1
        await wait_until_built(server)
        totals = [sum(await counts(server, board)) for board in boards]
        assert totals == [1_007, 1_007, 1_006]


async def test_the_change_stream_and_a_rebuild_store_the_same_roll_ups(
    store_target: StoreTarget,
) -> None:
    """On every engine, also more roll-ups than one transaction can store."""
    async with open_server(await store_target.new_settings()) as server:
        await wait_until_built(server)
        board = Board()
        await server.store_readings(board, [board.reading(number * 60) for number in range(60)])
        rollups = RollupRepository(server.application.store)

        async def load(resolution: Resolution) -> dict[int, StoredRollup]:
            return await rollups.between(board.hardware_id, resolution, (0, START_MS))

        await wait_for(_has(60, partial(load, "hour")))
        filled = await load("hour"), await load("day")
        assert sum(day.sensors["humidity_pct"].count for day in filled[1].values()) == 60
        while await rollups.delete_page(board.hardware_id):
            pass
        assert await rollups.request_rebuild()
        await wait_for(_has(60, partial(load, "hour")))
        await wait_until_built(server)
        assert (await load("hour"), await load("day")) == filled


def _has(
    count: int, load: Callable[[], Awaitable[dict[int, StoredRollup]]]
) -> Callable[[], Awaitable[bool]]:
    async def is_met() -> bool:
        return len(await load()) == count

    return is_met


async def test_a_rebuild_counts_readings_once_that_arrive_meanwhile(
    store_target: StoreTarget,
) -> None:
    """Also on DynamoDB, which does not tell how far a stream is behind."""
    async with open_server(await store_target.new_settings()) as server:
        await wait_until_built(server)
        board, key, sent = Board(), await server.new_key(), 20
        await server.store_readings(board, board.readings(sent), key)
        rollups = RollupRepository(server.application.store)
        assert await rollups.request_rebuild()
        while (state := await rollups.state()) and state.built_until != ALL_BUILT:
            await server.store_readings(board, [board.reading(sent)], key)
            sent += 1

        async def is_met() -> bool:
            found = await rollups.between(board.hardware_id, "day", (0, START_MS))
            return sum(day.sensors["humidity_pct"].count for day in found.values()) == sent

        await wait_for(is_met)


async def test_roll_ups_outlive_expired_readings_and_a_rebuild(tmp_path: Path) -> None:
    board, settings = Board(), make_settings(data_dir=tmp_path)
    async with open_server(settings) as server:
        await server.store_readings(board, [board.reading(number * 144) for number in range(100)])
        before = await counts(server, board, "humidity_pct")
        assert sum(before) == 100
    async with open_server(settings, ManualClock(START + timedelta(days=65))) as server:
        engine = server.application.engine
        while await engine.sweep(DEVICE_READINGS, server.clock.seconds(), 1_000):
            pass
        assert 0 < len(await server.readings(board)) < 100
        assert await counts(server, board, "humidity_pct") == before
        assert await RollupRepository(server.application.store).request_rebuild()
        assert await counts(server, board, "humidity_pct") == before
        await wait_until_built(server)
        assert await counts(server, board, "humidity_pct") == before
        await server.store_readings(board, [board.reading(99 * 144 + 1)])
        assert sum(await counts(server, board, "humidity_pct")) == 101


async def test_readings_share_a_transaction_of_the_roll_ups_unless_a_chart_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_backlog, "GATHERING_SECONDS", 3_600)
    board = Board()
    async with open_server(make_settings(data_dir=tmp_path)) as server:
        apply = access_pattern(RollupRepository.apply)
        assert apply is not None
        meter = server.application.store.meters.of(apply).whole
        await wait_until_built(server)
        await server.store_readings(board, [board.reading(0)])
        assert await counts(server, board, "humidity_pct") == [1]
        before = meter.calls
        for number in range(1, 21):
            await server.store_readings(board, [board.reading(number)])
        assert meter.calls == before
        assert await counts(server, board, "humidity_pct") == [21]
        assert meter.calls == before + 1


@pytest.mark.parametrize("value", [0, -7, 10**37, Decimal("-0.000125"), Decimal("1E+100")])
def test_stored_roll_ups_are_exact_and_those_of_older_versions_are_read(value: Number) -> None:
    rollup = SensorRollup(2, 3 * Decimal(value), value, 2 * value, (1, value), (2, value))
    assert decode_rollup(encode_rollup(rollup)) == rollup
    total = str(rollup.total)
    assert decode_rollup([2, total, value, 2 * value, 1, value, 2, value]) == rollup


async def test_a_consumer_whose_changes_were_trimmed_builds_everything_again(
    tmp_path: Path,
) -> None:
    board, settings = Board(), make_settings(data_dir=tmp_path)
    async with open_server(settings) as server:
        await server.store_readings(board, board.readings(10))
        assert sum(await counts(server, board, "humidity_pct")) == 10
        rollups = RollupRepository(server.application.store)
        state = await rollups.state()
        assert state is not None
        await rollups.apply(state, state._replace(position="unknown"), {})
        await server.store_readings(board, [board.reading(10)])
        assert sum(await counts(server, board, "humidity_pct")) == 11
