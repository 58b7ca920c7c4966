"""Any mixture of writes, expiries, restarts and crashing consumers: every change is seen once."""

import asyncio
import tempfile
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tally.store.api import BatchPut, Delete, Put, Scan, Transaction, TransactionBatch, Update
from tally.store.changes import START, Change
from tally.store.errors import StoreError
from tally.store.expressions import F, not_exists
from tally.store.sqlite import SqliteEngine
from tests.store.streams import BOTH, key_of, replay
from tests.store.tables import all_items

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


async def write(engine: SqliteEngine, step: tuple[Any, ...]) -> None:
    """Run one step; a rejected write is part of the mixture."""
    kind, *arguments = step
    condition = not_exists("id") if arguments[-1] is True else None
    if kind == "put":
        await engine.put(Put(BOTH, arguments[0], condition))
    elif kind == "update":
        await engine.update(Update(BOTH, arguments[0], (F("v").set(arguments[1]),)))
    elif kind == "delete":
        await engine.delete(Delete(BOTH, arguments[0]))
    elif kind == "transact":
        puts = tuple(Put(BOTH, item, condition) for item in arguments[0])
        await engine.transact(Transaction(puts))
    elif kind == "bulk":
        await engine.transact_each(
            TransactionBatch(BatchPut(BOTH, arguments[0], condition=condition))
        )
    elif kind == "sweep":
        await engine.sweep(BOTH, NOW, arguments[0])


@dataclass(slots=True)
class Consumer:
    """Reads a few changes at a time; a crash loses its progress since the last checkpoint."""

    checkpoint: str = START
    seen: dict[str, Change] = field(default_factory=dict)
    runs: list[list[str]] = field(default_factory=list)

    async def read(self, engine: SqliteEngine, count: int, *, crashes: bool) -> None:
        """Read up to this many changes of those that are committed."""
        last = await engine.stream_position(BOTH)
        run: list[str] = []
        async with aclosing(engine.changes(BOTH, self.checkpoint)) as changes:
            while len(run) < count and int(last.split(".")[2]) > self._sequence(run):
                following = asyncio.ensure_future(anext(changes))
                await asyncio.sleep(0)
                if not following.done():  # nothing but rejected writes since
                    following.cancel()
                    await asyncio.wait({following})
                    break
                change = following.result()
                assert self.seen.setdefault(change.position, change) == change
                run.append(change.position)
        self.runs.append(run)
        if run and not crashes:
            self.checkpoint = run[-1]

    def _sequence(self, run: list[str]) -> int:
        position = run[-1] if run else self.checkpoint
        return (
            0 if position == START or not position.endswith(".0") else int(position.split(".")[2])
        )


async def run_steps(directory: str, steps: list[tuple[Any, ...]]) -> None:
    consumer = Consumer()
    engine = SqliteEngine(Path(directory))
    try:
        await engine.create_table(BOTH)
        for step in steps:
            if step[0] == "restart":
                await engine.close()
                engine = SqliteEngine(Path(directory))
            elif step[0] == "consume":
                await consumer.read(engine, step[1], crashes=step[2])
            else:
                try:
                    await write(engine, step)
                except StoreError:
                    continue
        await engine.put(Put(BOTH, END))
        await check(engine, consumer)
    finally:
        await engine.close()


async def check(engine: SqliteEngine, consumer: Consumer) -> None:
    """Compare the whole log with the table, and what the consumer saw with the log."""
    log: list[Change] = []
    async with aclosing(engine.changes(BOTH, START)) as changes:
        async for change in changes:
            log.append(change)
            if change.key == END:
                break
    stored = {key_of(BOTH, item): item for item in await all_items(engine, Scan(BOTH))}
    assert replay(BOTH, log) == stored
    positions = [change.position for change in log]
    assert len({*positions}) == len(positions)
    assert {change.position: change for change in log if change.position in consumer.seen} == (
        consumer.seen
    )
    for run in consumer.runs:
        start = positions.index(run[0]) if run else 0
        assert positions[start : start + len(run)] == run
    assert all(change.is_expiry <= (change.kind == "REMOVE") for change in log)
    async with aclosing(engine.changes(BOTH, consumer.checkpoint)) as changes:
        start = 0 if consumer.checkpoint == START else positions.index(consumer.checkpoint) + 1
        assert [await anext(changes) for _ in positions[start:]] == log[start:]


@given(st.lists(_STEPS, max_size=30))
def test_every_change_is_seen_once_per_position_with_the_right_images(
    steps: list[tuple[Any, ...]],
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(run_steps(directory, steps))
