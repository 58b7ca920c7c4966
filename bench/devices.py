"""The devices backend over HTTP, durable, beside the raw store doing the same transactions in the same run.

The server is a real `tally serve` in a process of its own; this process makes the load. Goals:
1,000 requests a second of one reading, and 20,000 readings a second in batches of 100, p99 under 50
ms, memory flat, and reads that do not slow down as a device's history grows.
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
from bench.rounds import Line, measure_alternately
from tally.devices.repository.readings import DEVICE_READINGS, PROCESSED_BATCHES
from tally.store.api import TransactionBatch, TransactionResult
from tally.store.sqlite import SqliteEngine, open_sqlite

_BOARDS = 2_000
_CLIENTS = 8
_MAX_SECONDS = 0.05
_OVER_HTTP = "devices over HTTP, durable"
_FLEET = 10_000
_AN_HOUR = 360_000  # requests: 100 a second, the most that such a fleet sends
_AT_ONCE = 10_000  # bodies that are made, and then sent
SECONDS = 8
_ROUNDS = 4
_MAX_STOLEN = 0.02  # of one processor's time
_WRITER_PROCESS_RATE = 3_000  # as the server has it


async def ingestion(seconds: int = SECONDS) -> AsyncIterator[Line]:
    """Readings come in, at the rates to hold and as fast as they can."""
    with tempfile.TemporaryDirectory(prefix="tally-bench-") as directory:
        async with (
            open_devices_server(Path(directory) / "served") as server,
            raw_store(Path(directory) / "raw") as raw,
        ):
            # The server meets every board, and its caches fill, before anything is measured.
            boards = Boards(_BOARDS, _now_ms())
            await at_full_speed(
                server.post_data, [*boards.bodies(_BOARDS, 1), *boards.bodies(400, 100)], _CLIENTS
            )
            await at_full_speed(
                _into(raw), boards.transactions(400, 100, _now_ms() // 1000), _CLIENTS
            )
            for each, per_second in ((1, 1_000), (100, 200)):
                yield await _held(server, raw, boards, (each, per_second, seconds))
            yield await _full_speed(server, raw, boards, 150 * seconds)
            before = server.memory()
            await at_full_speed(server.post_data, boards.bodies(150 * seconds, 100), _CLIENTS)
            yield _memory(before, server.memory(), 15_000 * seconds)
            async with open_devices_server(Path(directory) / "served") as second:
                yield await _two_instances((server, second), boards, seconds)


async def _held(
    server: DevicesServer, raw: SqliteEngine, boards: Boards, wanted: tuple[int, int, int]
) -> Line:
    """The server, and the store by itself, in turns."""
    each, per_second, seconds = wanted
    count, peers, used = per_second * seconds, list[Load](), server.cpu_seconds()

    async def in_between() -> None:
        peers.append(
            await at_rate(
                _into(raw), boards.transactions(count, each, _now_ms() // 1000), per_second
            )
        )

    rounds = await _in_rounds(server.post_data, boards, wanted, in_between)
    used = (server.cpu_seconds() - used) / (len(rounds) * count * each) * 1e6
    ours, peer = merge_loads(_calm(rounds) or [load for _, load in rounds]), merge_loads(peers)
    note = f"{ours.describe(each)}; {_told(rounds)}; {used:.0f} µs of processor a reading; raw: {peer.describe(each)}"
    half, raw_half = ours.quantile(0.5) * 1e6, peer.quantile(0.5) * 1e6
    what, goal = (
        f"{per_second * each:,} readings a second, {each} in a request",
        f"{per_second * each:,}/s, p99 < 50 ms",
    )
    return Line(
        _OVER_HTTP,
        what,
        half,
        "raw store",
        raw_half,
        half / raw_half,
        goal,
        _is_held(rounds, per_second),
        note,
    )


async def _in_rounds(
    post: Callable[[bytes], Awaitable[None]],
    boards: Boards,
    wanted: tuple[int, int, int],
    in_between: Callable[[], Awaitable[None]],
) -> list[tuple[float, Load]]:
    """Rounds of the load, each with the share of a processor that was stolen, until there were enough in which little was.

    A host that gives our processors to another stops the server with all else for tenths of a
    second: such rounds are told, and the goal is judged by the others, all of their requests
    together.
    """
    each, per_second, seconds = wanted
    rounds = list[tuple[float, Load]]()
    while len(_calm(rounds)) < _ROUNDS and len(rounds) < 3 * _ROUNDS:
        bodies = boards.bodies(per_second * seconds, each)
        stolen = stolen_seconds()
        load = await at_rate(post, bodies, per_second)
        rounds.append(((stolen_seconds() - stolen) / load.seconds, load))
        await in_between()
    return rounds


def _calm(rounds: Sequence[tuple[float, Load]]) -> list[Load]:
    return [load for stolen, load in rounds if stolen <= _MAX_STOLEN]


def _is_held(rounds: Sequence[tuple[float, Load]], per_second: int) -> bool | None:
    """Whether the rate was held; None if the machine was never ours."""
    calm = _calm(rounds)
    return merge_loads(calm).meets(per_second, _MAX_SECONDS) if calm else None


def _told(rounds: Sequence[tuple[float, Load]]) -> str:
    """Each round's p99, and the share of a processor that was not ours in it."""
    return "rounds: " + ", ".join(
        f"{load.quantile(0.99) * 1000:.0f} ms ({stolen:.1%} stolen)" for stolen, load in rounds
    )


