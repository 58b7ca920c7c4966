"""Ingestion while clients read charts and exports, compared with ingestion alone.

Eight clients load one chart after another, and one downloads CSV exports of 200,000 readings.
Goals: the p99 of ingestion is at most twice its quiet p99, and a chart takes at most twice the time
of reading and decoding its rows; it took 2.1 times that before long reads ran in turns.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlsplit

import apsw
import ormsgpack
from msgspec import Struct

from bench.devices import raw_store
from bench.devices_server import DevicesServer, open_devices_server
from bench.load import Load, at_full_speed, at_rate, merge_loads
from bench.readings import Boards, fill_history, hardware_id
from bench.rounds import Line, TimedRun, measure_alternately
from tally.devices.repository.readings import DEVICE_READINGS
from tally.devices.service.charts import MAX_SHORT_READINGS
from tally.store.sqlite.files import connect
from tally.store.sqlite.layout import rows_name

_SECTION = "ingestion beside long reads, over HTTP"
_HISTORY = 200_000
_BOARDS = 200
_REQUESTS_PER_SECOND = 50
_BATCH_SIZE = 100
_CHARTS = 8
_POINTS = 200
_ROUNDS = 3
_MAX_SLOWDOWN = 2.0
_MAX_CHART_RATIO = 2.0
_CHART_READINGS = MAX_SHORT_READINGS


class _Readers(Struct):
    """What the long reads completed during the measurements."""

    charts: list[float] = []
    exports: list[float] = []


async def long_reads(rounds: int, seconds: int) -> AsyncIterator[Line]:
    """Measure ingestion alone and beside charts and exports, in alternating rounds."""
    board, now = hardware_id(1 << 20), time.time_ns() // 1_000_000
    first = now - (_HISTORY - 1) * 60_000
    chart = f"/devices/{board}/series?sensor=bme280_temp_c&from={first}&to={now}&points={_POINTS}"
    export = f"/devices/{board}/export?format=csv"
    with tempfile.TemporaryDirectory(prefix="tally-bench-") as directory:
        async with raw_store(Path(directory)) as engine:
            path = engine.path
        fill_history(path, board, _HISTORY, now)
        async with open_devices_server(Path(directory)) as server:
            boards = Boards(_BOARDS, now)
            await server.post_data(_first_reading(board))
            await at_full_speed(server.post_data, boards.bodies(_BOARDS, 1), 8)
            yield await _chart_alone(server, chart, path, rounds)
            for line in await _beside_readers(server, boards, (chart, export), seconds):
                yield line


async def _beside_readers(
    server: DevicesServer, boards: Boards, paths: tuple[str, str], seconds: int
) -> list[Line]:
    chart, export = paths
    cases = {
        "one chart": [chart],
        "eight charts": [chart] * _CHARTS,
        "one export": [export],
        "eight charts, one export": [chart] * _CHARTS + [export],
    }
    readers = _Readers()
    loads: dict[str, list[Load]] = {name: [] for name in ("alone", *cases)}
    for _ in range(_ROUNDS):
        loads["alone"].append(await _ingest(server, boards, seconds))
        for name, read in cases.items():
            async with _reading(server, read, readers):
                loads[name].append(await _ingest(server, boards, seconds))
    alone = merge_loads(loads.pop("alone"))
    return [_line(name, merge_loads(beside), alone, readers) for name, beside in loads.items()]


def _line(name: str, load: Load, alone: Load, readers: _Readers) -> Line:
    ours, quiet = load.quantile(0.99), alone.quantile(0.99)
    is_goal = name == "eight charts, one export"
    return Line(
        _SECTION,
        f"p99 with {name}",
        ours * 1e6,
        "alone",
        quiet * 1e6,
        ours / quiet,
        f"at most {_MAX_SLOWDOWN:g} times" if is_goal else "",
        ours <= _MAX_SLOWDOWN * quiet if is_goal else None,
        f"{load.describe(_BATCH_SIZE)}; alone: {alone.describe(_BATCH_SIZE)}"
        + (f"; {_describe(readers)}" if is_goal else ""),
    )


def _describe(readers: _Readers) -> str:
    charts, exports = (sorted(times) or [0.0] for times in (readers.charts, readers.exports))
    return (
        f"{len(readers.charts)} charts, median {charts[len(charts) // 2] * 1000:.0f} ms;"
        f" {len(readers.exports)} exports, median {exports[len(exports) // 2]:.1f} s"
    )


async def _ingest(server: DevicesServer, boards: Boards, seconds: int) -> Load:
    bodies = boards.bodies(_REQUESTS_PER_SECOND * seconds, _BATCH_SIZE)
    return await at_rate(server.post_data, bodies, _REQUESTS_PER_SECOND)


@asynccontextmanager
async def _reading(
    server: DevicesServer, paths: list[str], readers: _Readers
) -> AsyncIterator[None]:
    """Run one client per path, each with one request after another, until the block ends."""

    async def read(path: str) -> None:
        times = readers.exports if "/export" in path else readers.charts
        while True:
            started = time.perf_counter()
            await _download(server, path)
            times.append(time.perf_counter() - started)

    tasks = [asyncio.create_task(read(path)) for path in paths]
    try:
        await asyncio.sleep(0.5)  # the readers have started
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


async def _download(server: DevicesServer, path: str) -> None:
    """Read a whole response on a connection of its own, which a cancellation closes.

    The HTTP client would go on reading, and the server working, during the next measurement.
    """
    address = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        head = (
            f"GET {address.path}{path} HTTP/1.1\r\nHost: {address.netloc}\r\n"
            f"Authorization: Bearer {server.token}\r\nConnection: close\r\n\r\n"
        )
        writer.write(head.encode())
        status = await reader.readline()
        if b" 200 " not in status:
            raise AssertionError(f"{path} returned {status!r}")
        while await reader.read(65_536):
            pass
    finally:
        writer.transport.abort()


async def _chart_alone(server: DevicesServer, chart: str, path: Path, rounds: int) -> Line:
    """Compare a chart with reading and decoding as many rows."""

    async def ours() -> int:
        await server.get(chart)
        return 1

    connection = connect(path)
    try:
        mine, theirs, ratio = await measure_alternately(ours, _decode_all(connection), rounds)
    finally:
        connection.close()
    return Line(
        _SECTION,
        "chart of 200,000 readings",
        mine,
        f"decode {_CHART_READINGS:,}",
        theirs,
        ratio,
        f"at most {_MAX_CHART_RATIO:g} times",
        ratio <= _MAX_CHART_RATIO,
    )


def _decode_all(connection: apsw.Connection) -> TimedRun:
    statement = f"SELECT item, size FROM {rows_name(DEVICE_READINGS.name)} LIMIT {_CHART_READINGS}"

    async def run() -> int:
        for packed, _ in connection.execute(statement):
            ormsgpack.unpackb(packed, ext_hook=_to_decimal)
        return 1

    return run


def _to_decimal(_tag: int, packed: bytes) -> Decimal:
    return Decimal(bytes(packed).decode()).normalize()


def _first_reading(board: str) -> bytes:
    """Build a request that creates the device."""
    body = Boards(1, time.time_ns() // 1_000_000, seed=1).bodies(1, 1)[0]
    return body.replace(hardware_id(0).encode(), board.encode())
