"""The devices backend over HTTP, compared with the same transactions on the store alone.

`tally serve` and the load generator are separate processes. Goals: 1,000 requests/s with one
reading, 20,000 readings/s in batches of 100, p99 under 50 ms, constant memory, and reads that do
not slow down with the length of the history.
"""

import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

from bench.devices_server import DevicesServer, open_devices_server
from bench.load import Load, at_full_speed, at_rate, merge_loads
from bench.programs import stolen_seconds
from bench.readings import Boards, fill_history, hardware_id
from bench.rounds import Line, measure_alternately, memory_line
from tally.devices.repository.readings import DEVICE_READINGS, PROCESSED_BATCHES
from tally.store.api import TransactionBatch, TransactionResult
from tally.store.sqlite import SqliteEngine, open_sqlite

_BOARDS = 2_000
_CLIENTS = 8
_MAX_P99_SECONDS = 0.05
_OVER_HTTP = "devices over HTTP, durable"
_FLEET = 10_000
_REQUESTS_PER_HOUR = 360_000  # 100 per second, the maximum of such a fleet
_CHUNK_REQUESTS = 10_000  # generated before they are sent
SECONDS = 8
_ROUNDS = 4
_MAX_STEAL = 0.02  # share of one CPU
_WRITER_PROCESS_RATE = 3_000  # the default of the server