async def _full_speed(
    server: DevicesServer, raw: SqliteEngine, boards: Boards, requests: int
) -> Line:
    each = 100
    bodies = boards.bodies(requests, each)
    used = server.cpu_seconds()
    ours = await at_full_speed(server.post_data, bodies, _CLIENTS)
    used = (server.cpu_seconds() - used) / (requests * each) * 1e6
    peer = await at_full_speed(
        _into(raw), boards.transactions(requests, each, _now_ms() // 1000), _CLIENTS
    )
    note = (
        f"{ours.describe(each)}; {used:.0f} µs of processor a reading; raw: {peer.describe(each)}"
    )
    mine, theirs = 1e6 / ours.rate / each, 1e6 / peer.rate / each
    what = f"as fast as {_CLIENTS} clients go, {each} in a request"
    return Line(_OVER_HTTP, what, mine, "raw store", theirs, mine / theirs, note=note)


async def lasting(hours: float) -> AsyncIterator[Line]:
    """As many requests of one reading as boards send in so many hours, at ten times their pace: memory stays as it was."""
    count = int(hours * _AN_HOUR)
    with tempfile.TemporaryDirectory(prefix="tally-bench-") as directory:
        async with open_devices_server(Path(directory)) as server:
            boards = Boards(_FLEET, _now_ms())
            # Every board is met, and all caches have their size, before memory is looked at.
            await at_full_speed(
                server.post_data,
                [*boards.bodies(2 * _FLEET, 1), *boards.bodies(400, 100)],
                _CLIENTS,
            )
            before, latencies = server.memory(), list[float]()
            for start in range(0, count, _AT_ONCE):
                load = await at_rate(
                    server.post_data, boards.bodies(min(_AT_ONCE, count - start), 1), 1_000
                )
                latencies += load.latencies
            after = server.memory()
    latencies.sort()
    slowest = f"p99 {latencies[int(0.99 * len(latencies))] * 1000:.1f} ms"
    yield _memory(before, after, count, f"; {slowest}")


async def _two_instances(
    servers: tuple[DevicesServer, DevicesServer], boards: Boards, seconds: int
) -> Line:
    """The same from two programs that share a data directory, each of which gets every other request."""
    each, per_second, turns, fastest = 100, 200, cycle(servers), list[Load]()

    async def post(body: bytes) -> None:
        await next(turns).post_data(body)

    async def in_between() -> None:
        fastest.append(await at_full_speed(post, boards.bodies(100 * seconds, each), _CLIENTS))

    await at_full_speed(post, boards.bodies(_BOARDS, 1), _CLIENTS)
    rounds = await _in_rounds(post, boards, (each, per_second, seconds), in_between)
    ours, most = merge_loads(_calm(rounds) or [load for _, load in rounds]), merge_loads(fastest)
    mine, theirs = ours.quantile(0.5) * 1e6, most.quantile(0.5) * 1e6
    note = f"{ours.describe(each)}; {_told(rounds)}; as fast as {_CLIENTS} clients go: {most.describe(each)}"
    what, is_held = (
        f"{per_second * each:,} readings a second, two instances",
        _is_held(rounds, per_second),
    )
    return Line(
        _OVER_HTTP,
        what,
        mine,
        "as fast as it goes",
        theirs,
        mine / theirs,
        "p99 < 50 ms",
        is_held,
        note,
    )


def _memory(before: float, after: float, readings: int, more: str = "") -> Line:
    what, note = (
        f"memory after {readings:,} more readings",
        f"{before:.0f} MB before, {after:.0f} MB after{more}",
    )
    return Line(
        _OVER_HTTP,
        what,
        after,
        "before, MB",
        before,
        after / before,
        "at most 1.1 times",
        after <= before * 1.1,
        note,
    )


def _into(engine: SqliteEngine) -> Callable[[TransactionBatch], Awaitable[None]]:
    async def send(transactions: TransactionBatch) -> None:
        outcomes = await engine.transact_each(transactions)
        if not all(isinstance(outcome, TransactionResult) for outcome in outcomes):
            raise AssertionError("not all readings were stored")

    return send


@asynccontextmanager
async def raw_store(directory: Path) -> AsyncIterator[SqliteEngine]:
    """The embedded engine by itself, with the two tables that a reading goes to."""
    async with open_sqlite(directory, writer_process_rate=_WRITER_PROCESS_RATE) as engine:
        for table in (PROCESSED_BATCHES, DEVICE_READINGS):
            await engine.ensure_table(table)
        yield engine


async def histories(rounds: int, readings: int) -> AsyncIterator[Line]:
    """Reads of a device with a long history beside those of one with a thousand readings."""
    few, many, now = hardware_id(1), hardware_id(2), _now_ms()
    with tempfile.TemporaryDirectory(prefix="tally-bench-") as directory:
        async with raw_store(Path(directory)) as engine:
            path = engine.path
        for board, count in ((few, 1_000), (many, readings)):
            fill_history(path, board, count, now)
        async with open_devices_server(Path(directory)) as server:
            for board in (few, many):
                await server.post_data(_hello(board))
            section = f"reads over HTTP, history of 1,000 and {readings:,} readings"
            for what, path_of in _READS.items():
                ours, peer = (
                    _reads(server, board, count, now, path_of)
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
    server: DevicesServer, board: str, count: int, now: int, path_of: Callable[[int], str]
) -> Any:
    chance = Random(count)

    async def run() -> int:
        for _ in range(100):
            await server.get(
                f"/devices/{board}{path_of(now - chance.randrange(200, count - 100) * 60_000)}"
            )
        return 100

    return run


_READS: dict[str, Callable[[int], str]] = {
    "latest reading": lambda _: "/latest",
    "100 readings somewhere": lambda at: f"/readings?from={at}&limit=100",
    "100 readings, newest first": lambda at: f"/readings?to={at}&order=desc&limit=100",
    "chart of 100 minutes": lambda at: (
        f"/series?sensor=bme280_temp_c&from={at}&to={at + 6_000_000}&points=50"
    ),
}


def _hello(board: str) -> bytes:
    """A reading, so that there is a record of the device."""
    body = Boards(1, _now_ms(), seed=1).bodies(1, 1)[0]
    return body.replace(hardware_id(0).encode(), board.encode())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
