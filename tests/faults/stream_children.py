"""Processes that write to a table with a stream, or consume it, until they are killed.

    python -m tests.faults.stream_children write DIRECTORY FIRST
    python -m tests.faults.stream_children consume DIRECTORY

A writer numbers its writes from FIRST on, and prints `did NUMBER` after the store has returned. The
consumer is a named one; it prints `open`, and `POSITION NUMBER` for each change.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import ClassVar

from tally.instance import consumers
from tally.instance.consumers import ConsumerMetrics, NamedConsumer
from tally.instance.repository.consumers import ConsumerRepository
from tally.kit.clock import SystemClock
from tally.kit.metrics import Metrics
from tally.store.access import GetRecords, access
from tally.store.api import BatchPut, Delete, Put, Transaction, TransactionBatch, Update
from tally.store.changes import Change
from tally.store.expressions import F
from tally.store.sqlite import SqliteEngine, open_sqlite
from tally.store.store import Store
from tests.faults.child_process import say
from tests.store.streams import BOTH

WRITERS = 8
NAME = "faults"


@dataclass(frozen=True, slots=True)
class Stream:
    """A repository that follows the table."""

    store: Store
    tables: ClassVar = (BOTH,)

    @access("Follow items", GetRecords(), table=BOTH)
    async def changes(self, after: str | None) -> AsyncGenerator[Change, None]:
        async for change in self.store.changes(BOTH, after=after):
            yield change


async def write_once(engine: SqliteEngine, number: int) -> None:
    """Write an item with this number in one of several ways."""
    item = {"id": f"p{number % 5}", "at": f"{number % 20:02}", "n": number}
    key = BOTH.primary_key(item)
    if number % 7 == 0:
        await engine.delete(Delete(BOTH, key))
    if number % 3 == 0:
        await engine.update(Update(BOTH, key, (F("n").set(number),)))
    elif number % 3 == 1:
        others = [{"id": f"bulk{number}", "at": f"{one}", "n": number} for one in range(10)]
        await engine.transact_each(TransactionBatch(BatchPut(BOTH, others)))
        await engine.transact(Transaction((Put(BOTH, item),)))
    else:
        await engine.put(Put(BOTH, item))


async def write(directory: Path, first: int) -> None:
    """Write concurrently without an end."""
    numbers = count(first)

    async def run(engine: SqliteEngine) -> None:
        while True:
            number = next(numbers)
            await write_once(engine, number)
            say(f"did {number}")

    async with open_sqlite(directory) as engine:
        await asyncio.gather(*(run(engine) for _ in range(WRITERS)))


async def consume(directory: Path) -> None:
    """Run a named consumer whose lock ends soon after its process."""
    consumers.LOCK_SECONDS, consumers.RETRY_SECONDS = 1.0, 0.05  # type: ignore[misc]

    async def handle(change: Change) -> None:
        say(f"{change.position} {(change.new or {}).get('n', -1)}")

    async with open_sqlite(directory) as engine:
        store, clock = Store(engine), SystemClock()
        metrics = ConsumerMetrics(Metrics())
        say("open")
        await NamedConsumer(
            NAME, Stream(store).changes, handle, ConsumerRepository(store), clock, metrics=metrics
        ).run()


if __name__ == "__main__":
    role, folder, *rest = sys.argv[1:]
    asyncio.run(write(Path(folder), int(rest[0])) if role == "write" else consume(Path(folder)))