async def ingestion(seconds: int = SECONDS) -> AsyncIterator[Line]:
    """Measure ingestion at the target rates and at full speed."""
    with tempfile.TemporaryDirectory(prefix="tally-bench-") as directory:
        async with (
            open_devices_server(Path(directory) / "served") as server,
            raw_store(Path(directory) / "raw") as raw,
        ):
            # Warm up: the server sees every board and fills its caches.
            boards = Boards(_BOARDS, _now_ms())
            await at_full_speed(
                server.post_data, [*boards.bodies(_BOARDS, 1), *boards.bodies(400, 100)], _CLIENTS
            )
            await at_full_speed(
                _writer(raw), boards.transactions(400, 100, _now_ms() // 1000), _CLIENTS
            )
            for batch_size, per_second in ((1, 1_000), (100, 200)):
                yield await _at_target_rate(server, raw, boards, (batch_size, per_second, seconds))
            yield await _full_speed(server, raw, boards, 150 * seconds)
            before = server.memory()
            await at_full_speed(server.post_data, boards.bodies(150 * seconds, 100), _CLIENTS)
            yield _memory(before, server.memory(), 15_000 * seconds)
            async with open_devices_server(Path(directory) / "served") as second:
                yield await _two_instances((server, second), boards, seconds)


async def _at_target_rate(
    server: DevicesServer, raw: SqliteEngine, boards: Boards, load_shape: tuple[int, int, int]
) -> Line:
    """Measure the server and the store alone in alternating rounds."""
    batch_size, per_second, seconds = load_shape
    count, peers, cpu = per_second * seconds, list[Load](), server.cpu_seconds()

    async def in_between() -> None:
        peers.append(
            await at_rate(
                _writer(raw), boards.transactions(count, batch_size, _now_ms() // 1000), per_second
            )
        )

    rounds = await _in_rounds(server.post_data, boards, load_shape, in_between)
    cpu = (server.cpu_seconds() - cpu) / (len(rounds) * count * batch_size) * 1e6
    ours, peer = (
        merge_loads(_undisturbed(rounds) or [load for _, load in rounds]),
        merge_loads(peers),
    )
    note = (
        f"{ours.describe(batch_size)}; {_describe_rounds(rounds)}; {cpu:.0f} µs CPU per reading;"
        f" raw: {peer.describe(batch_size)}"
    )
    median, raw_median = ours.quantile(0.5) * 1e6, peer.quantile(0.5) * 1e6
    what, goal = (
        f"{per_second * batch_size:,} readings/s, {batch_size} per request",
        f"{per_second * batch_size:,}/s, p99 < 50 ms",
    )
    return Line(
        _OVER_HTTP,
        what,
        median,
        "raw store",
        raw_median,
        median / raw_median,
        goal,
        _meets_goal(rounds, per_second),
        note,
    )


async def _in_rounds(
    post: Callable[[bytes], Awaitable[None]],
    boards: Boards,
    load_shape: tuple[int, int, int],
    in_between: Callable[[], Awaitable[None]],
) -> list[tuple[float, Load]]:
    """Run rounds of load, with the CPU steal of each, until enough rounds had little steal.

    A host that gives the CPUs to another guest stops the server for tenths of a second. Such rounds
    are reported; the goal applies to all requests of the other rounds.
    """
    batch_size, per_second, seconds = load_shape
    rounds = list[tuple[float, Load]]()
    while len(_undisturbed(rounds)) < _ROUNDS and len(rounds) < 3 * _ROUNDS:
        bodies = boards.bodies(per_second * seconds, batch_size)
        steal = stolen_seconds()
        load = await at_rate(post, bodies, per_second)
        rounds.append(((stolen_seconds() - steal) / load.seconds, load))
        await in_between()
    return rounds


def _undisturbed(rounds: Sequence[tuple[float, Load]]) -> list[Load]:
    return [load for steal, load in rounds if steal <= _MAX_STEAL]


def _meets_goal(rounds: Sequence[tuple[float, Load]], per_second: int) -> bool | None:
    """Whether the goal was met; None if every round was disturbed."""
    undisturbed = _undisturbed(rounds)
    return merge_loads(undisturbed).meets(per_second, _MAX_P99_SECONDS) if undisturbed else None


def _describe_rounds(rounds: Sequence[tuple[float, Load]]) -> str:
    """Format the p99 and the CPU steal of each round."""
    return "rounds: " + ", ".join(
        f"{load.quantile(0.99) * 1000:.0f} ms ({steal:.1%} steal)" for steal, load in rounds
    )


async def _full_speed(
    server: DevicesServer, raw: SqliteEngine, boards: Boards, requests: int
) -> Line:
    batch_size = 100
    bodies = boards.bodies(requests, batch_size)
    cpu = server.cpu_seconds()
    ours = await at_full_speed(server.post_data, bodies, _CLIENTS)
    cpu = (server.cpu_seconds() - cpu) / (requests * batch_size) * 1e6
    peer = await at_full_speed(
        _writer(raw), boards.transactions(requests, batch_size, _now_ms() // 1000), _CLIENTS
    )
    note = (
        f"{ours.describe(batch_size)}; {cpu:.0f} µs CPU per reading;"
        f" raw: {peer.describe(batch_size)}"
    )
    mine, theirs = 1e6 / ours.rate / batch_size, 1e6 / peer.rate / batch_size
    what = f"full speed with {_CLIENTS} clients, {batch_size} per request"
    return Line(_OVER_HTTP, what, mine, "raw store", theirs, mine / theirs, note=note)


async def endurance(hours: float) -> AsyncIterator[Line]:
    """Send the requests of that many hours at ten times the pace, and measure memory."""
    count = int(hours * _REQUESTS_PER_HOUR)
    with tempfile.TemporaryDirectory(prefix="tally-bench-") as directory:
        async with open_devices_server(Path(directory)) as server:
            boards = Boards(_FLEET, _now_ms())
            # Warm up: the server sees every board and fills its caches.
            await at_full_speed(
                server.post_data,
                [*boards.bodies(2 * _FLEET, 1), *boards.bodies(400, 100)],
                _CLIENTS,
            )
            before, latencies = server.memory(), list[float]()
            for start in range(0, count, _CHUNK_REQUESTS):
                load = await at_rate(
                    server.post_data, boards.bodies(min(_CHUNK_REQUESTS, count - start), 1), 1_000
                )
                latencies += load.latencies
            after = server.memory()
    latencies.sort()
    latency = f"p99 {latencies[int(0.99 * len(latencies))] * 1000:.1f} ms"
    yield _memory(before, after, count, f"; {latency}")


async def _two_instances(
    servers: tuple[DevicesServer, DevicesServer], boards: Boards, seconds: int
) -> Line:
    """Measure two instances on one data directory, with alternating requests."""
    batch_size, per_second, alternating, full_speed = 100, 200, cycle(servers), list[Load]()

    async def post(body: bytes) -> None:
        await next(alternating).post_data(body)

    async def in_between() -> None:
        full_speed.append(
            await at_full_speed(post, boards.bodies(100 * seconds, batch_size), _CLIENTS)
        )

    await at_full_speed(post, boards.bodies(_BOARDS, 1), _CLIENTS)
    rounds = await _in_rounds(post, boards, (batch_size, per_second, seconds), in_between)
    ours, maximum = (
        merge_loads(_undisturbed(rounds) or [load for _, load in rounds]),
        merge_loads(full_speed),
    )
    mine, theirs = ours.quantile(0.5) * 1e6, maximum.quantile(0.5) * 1e6
    note = (
        f"{ours.describe(batch_size)}; {_describe_rounds(rounds)};"
        f" full speed with {_CLIENTS} clients: {maximum.describe(batch_size)}"
    )
    what, is_met = (
        f"{per_second * batch_size:,} readings/s, two instances",
        _meets_goal(rounds, per_second),
    )
    return Line(
        _OVER_HTTP,
        what,
        mine,
        "full speed",
        theirs,
        mine / theirs,
        "p99 < 50 ms",
        is_met,
        note,
    )


def _memory(before: float, after: float, readings: int, suffix: str = "") -> Line:
    return memory_line(_OVER_HTTP, f"{readings:,} more readings", before, after, suffix)


def _writer(engine: SqliteEngine) -> Callable[[TransactionBatch], Awaitable[None]]:
    async def write(transactions: TransactionBatch) -> None:
        outcomes = await engine.transact_each(transactions)
        if not all(isinstance(outcome, TransactionResult) for outcome in outcomes):
            raise AssertionError("not all readings were stored")

    return write


@asynccontextmanager
async def raw_store(directory: Path) -> AsyncIterator[SqliteEngine]:
    """Open the embedded engine with the two tables of readings."""
    async with open_sqlite(directory, writer_process_rate=_WRITER_PROCESS_RATE) as engine:
        for table in (PROCESSED_BATCHES, DEVICE_READINGS):
            await engine.ensure_table(table)
        yield engine


async def histories(rounds: int, readings: int) -> AsyncIterator[Line]:
    """Compare reads of a long history with reads of 1,000 readings."""
    few, many, now = hardware_id(1), hardware_id(2), _now_ms()
    with tempfile.TemporaryDirectory(prefix="tally-bench-") as directory:
        async with raw_store(Path(directory)) as engine:
            path = engine.path
        for board, count in ((few, 1_000), (many, readings)):
            fill_history(path, board, count, now)
        async with open_devices_server(Path(directory)) as server:
            for board in (few, many):
                await server.post_data(_first_reading(board))
            section = f"reads over HTTP, history of 1,000 and {readings:,} readings"
            for what, path_at in _READS.items():
                ours, peer = (
                    _reads(server, board, count, now, path_at)
                    for board, count in ((many, readings), (few, 1_000))
                )
                mine, theirs, ratio = await measure_alternately(ours, peer, rounds)
                yield Line(
                    section,
                    what,
                    mine,
                    "1,000 readings",
                    theirs,
                    ratio,
                    "at most 1.5 times",
                    ratio <= 1.5,
                )


def _reads(
    server: DevicesServer, board: str, count: int, now: int, path_at: Callable[[int], str]
) -> Any:
    rng = Random(count)

    async def run() -> int:
        for _ in range(100):
            await server.get(
                f"/devices/{board}{path_at(now - rng.randrange(200, count - 100) * 60_000)}"
            )
        return 100

    return run


_READS: dict[str, Callable[[int], str]] = {
    "latest reading": lambda _: "/latest",
    "100 readings at a random time": lambda time_ms: f"/readings?from={time_ms}&limit=100",
    "100 readings, newest first": lambda time_ms: f"/readings?to={time_ms}&order=desc&limit=100",
    "chart of 100 minutes": lambda time_ms: (
        f"/series?sensor=bme280_temp_c&from={time_ms}&to={time_ms + 6_000_000}&points=50"
    ),
}


def _first_reading(board: str) -> bytes:
    """Build a request that creates the device."""
    body = Boards(1, _now_ms(), seed=1).bodies(1, 1)[0]
    return body.replace(hardware_id(0).encode(), board.encode())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
