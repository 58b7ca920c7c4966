"""Charts of ten years: 500 points from the roll-ups of five sensors, over HTTP.

Goal: the 99th percentile is at most 100 ms.
"""

import math
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from pathlib import Path

from bench.devices import raw_store
from bench.devices_server import DevicesServer, open_devices_server
from bench.readings import Boards, hardware_id
from bench.rounds import Line
from tally.devices.repository.rollups import DEVICE_ROLLUPS
from tally.store.api import BatchWrite
from tally.store.values import Item

_SECTION = "charts of ten years, over HTTP"
_DAYS = 3_650
_DAY_MS = 86_400_000
_READINGS_PER_DAY = 288
_SENSORS = tuple(f"sensor_{number}" for number in range(5))
_POINTS = 500
_CHARTS = 200
_MAX_P99_MS = 100.0


async def long_charts() -> AsyncIterator[Line]:
    """Measure one chart after another, each with a bucket per eight days of ten years."""
    board = hardware_id(1 << 21)
    last = time.time_ns() // 1_000_000 // _DAY_MS * _DAY_MS
    with tempfile.TemporaryDirectory(prefix="tally-bench-") as directory:
        async with raw_store(Path(directory)) as engine:
            await engine.ensure_table(DEVICE_ROLLUPS)
            items = [*_rollups(board, last)]
            for start in range(0, len(items), 25):
                await engine.batch_write(
                    BatchWrite(DEVICE_ROLLUPS, tuple(items[start : start + 25]))
                )
        async with open_devices_server(Path(directory)) as server:
            body = Boards(1, last, seed=1).bodies(1, 1)[0]
            await server.post_data(body.replace(hardware_id(0).encode(), board.encode()))
            yield await _measure(server, board, last)


def _rollups(board: str, last: int) -> Iterator[Item]:
    """Return one roll-up per day; their hours are not needed for buckets of whole days."""
    for day in range(_DAYS):
        start = last - (day + 1) * _DAY_MS
        mean = Decimal(round(2000 + 1000 * math.sin(day / 58))) / 100
        end = start + _DAY_MS - 1
        entry = [_READINGS_PER_DAY, str(mean * 288), mean - 10, mean + 10, start, mean, end, mean]
        yield {
            "hardware_id": board,
            "bucket": f"day#{start:013}",
            "sensors": dict.fromkeys(_SENSORS, entry),
        }


async def _measure(server: DevicesServer, board: str, last: int) -> Line:
    first = last - _DAYS * _DAY_MS
    path = f"/devices/{board}/series?sensor={_SENSORS[2]}&from={first}&to={last}&points={_POINTS}"
    times = []
    for _ in range(_CHARTS):
        started_at = time.perf_counter()
        content = await server.get(path)
        times.append((time.perf_counter() - started_at) * 1000)
        if content.count(b'"count"') < _POINTS * 0.9:
            raise AssertionError(f"the chart has {content.count(b'count')} buckets")
    times.sort()
    p50, p99 = times[_CHARTS // 2], times[math.ceil(_CHARTS * 0.99) - 1]
    return Line(
        _SECTION,
        "ten years at 500 points",
        p99 * 1000,
        "its median",
        p50 * 1000,
        p99 / p50,
        f"p99 at most {_MAX_P99_MS:g} ms",
        p99 <= _MAX_P99_MS,
        f"p99 of {_CHARTS} charts, one after another",
    )
