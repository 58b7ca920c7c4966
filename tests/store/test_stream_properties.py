"""Any mixture of writes, expiries, restarts and crashing consumers: every change is seen once."""

import asyncio
import tempfile
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally.store.api import BatchPut, Delete, Engine, Put, Transaction, TransactionBatch, Update
from tally.store.api import Scan as ScanTable
from tally.store.changes import START, Change
from tally.store.dynamodb.engine import DynamoDBEngine
from tally.store.dynamodb.opening import open_dynamodb
from tally.store.dynamodb.stream_reader import StreamReader
from tally.store.errors import StoreError
from tally.store.expressions import F, not_exists
from tally.store.schema import Table
from tally.store.sqlite import SqliteEngine
from tests.store.emulators import MADE_UP, dynamodb_local
from tests.store.streams import BOTH, WAIT_SECONDS, key_of, replay
from tests.store.tables import all_items, fresh

NOW = 2_000_000_000
HOUR = 3_600
END = {"id": "end", "at": "end"}

_OWNERS, _TIMES = st.sampled_from("ab"), st.sampled_from("xyz")
_KEYS = st.builds(lambda owner, at: {"id": owner, "at": at}, _OWNERS, _TIMES)
_VALUES = st.sampled_from([0, 1, True, "1", None, [1], {"m": 1}, NOW - 2 * HOUR])
_ITEMS = st.builds(
    lambda key, value, due: {**key, "v": value, **due},
    _KEYS,
    _VALUES,
    st.sampled_from([{}, {"expires": NOW - 2 * HOUR}, {"expires": NOW + HOUR}]),
)
_PROCESSES = st.integers(0, 1)
_STEPS = st.one_of(
    st.tuples(st.just("put"), _ITEMS, st.booleans()),
    st.tuples(st.just("update"), _KEYS, _VALUES),
    st.tuples(st.just("delete"), _KEYS),
    st.tuples(st.just("transact"), st.lists(_ITEMS, min_size=1, max_size=3), st.booleans()),
    st.tuples(st.just("bulk"), st.lists(_ITEMS, min_size=1, max_size=5), st.booleans()),
    st.tuples(st.just("sweep"), st.integers(1, 5)),
    st.tuples(st.just("restart")),
    st.tuples(st.just("consume"), st.integers(1, 4), st.booleans()),
)
# Each step happens in one of two processes that share the table.
_RUNS = st.lists(st.tuples(_PROCESSES, _STEPS), max_size=30)


class Processes(Protocol):
    """Two engines on one store, as two processes have them."""

    table: Table
    engines: list[Any]

    async def restart(self, number: int) -> None:
        """End a process and start it again."""


@dataclass(slots=True)
class SqliteProcesses:
    """Two engines on one data directory."""

    directory: Path
    table: Table = BOTH
    engines: list[Any] = field(default_factory=list)

    def start(self) -> None:
        self.engines = [SqliteEngine(self.directory), SqliteEngine(self.directory)]

    async def restart(self, number: int) -> None:
        await self.engines[number].close()
        self.engines[number] = SqliteEngine(self.directory)

    async def close(self) -> None:
        for engine in self.engines:
            await engine.close()


@dataclass(slots=True)
class LocalProcesses:
    """Two engines on DynamoDB Local."""

    engines: list[DynamoDBEngine]
    table: Table

    async def restart(self, number: int) -> None:
        """The reader of streams is the only state of an engine."""
        engine = self.engines[number]
        engine._streams = StreamReader(engine._streams._requests)


async def write(engine: Engine, table: Table, step: tuple[Any, ...]) -> None:
    """Run one step; a rejected write is part of the mixture."""
    kind, *arguments = step
    condition = not_exists("id") if arguments[-1] is True else None
    if kind == "put":
        await engine.put(Put(table, arguments[0], condition))
    elif kind == "update":
        await engine.update(Update(table, arguments[0], (F("v").set(arguments[1]),)))
    elif kind == "delete":
        await engine.delete(Delete(table, arguments[0]))
    elif kind == "transact":
        puts = tuple(Put(table, item, condition) for item in arguments[0])
        await engine.transact(Transaction(puts))
    elif kind == "bulk":
        await engine.transact_each(
            TransactionBatch(BatchPut(table, arguments[0], condition=condition))
        )
    elif kind == "sweep":
        await engine.sweep(table, NOW, arguments[0])


