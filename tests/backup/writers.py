"""A data directory with both databases open and somebody writing to each all the time, who notes what was acknowledged."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg

from tally.embedded.postgres import open_postgres
from tally.kit.clock import SystemClock
from tally.kit.keyfile import read_or_create
from tally.store.api import Engine, Put, Transaction
from tally.store.schema import N, S, Table
from tally.store.sqlite import open_sqlite

NOTES = Table("notes", partition=S("author"), sort=N("number"))
WRITERS = 4


@dataclass(slots=True)
class Busy:
    """What was acknowledged so far: the numbers of the pairs in the store, and those of the rows in PostgreSQL."""

    directory: Path
    pairs: set[tuple[str, int]] = field(default_factory=set)
    rows: set[int] = field(default_factory=set)
    moved: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def until_more(self, count: int) -> None:
        """Wait until so many more of both have been acknowledged."""
        pairs, rows = len(self.pairs) + count, len(self.rows) + count
        async with self.moved:
            await self.moved.wait_for(lambda: len(self.pairs) >= pairs and len(self.rows) >= rows)

    async def write_pairs(self, engine: Engine, author: str) -> None:
        """Two items at a time, both or none: an odd one shows a copy that is not of one moment."""
        for number in itertools.count(0, 2):
            both = tuple(
                Put(NOTES, {"author": author, "number": number + each, "text": "x" * 300})
                for each in (0, 1)
            )
            await engine.transact(Transaction(both))
            await self._note(self.pairs, (author, number))

    async def write_rows(self, address: str) -> None:
        connection = await asyncpg.connect(address)
        try:
            for number in itertools.count():
                async with connection.transaction():
                    await connection.execute(
                        "INSERT INTO notes VALUES ($1), ($2)", 2 * number, 2 * number + 1
                    )
                await self._note(self.rows, 2 * number)
        finally:
            await connection.close()

    async def _note(self, acknowledged: set[Any], what: object) -> None:
        async with self.moved:
            acknowledged.add(what)
            self.moved.notify_all()


@asynccontextmanager
async def writing(directory: Path) -> AsyncIterator[Busy]:
    """Writers at work on the data directory until the block ends."""
    read_or_create(directory / "cursor.key")
    async with (
        open_sqlite(directory) as engine,
        open_postgres(directory, SystemClock(), durable=False) as address,
    ):
        await engine.ensure_table(NOTES)
        connection = await asyncpg.connect(address)
        await connection.execute("CREATE TABLE notes (number bigint PRIMARY KEY)")
        await connection.close()
        busy = Busy(directory)
        work = [
            asyncio.create_task(busy.write_pairs(engine, f"author {number}"))
            for number in range(WRITERS)
        ]
        work.append(asyncio.create_task(busy.write_rows(address)))
        try:
            yield busy
            assert [task.exception() for task in work if task.done()] == []
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
