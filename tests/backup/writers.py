"""A data directory under load: concurrent writers on both databases record what is acknowledged."""

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
from tally.kit.metrics import Metrics
from tally.scoreboard.repository.database import open_database_pool
from tally.scoreboard.repository.metrics import StorageMetrics
from tally.scoreboard.repository.migrations import known_migrations, migrate
from tally.store.api import Engine, Put, Transaction
from tally.store.schema import N, S, Table
from tally.store.sqlite import open_sqlite

NOTES = Table("notes", partition=S("author"), sort=N("number"))
WRITERS = 4
INSERT_ACTIONS = """
INSERT INTO completed_actions (action_id, user_id, max_score, completed_at, expires_at)
SELECT action_id, gen_random_uuid(), 1, now(), now() FROM unnest(ARRAY[$1, $2]) AS action_id
"""


@dataclass(slots=True)
class AcknowledgedWrites:
    """The acknowledged pairs of items in the store, and rows in PostgreSQL."""

    directory: Path
    pairs: set[tuple[str, int]] = field(default_factory=set)
    rows: set[int] = field(default_factory=set)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def wait_for_more(self, count: int) -> None:
        """Wait until `count` more writes of each kind are acknowledged."""
        pairs, rows = len(self.pairs) + count, len(self.rows) + count
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.pairs) >= pairs and len(self.rows) >= rows)

    async def write_pairs(self, engine: Engine, author: str) -> None:
        """Write two items per transaction; an unpaired item reveals an inconsistent copy."""
        for number in itertools.count(0, 2):
            pair = tuple(
                Put(NOTES, {"author": author, "number": number + offset, "text": "x" * 300})
                for offset in (0, 1)
            )
            await engine.transact(Transaction(pair))
            await self._record(self.pairs, (author, number))

    async def write_rows(self, dsn: str) -> None:
        """Write two rows per transaction."""
        connection = await asyncpg.connect(dsn)
        try:
            for number in itertools.count():
                async with connection.transaction():
                    await connection.execute(
                        INSERT_ACTIONS, *(str(2 * number + offset) for offset in (0, 1))
                    )
                await self._record(self.rows, 2 * number)
        finally:
            await connection.close()

    async def _record(self, acknowledged: set[Any], write: object) -> None:
        async with self.changed:
            acknowledged.add(write)
            self.changed.notify_all()


async def create_schema(dsn: str, versions: int | None = None) -> None:
    """Apply the scoreboard's migrations, or the first ones."""
    clock = SystemClock()
    async with open_database_pool(dsn, clock, StorageMetrics(Metrics())) as database:
        await migrate(database, known_migrations()[:versions])


@asynccontextmanager
async def concurrent_writers(directory: Path) -> AsyncIterator[AcknowledgedWrites]:
    """Run writers on the data directory inside the context."""
    read_or_create(directory / "cursor.key")
    async with (
        open_sqlite(directory) as engine,
        open_postgres(directory, SystemClock(), durable=False) as dsn,
    ):
        await engine.ensure_table(NOTES)
        await create_schema(dsn)
        writes = AcknowledgedWrites(directory)
        tasks = [
            asyncio.create_task(writes.write_pairs(engine, f"author {number}"))
            for number in range(WRITERS)
        ]
        tasks.append(asyncio.create_task(writes.write_rows(dsn)))
        try:
            yield writes
            assert [task.exception() for task in tasks if task.done()] == []
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
