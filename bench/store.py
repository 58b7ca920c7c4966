"""The embedded engine against raw SQLite, its growth with the number of items, and DynamoDB Local beside it."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.raw import PER_BOARD, READINGS, Raw
from bench.rounds import Line, TimedRun, measure_alternately
from bench.workload import Workload
from tally.store.sqlite import SqliteEngine, open_sqlite
from tests.store.emulators import local_engine

_CLIENTS = 64


@asynccontextmanager
async def filled_engine(boards: int) -> AsyncIterator[tuple[SqliteEngine, Raw]]:
    """An engine on a fresh directory with so many boards in it, and a raw connection to the same file."""
    with tempfile.TemporaryDirectory(prefix="tally-bench-") as directory:
        async with open_sqlite(Path(directory)) as engine:
            await engine.create_table(READINGS)
            raw = Raw(engine.path, boards)
            raw.fill()
            try:
                yield engine, raw
            finally:
                raw.close()


async def beside_raw(rounds: int) -> AsyncIterator[Line]:
    """Each operation beside the same statements by hand, durable, in groups of the same size."""
    async with filled_engine(boards=1_000) as (engine, raw):
        ours = Workload(engine, boards=1_000)

        async def raw_pairs() -> int:
            return await raw.updates(25, 2 * _CLIENTS) // 2

        lines: list[tuple[str, TimedRun, TimedRun, float]] = [
            ("durable put, alone", lambda: ours.puts(1, 200), lambda: raw.puts(200, 1), 2.0),
            (
                f"durable put, {_CLIENTS} at once",
                lambda: ours.puts(_CLIENTS, 50),
                lambda: raw.puts(50, _CLIENTS),
                2.0,
            ),
            ("get", lambda: ours.gets(1, 4_000), lambda: raw.gets(4_000), 3.0),
            (
                f"query of {PER_BOARD}",
                lambda: ours.queries(1, 1_000),
                lambda: raw.queries(1_000),
                3.0,
            ),
            (
                f"conditional update, {_CLIENTS} at once",
                lambda: ours.updates(_CLIENTS, 50),
                lambda: raw.updates(50, _CLIENTS),
                0,
            ),
            (
                f"transaction of 2, {_CLIENTS} at once",
                lambda: ours.transactions(_CLIENTS, 25),
                raw_pairs,
                0,
            ),
        ]
        for what, run, peer, most in lines:
            mine, theirs, ratio = await measure_alternately(run, peer, rounds)
            goal = f"at most {most:g} times raw" if most else ""
            yield Line(
                "beside raw SQLite",
                what,
                mine,
                "raw SQLite",
                theirs,
                ratio,
                goal,
                ratio <= most if most else None,
            )


async def growth(rounds: int, items: int) -> AsyncIterator[Line]:
    """The cost of an operation among many items beside the cost among a thousand."""
    few, many = 1_000 // PER_BOARD, items // PER_BOARD
    async with filled_engine(few) as (small_engine, _), filled_engine(many) as (large_engine, _):
        small, large = Workload(small_engine, few), Workload(large_engine, many)
        lines: list[tuple[str, TimedRun, TimedRun]] = [
            ("get", lambda: large.gets(1, 3_000), lambda: small.gets(1, 3_000)),
            (f"query of {PER_BOARD}", lambda: large.queries(1, 800), lambda: small.queries(1, 800)),
            (
                f"durable put, {_CLIENTS} at once",
                lambda: large.puts(_CLIENTS, 60),
                lambda: small.puts(_CLIENTS, 60),
            ),
            (
                f"conditional update, {_CLIENTS} at once",
                lambda: large.updates(_CLIENTS, 60),
                lambda: small.updates(_CLIENTS, 60),
            ),
        ]
        for what, run, peer in lines:
            mine, theirs, ratio = await measure_alternately(run, peer, rounds)
            where = f"growth from 1,000 to {items:,} items"
            yield Line(
                where, what, mine, "1,000 items", theirs, ratio, "at most 1.5 times", ratio <= 1.5
            )


async def beside_dynamodb_local(rounds: int) -> AsyncIterator[Line]:
    """The same work through the DynamoDB engine on AWS's emulator on this machine."""
    boards = 30
    async with filled_engine(boards) as (engine, _), local_engine() as emulator:
        await emulator.ensure_table(READINGS)
        ours, theirs = Workload(engine, boards), Workload(emulator, boards)
        await theirs.fill()
        lines: list[tuple[str, TimedRun, TimedRun]] = [
            ("durable put, alone", lambda: ours.puts(1, 100), lambda: theirs.puts(1, 50)),
            (
                f"durable put, {_CLIENTS} at once",
                lambda: ours.puts(_CLIENTS, 20),
                lambda: theirs.puts(_CLIENTS, 3),
            ),
            ("get", lambda: ours.gets(1, 500), lambda: theirs.gets(1, 50)),
            (f"query of {PER_BOARD}", lambda: ours.queries(1, 500), lambda: theirs.queries(1, 50)),
            (
                f"conditional update, {_CLIENTS} at once",
                lambda: ours.updates(_CLIENTS, 20),
                lambda: theirs.updates(_CLIENTS, 3),
            ),
            (
                f"transaction of 2, {_CLIENTS} at once",
                lambda: ours.transactions(_CLIENTS, 10),
                lambda: theirs.transactions(_CLIENTS, 2),
            ),
        ]
        for what, run, peer in lines:
            mine, other, ratio = await measure_alternately(run, peer, rounds)
            yield Line(
                "beside DynamoDB Local (in memory)",
                what,
                mine,
                "DynamoDB Local",
                other,
                ratio,
                "less than 1",
                ratio < 1,
            )