@dataclass(slots=True)
class Consumer:
    """Reads a few changes at a time; a crash loses its progress since the last checkpoint."""

    table: Table
    checkpoint: str = START
    seen: dict[str, Change] = field(default_factory=dict)
    runs: list[list[str]] = field(default_factory=list)

    async def read(self, engine: Engine, count: int, *, crashes: bool) -> None:
        """Read up to this many changes, at most to the item that marks the end so far."""
        mark = {"id": "mark", "at": fresh()}
        await engine.put(Put(self.table, mark))
        run: list[str] = []
        async with aclosing(engine.changes(self.table, self.checkpoint)) as changes:
            async for change in changes:
                assert self.seen.setdefault(change.position, change) == change
                run.append(change.position)
                if len(run) == count or change.key == mark:
                    break
        self.runs.append(run)
        if not crashes:
            self.checkpoint = run[-1]


async def run_steps(processes: Processes, steps: list[tuple[int, tuple[Any, ...]]]) -> None:
    table, consumer = processes.table, Consumer(processes.table)
    async with asyncio.timeout(3 * WAIT_SECONDS):
        await processes.engines[0].create_table(table)
        for number, step in steps:
            engine = processes.engines[number]
            if step[0] == "restart":
                await processes.restart(number)
            elif step[0] == "consume":
                await consumer.read(engine, step[1], crashes=step[2])
            else:
                try:
                    await write(engine, table, step)
                except StoreError:
                    continue
        await processes.engines[0].put(Put(table, END))
        await check(processes.engines[1], consumer)


async def check(engine: Engine, consumer: Consumer) -> None:
    """Compare the whole log with the table, and what the consumer saw with the log."""
    table, log = consumer.table, list[Change]()
    async with aclosing(engine.changes(table, START)) as changes:
        async for change in changes:
            log.append(change)
            if change.key == END:
                break
    stored = {key_of(table, item): item for item in await all_items(engine, ScanTable(table))}
    assert replay(table, log) == stored
    positions = [change.position for change in log]
    assert len({*positions}) == len(positions)
    assert {change.position: change for change in log if change.position in consumer.seen} == (
        consumer.seen
    )
    for run in consumer.runs:
        start = positions.index(run[0]) if run else 0
        assert positions[start : start + len(run)] == run
    assert all(change.is_expiry <= (change.kind == "REMOVE") for change in log)
    async with aclosing(engine.changes(table, consumer.checkpoint)) as changes:
        start = 0 if consumer.checkpoint == START else positions.index(consumer.checkpoint) + 1
        assert [await anext(changes) for _ in positions[start:]] == log[start:]


async def run_on_sqlite(directory: Path, steps: list[tuple[int, tuple[Any, ...]]]) -> None:
    processes = SqliteProcesses(directory)
    processes.start()
    try:
        await run_steps(processes, steps)
    finally:
        await processes.close()


@given(_RUNS)
def test_every_change_is_seen_once_per_position_with_the_right_images(
    steps: list[tuple[int, tuple[Any, ...]]],
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(run_on_sqlite(Path(directory), steps))


@pytest.mark.judge
@pytest.mark.soak
def test_every_change_is_seen_once_per_position_on_dynamodb_local() -> None:
    """Expired items are not part of it: DynamoDB Local deletes them by its own clock."""
    with dynamodb_local() as url, asyncio.Runner() as runner:
        stack = AsyncExitStack()
        engines = [
            runner.run(stack.enter_async_context(open_dynamodb(endpoint=url, credentials=MADE_UP)))
            for _ in range(2)
        ]

        @given(_RUNS)
        def check_run(steps: list[tuple[int, tuple[Any, ...]]]) -> None:
            table = replace(BOTH, name=fresh("property-")[:40])
            runner.run(run_steps(LocalProcesses(engines, table), steps))

        check_run()
        runner.run(stack.aclose())
