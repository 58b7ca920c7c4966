"""The embedded engine compared with raw SQLite, by number of items, and with DynamoDB Local."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.raw import READINGS, READINGS_PER_BOARD, Raw
from bench.rounds import Line, TimedRun, measure_alternately
from bench.workload import Workload
from tally.store.sqlite import SqliteEngine, open_sqlite
from tests.store.emulators import local_engine

_CLIENTS = 64


@asynccontextmanager
async def filled_engine(boards: int) -> AsyncIterator[tuple[SqliteEngine, Raw]]:
    """Open an engine with this many boards, and a raw connection to its file."""
    with tempfile.TemporaryDirectory(prefix="tally-bench-") as directory:
        async with open_sqlite(Path(directory)) as engine:
            await engine.create_table(READINGS)
            raw = Raw(engine.path, boards)
            raw.fill()
            try:
                yield engine, raw
            finally:
                raw.close()


async def compare_with_raw(rounds: int) -> AsyncIterator[Line]:
    """Compare each operation with the same durable statements, in groups of the same size.

    The raw rows are in a file of their own: decoding an item whose names the engine has learned
    would be less work than decoding a whole item.
    """
    async with filled_engine(boards=1_000) as (engine, _), filled_engine(1_000) as (_, raw):
        ours = Workload(engine, boards=1_000)

        async def raw_pairs() -> int:
            return await raw.updates(25, 2 * _CLIENTS) // 2

        lines: list[tuple[str, TimedRun, TimedRun, float]] = [
            ("durable put, alone", lambda: ours.puts(1, 200), lambda: raw.puts(200, 1), 2.0),
            (
                f"durable put, {_CLIENTS} concurrent",
                lambda: ours.puts(_CLIENTS, 50),
                lambda: raw.puts(50, _CLIENTS),
                2.0,
            ),
            ("get", lambda: ours.gets(1, 4_000), lambda: raw.gets(4_000), 1.4),
            (
                f"query of {READINGS_PER_BOARD}",
                lambda: ours.queries(1, 1_000),
                lambda: raw.queries(1_000),
                2.0,
            ),
            (
                f"conditional update, {_CLIENTS} concurrent",
                lambda: ours.updates(_CLIENTS, 50),
                lambda: raw.updates(50, _CLIENTS),
                2.2,
            ),
            (
                f"transaction of 2, {_CLIENTS} concurrent",
                lambda: ours.transactions(_CLIENTS, 25),
                raw_pairs,
                2.2,
            ),
        ]
        for operation, run, peer, limit in lines:
            mine, theirs, ratio = await measure_alternately(run, peer, rounds)
            yield Line(
                "compared with raw SQLite",
                operation,
                mine,
                "raw SQLite",
                theirs,
                ratio,
                f"at most {limit:g} times raw",
                ratio <= limit,
            )


async def measure_growth(rounds: int, items: int) -> AsyncIterator[Line]:
    """Compare the cost of an operation among many items with the cost among a thousand."""
    few_boards, many_boards = 1_000 // READINGS_PER_BOARD, items // READINGS_PER_BOARD
    async with (
        filled_engine(few_boards) as (small_engine, _),
        filled_engine(many_boards) as (large_engine, _),
    ):
        small, large = Workload(small_engine, few_boards), Workload(large_engine, many_boards)
        lines: list[tuple[str, TimedRun, TimedRun]] = [
            ("get", lambda: large.gets(1, 3_000), lambda: small.gets(1, 3_000)),
            (
                f"query of {READINGS_PER_BOARD}",
                lambda: large.queries(1, 800),
                lambda: small.queries(1, 800),
            ),
            (
                f"durable put, {_CLIENTS} concurrent",
                lambda: large.puts(_CLIENTS, 60),
                lambda: small.puts(_CLIENTS, 60),
            ),
            (
                f"conditional update, {_CLIENTS} concurrent",
                lambda: large.updates(_CLIENTS, 60),
                lambda: small.updates(_CLIENTS, 60),
            ),
        ]
        for operation, run, peer in lines:
            mine, theirs, ratio = await measure_alternately(run, peer, rounds)
            where = f"growth from 1,000 to {items:,} items"
            yield Line(
                where,
                operation,
                mine,
                "1,000 items",
                theirs,
                ratio,
                "at most 1.5 times",
                ratio <= 1.5,
            )


async def compare_with_dynamodb_local(rounds: int) -> AsyncIterator[Line]:
    """Run the same operations through the DynamoDB engine on AWS's local emulator."""
    boards = 30
    async with filled_engine(boards) as (engine, _), local_engine() as emulator:
        await emulator.ensure_table(READINGS)
        ours, theirs = Workload(engine, boards), Workload(emulator, boards)
        await theirs.fill()
        lines: list[tuple[str, TimedRun, TimedRun]] = [
            ("durable put, alone", lambda: ours.puts(1, 100), lambda: theirs.puts(1, 50)),
            (
                f"durable put, {_CLIENTS} concurrent",
                lambda: ours.puts(_CLIENTS, 20),
                lambda: theirs.puts(_CLIENTS, 3),
            ),
            ("get", lambda: ours.gets(1, 500), lambda: theirs.gets(1, 50)),
            (
                f"query of {READINGS_PER_BOARD}",
                lambda: ours.queries(1, 500),
                lambda: theirs.queries(1, 50),
            ),
            (
                f"conditional update, {_CLIENTS} concurrent",
                lambda: ours.updates(_CLIENTS, 20),
                lambda: theirs.updates(_CLIENTS, 3),
            ),
            (
                f"transaction of 2, {_CLIENTS} concurrent",
                lambda: ours.transactions(_CLIENTS, 10),
                lambda: theirs.transactions(_CLIENTS, 2),
            ),
        ]
        for operation, run, peer in lines:
            mine, other, ratio = await measure_alternately(run, peer, rounds)
            yield Line(
                "compared with DynamoDB Local (in memory)",
                operation,
                mine,
                "DynamoDB Local",
                other,
                ratio,
                "less than 1",
                ratio < 1,
            )
