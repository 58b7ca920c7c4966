"""The two stores of a move: how each records its changes and stops accepting writes."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

from tally.instance.repository.write_fences import FENCE_KEY, WRITE_FENCES
from tally.kit.clock import Clock
from tally.move.state import DYNAMODB, EMBEDDED, SideName
from tally.settings import Settings
from tally.store.api import Delete, Engine, Put, Scan
from tally.store.batching import run_bounded
from tally.store.dynamodb import open_dynamodb
from tally.store.dynamodb.engine import DynamoDBEngine
from tally.store.dynamodb.write_gate import LEASE_SECONDS
from tally.store.errors import TableNotFound
from tally.store.schema import Table
from tally.store.sqlite import SqliteEngine, open_sqlite

FENCE: Final = "writes are paused: the data moves, or has moved, to another store"
LEASE_MARGIN_SECONDS: Final = 1.0  # clocks of instances may run slower than this one
_MAX_CONCURRENT_CHANGES: Final = 10  # of tables; DynamoDB allows many more


class StoreSide(Protocol):
    """One of the two stores.

    `is_exact`: it can tell whether all changes up to now were applied.
    """

    @property
    def name(self) -> SideName: ...
    @property
    def is_exact(self) -> bool: ...

    @property
    def engine(self) -> Engine: ...

    async def count(self, table: Table) -> int:
        """Return the number of items, or an estimate."""

    async def record(self, tables: Sequence[Table]) -> None:
        """Turn a stream on for every table, and keep those that exist."""

    async def stop_recording(self, tables: Sequence[Table]) -> None:
        """Create missing tables, and turn all streams off.

        The stream of a passive table would contain the whole copy, and consumers of the stream
        would take it for changes after the switch.
        """

    async def use_declared(self, tables: Sequence[Table]) -> None:
        """Turn on exactly the streams that the tables declare."""

    async def reject_writes(self) -> None:
        """Let servers reject writes from soon on."""

    async def wait_until_rejected(self) -> None:
        """Wait until no server acknowledges a write that is not in the store yet."""

    async def accept_writes(self) -> None: ...


@dataclass(frozen=True, slots=True)
class EmbeddedSide:
    """The embedded store. Its fence is part of the database, so no process can miss it."""

    engine: SqliteEngine
    name: SideName = EMBEDDED
    is_exact: bool = True

    async def count(self, table: Table) -> int:
        return await count_items(self.engine, table)

    async def record(self, tables: Sequence[Table]) -> None:
        # First, so that a server that starts meanwhile turns none off again.
        await self.engine.set_recording(is_on=True)
        await _ensure(self.engine, map(recorded, tables))

    async def stop_recording(self, tables: Sequence[Table]) -> None:
        await self.engine.set_recording(is_on=False)
        await _ensure(self.engine, map(_without_stream, tables))

    async def use_declared(self, tables: Sequence[Table]) -> None:
        await self.engine.set_recording(is_on=False)
        await _ensure(self.engine, tables)

    async def reject_writes(self) -> None:
        await self.engine.set_fence(FENCE)

    async def wait_until_rejected(self) -> None:
        """Return at once: each write transaction reads the fence."""

    async def accept_writes(self) -> None:
        await self.engine.set_fence(None)


@dataclass(frozen=True, slots=True)
class DynamoDBSide:
    """DynamoDB. Its servers read the fence at least every few seconds while they write.

    Its streams do not tell where they end, so the last changes are found by a comparison.
    """

    engine: DynamoDBEngine
    clock: Clock
    name: SideName = DYNAMODB
    is_exact: bool = False

    async def count(self, table: Table) -> int:
        try:
            return await self.engine.estimate_items(table.name)
        except TableNotFound:
            return 0

    async def record(self, tables: Sequence[Table]) -> None:
        await _ensure(self.engine, map(recorded, tables))

    async def stop_recording(self, tables: Sequence[Table]) -> None:
        await _ensure(self.engine, map(_without_stream, tables))

    async def use_declared(self, tables: Sequence[Table]) -> None:
        await _ensure(self.engine, tables)

    async def reject_writes(self) -> None:
        await self.engine.put(Put(WRITE_FENCES, {**FENCE_KEY, "reason": FENCE}))

    async def wait_until_rejected(self) -> None:
        """Wait until the last server that has not read the fence may no longer write."""
        await self.clock.sleep(LEASE_SECONDS + LEASE_MARGIN_SECONDS)

    async def accept_writes(self) -> None:
        await self.engine.delete(Delete(WRITE_FENCES, FENCE_KEY))


@dataclass(frozen=True, slots=True)
class Sides:
    """Both stores, open."""

    embedded: EmbeddedSide
    dynamodb: DynamoDBSide

    def side(self, name: SideName) -> StoreSide:
        return self.embedded if name == EMBEDDED else self.dynamodb


@asynccontextmanager
async def open_sides(settings: Settings, clock: Clock) -> AsyncIterator[Sides]:
    """Open both stores that the settings name, whichever of them the servers use."""
    async with (
        open_sqlite(
            settings.data_dir,
            clock=lambda: clock.time_ns() / 1e9,
            stream_retention=settings.store_stream_retention * 3_600.0,
            passes_fence=True,
        ) as embedded,
        open_dynamodb(
            endpoint=settings.dynamodb_endpoint,
            region=settings.dynamodb_region,
            table_prefix=settings.dynamodb_table_prefix,
        ) as dynamodb,
    ):
        yield Sides(EmbeddedSide(embedded), DynamoDBSide(dynamodb, clock))


def recorded(table: Table) -> Table:
    """Return the table with a stream; the keys are enough, because changed items are read again."""
    return table if table.stream else replace(table, stream="KEYS_ONLY")


def _without_stream(table: Table) -> Table:
    return replace(table, stream=None)


async def _ensure(engine: Engine, tables: Iterable[Table]) -> None:
    jobs: list[Callable[[], Awaitable[None]]] = [
        partial(engine.ensure_table, table) for table in tables
    ]
    await run_bounded(jobs, _MAX_CONCURRENT_CHANGES)


async def count_items(engine: Engine, table: Table) -> int:
    """Count the items of a table without returning them."""
    count, start = 0, None
    while True:
        page = await engine.scan(Scan(table, start=start, count_only=True))
        count, start = count + page.count, page.next
        if start is None:
            return count
