"""The devices backend beside InfluxDB and VictoriaMetrics, where they are installed.

All three receive the same readings, 100 per request with five sensors each, from the same client
with eight connections, in alternating rounds. Then each draws a chart of 90 days and of a year with
a bucket per day, from a board that measures every five minutes. The guarantees differ: each line
states when a write is on disk.
"""

import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from bench.devices_server import DevicesServer, open_devices_server
from bench.load import Load, at_full_speed, merge_loads
from bench.programs import Program
from bench.readings import WINDOW_MS, Boards, hardware_id
from bench.rounds import Line
from bench.timeseries_peers import (
    Peer,
    folder_bytes,
    line_protocol,
    open_influxdb,
    open_victoria_metrics,
)

_SECTION: Final = "devices beside time series databases, over HTTP"
_CLIENTS: Final = 8
_ROUNDS: Final = 3
_REQUESTS: Final = 300
_READINGS: Final = 100
_BOARDS: Final = 200
_DAY_MS: Final = 86_400_000
_CHARTS: Final = 15
_BUCKET_BYTES: Final = 20
_CHART_BOARD: Final = 1_000_000
MIN_INGEST_SHARE: Final = 0.25


@dataclass(slots=True)
class Target:
    """A database under test, and what was measured."""

    name: str
    durability: str
    program: Program
    write: Callable[[bytes], Awaitable[None]]
    encode: Callable[[dict[str, object]], bytes]
    chart: Callable[[int, int], Awaitable[bytes]]
    size: Callable[[], int]
    loads: list[Load] = field(default_factory=list)
    cpu: float = 0.0

    @property
    def rate(self) -> float:
        return merge_loads(self.loads).rate * _READINGS

    @property
    def readings(self) -> int:
        return merge_loads(self.loads).count * _READINGS


async def compare_with_databases() -> AsyncIterator[Line]:
    """Measure ingest, bytes, charts and memory of each."""
    with tempfile.TemporaryDirectory(prefix="tally-bench-") as directory:
        folder = Path(directory)
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(
                open_devices_server(folder / "tally", retention_days=3_650)
            )
            peers = [
                await stack.enter_async_context(open_influxdb(folder / "influxdb")),
                await stack.enter_async_context(open_victoria_metrics(folder / "victoria")),
            ]
            ours = _tally(server, folder / "tally")
            theirs = [_peer(peer) for peer in peers if peer is not None]
            await _ingest([ours, *theirs])
            for peer in theirs:
                yield _ingest_line(ours, peer)
            sizes = {target.name: target.size() / target.readings for target in [ours, *theirs]}
            await _fill_year([ours, *theirs])
            for database in filter(None, peers):
                await database.flush()
            for days in (90, 365):
                charts = await _charts([ours, *theirs], days)
                for peer in theirs:
                    yield _chart_line(days, charts[ours.name], peer.name, charts[peer.name])
            for peer in theirs:
                yield _size_line(sizes[ours.name], peer, sizes[peer.name])
                yield _memory_line(ours, peer)


def _tally(server: DevicesServer, folder: Path) -> Target:
    async def chart(first: int, last: int) -> bytes:
        points = (last - first) // _DAY_MS + 2
        board = hardware_id(_CHART_BOARD)
        return await server.get(
            f"/devices/{board}/series?sensor=bme280_temp_c&from={first}&to={last}&points={points}"
        )

    return Target(
        "Tally",
        "synced before each response, each reading once",
        server.program,
        server.post_data,
        msgspec.json.encode,
        chart,
        lambda: folder_bytes(folder),
    )


def _peer(peer: Peer) -> Target:
    async def chart(first: int, last: int) -> bytes:
        return await peer.get(peer.chart(hardware_id(_CHART_BOARD), first, last))

    return Target(
        peer.name,
        peer.durability,
        peer.program,
        peer.write,
        line_protocol,
        chart,
        peer.size,
    )


async def _ingest(targets: list[Target]) -> None:
    """Send the same readings to all, in alternating rounds after a short one."""
    boards = Boards(_BOARDS, _now_ms())
    for number in range(_ROUNDS + 1):
        requests = boards.requests(_REQUESTS if number else _BOARDS, _READINGS)
        for target in targets:
            bodies = [target.encode(request) for request in requests]
            cpu = target.program.cpu_seconds()
            load = await at_full_speed(target.write, bodies, _CLIENTS)
            target.loads.append(load)
            if number == 0:
                target.loads.clear()
                continue
            target.cpu += target.program.cpu_seconds() - cpu


async def _fill_year(targets: list[Target]) -> None:
    """Store a year of readings of one board."""
    count = 365 * _DAY_MS // WINDOW_MS
    boards = Boards(1, _now_ms() - (365 - 80) * _DAY_MS, seed=5)
    requests = boards.requests(count // _READINGS, _READINGS)
    board = hardware_id(_CHART_BOARD)
    for request in requests:
        for reading in request["readings"]:
            reading["batch_id"] = reading["batch_id"].replace(request["hardware_id"], board)
        request["hardware_id"] = board
    for target in targets:
        bodies = [target.encode(request) for request in requests]
        await at_full_speed(target.write, bodies, _CLIENTS)


async def _charts(targets: list[Target], days: int) -> dict[str, float]:
    """Return the median seconds of a chart, drawn in turn by each."""
    seconds: dict[str, list[float]] = {target.name: [] for target in targets}
    last = _now_ms()
    for number in range(_CHARTS + 1):
        for target in targets:
            started = time.perf_counter()
            chart = await target.chart(last - days * _DAY_MS, last)
            if len(chart) < days * _BUCKET_BYTES:
                raise AssertionError(f"the chart of {target.name} has too few buckets: {chart!r}")
            if number:  # the first one waits until the readings are indexed
                seconds[target.name].append(time.perf_counter() - started)
    return {name: statistics.median(found) for name, found in seconds.items()}


def _ingest_line(ours: Target, peer: Target) -> Line:
    share = ours.rate / peer.rate
    is_goal = peer.name == "InfluxDB"
    note = "; ".join(
        f"{target.name}: {target.rate:,.0f} readings/s,"
        f" {target.cpu / target.readings * 1e6:.1f} µs CPU each, {target.durability}"
        for target in (ours, peer)
    )
    return Line(
        _SECTION,
        "readings, 100 per request",
        1e6 / ours.rate,
        peer.name,
        1e6 / peer.rate,
        peer.rate / ours.rate,
        f"at least {MIN_INGEST_SHARE:.0%} of its rate" if is_goal else "",
        share >= MIN_INGEST_SHARE if is_goal else None,
        f"{share:.0%} of its rate; {note}",
    )


def _chart_line(days: int, ours: float, peer: str, theirs: float) -> Line:
    is_goal = peer == "InfluxDB" and days == 365
    return Line(
        _SECTION,
        f"chart of {days} days, a bucket per day",
        ours * 1e6,
        peer,
        theirs * 1e6,
        ours / theirs,
        "faster" if is_goal else "",
        ours < theirs if is_goal else None,
    )


def _size_line(ours: float, peer: Target, theirs: float) -> Line:
    return Line(
        _SECTION,
        "bytes on disk per reading, not µs",
        ours,
        peer.name,
        theirs,
        ours / theirs,
        note="files as they are after the load, with logs that are not yet compacted",
    )


def _memory_line(ours: Target, peer: Target) -> Line:
    mine, theirs = ours.program.memory(), peer.program.memory()
    return Line(_SECTION, "anonymous memory in MB, not µs", mine, peer.name, theirs, mine / theirs)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
