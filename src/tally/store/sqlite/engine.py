"""The embedded engine.

DynamoDB's semantics on one SQLite file that processes of a machine may share.

Reads run on the caller's thread: a point read takes microseconds, less than a thread switch. Writes
go to the writer thread and are acknowledged after its fsync.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import apsw
from msgspec.structs import replace

from tally.kit.time_slices import TimeSlices
from tally.store.api import (
    MAX_BATCH_GET_BYTES,
    BatchGet,
    BatchGetResult,
    BatchWrite,
    BatchWriteResult,
    Capacity,
    Delete,
    Get,
    GetResult,
    Page,
    Put,
    Query,
    Scan,
    Transaction,
    TransactionGet,
    TransactionGetResult,
    TransactionResult,
    Update,
    Write,
    WriteResult,
)
from tally.store.changes import Change, ChangePage, EndedStream
from tally.store.errors import StoreError, StoreUnavailable
from tally.store.evaluate import project
from tally.store.schema import Table
from tally.store.sqlite import capacity
from tally.store.sqlite.bulk.group_executor import BatchingExecutor
from tally.store.sqlite.bulk.router import WriteRouter
from tally.store.sqlite.change_log import trim_changes
from tally.store.sqlite.change_streams import ChangeStreams
from tally.store.sqlite.files import connect, prepare_database, to_store_error
from tally.store.sqlite.keys import RowKey
from tally.store.sqlite.layout import Layout
from tally.store.sqlite.reads import Reader
from tally.store.sqlite.rows import read_rows
from tally.store.sqlite.scrub import Scrubber
from tally.store.sqlite.state import read_state, write_state
from tally.store.sqlite.sweep import sweep, sweep_all, sweep_current_hour
from tally.store.sqlite.table_registry import LayoutCache, TableRegistry, load_shapes
from tally.store.sqlite.transactions import (
    PreparedTransaction,
    prepare_transaction,
    transact,
    try_transact,
)
from tally.store.sqlite.writer_thread import WriterThread
from tally.store.sqlite.writes import observe_put, prepare
from tally.store.validate import (
    KeyRange,
    check_batch_get,
    check_batch_write,
    check_query,
    check_scan,
    check_transaction_get,
    check_transaction_size,
)
from tally.store.validate_expressions import check_projection
from tally.store.values import Item, Key

T = TypeVar("T")
DEFAULT_RETENTION_SECONDS: Final = 86_400.0  # as DynamoDB
# A batch reads at most so many items of 400 KB before it notices that its response is full.
KEYS_PER_READ: Final = 16
RECENT_SECONDS: Final = 0.05  # for which the served store uses a table without looking for changes


@asynccontextmanager
async def open_sqlite(
    directory: Path | str,
    clock: Callable[[], float] = time.time,
    *,
    writer_process_rate: int | None = None,
    stream_retention: float = DEFAULT_RETENTION_SECONDS,
    passes_fence: bool = False,
) -> AsyncIterator["SqliteEngine"]:
    """Open the engine on a data directory; on exit it completes all submitted writes.

        async with open_sqlite("data") as engine:
            store = Store(engine)

    `clock` returns the time in epoch seconds. Above `writer_process_rate` bulk transactions per
    second, a separate process writes them; None disables it. Changes of streams are kept for
    `stream_retention` seconds. With `passes_fence` it writes while others must not.
    """
    rate = writer_process_rate
    engine = SqliteEngine(Path(directory), clock, rate, stream_retention, passes_fence=passes_fence)
    try:
        yield engine
    finally:
        await engine.close()


class SqliteEngine:
    """The embedded engine; see `open_sqlite`. An engine belongs to one event loop."""

    name = "sqlite"

    def __init__(
        self,
        directory: Path,
        clock: Callable[[], float] = time.time,
        writer_process_rate: int | None = None,
        stream_retention: float = DEFAULT_RETENTION_SECONDS,
        *,
        passes_fence: bool = False,
    ) -> None:
        self._clock = clock
        self._stream_retention = stream_retention
        self._slices = TimeSlices()
        prepared = prepare_database(directory)
        self.path, self._lease = prepared.path, prepared.lease
        self.is_unclean = prepared.is_unclean
        try:
            self._connection = connect(self.path)
        except StoreError:
            self._lease.close()
            raise
        try:
            layouts = LayoutCache(load_shapes(self._connection, self.path))
            self._registry = TableRegistry(self._connection, layouts)
            self._refreshed_at = time.monotonic()
            self._is_open = True
            self._streams = ChangeStreams(self._read_connection, self._current_layout)
            # Used by the writer thread only.
            self._writer_registry = TableRegistry(
                self._connection, layouts, passes_fence=passes_fence
            )
            self._writer = WriterThread(
                self.path,
                asyncio.get_running_loop(),
                BatchingExecutor(self._writer_registry, layouts.shapes, clock),
                on_commit=self._streams.wake,
            )
            self.write_router = WriteRouter(
                self.path, self._writer, writer_process_rate, clock, self._streams.wake
            )
        except StoreError:
            self._connection.close()
            self._lease.close()
            raise
        self._scrubber = Scrubber(self.path)

    async def get(self, operation: Get) -> GetResult:
        layout = self._layout(operation.table)
        if operation.projection:
            check_projection(operation.projection)
        item, size = self._row(layout, operation)
        return GetResult(item, capacity.read_capacity(size, consistent=operation.consistent))

    def get_current(self, name: str, key: Key) -> Item | None:
        """Return an item; None if there is none, or if another process changed the tables."""
        connection = self._read_connection()
        layout = self._registry.find(name, connection)
        row_key = layout.checked_key(key)
        try:
            row: Any = connection.execute(layout.select_current, row_key).fetchone()
        except (apsw.Error, UnicodeDecodeError) as error:
            raise self._failure(error, layout, None) from error
        if row is None or not self._registry.is_generation(row[1]):
            return None
        return layout.packer.unpack(row[0], row_key)

    def recent_table(self, name: str) -> Table:
        """Return a table as it was at most `RECENT_SECONDS` ago, if another process changed it."""
        now = time.monotonic()
        if now - self._refreshed_at > RECENT_SECONDS:
            self._registry.refresh(self._read_connection())
            self._refreshed_at = now
        return self._registry.find(name, self._read_connection()).table

    async def put(self, operation: Put) -> WriteResult:
        return await self._write(operation)

    async def update(self, operation: Update) -> WriteResult:
        return await self._write(operation)

    async def delete(self, operation: Delete) -> WriteResult:
        return await self._write(operation)

    async def query(self, operation: Query) -> Page:
        layout = self._layout(operation.table, operation.index)
        operation = replace(operation, table=layout.table)
        return await self._page(layout, operation, check_query(operation))

    async def scan(self, operation: Scan) -> Page:
        layout = self._layout(operation.table, operation.index)
        operation = replace(operation, table=layout.table)
        check_scan(operation)
        return await self._page(layout, operation, None)

    async def batch_get(self, operation: BatchGet) -> BatchGetResult:
        check_batch_get(operation)
        layout = self._layout(operation.table)
        items: list[Item] = []
        cost, total = Capacity(), 0
        try:
            for position, (key, row) in enumerate(self._rows(layout, operation.keys)):
                packed, size = (b"", 0) if row is None else row
                total += size
                if total > MAX_BATCH_GET_BYTES:
                    return BatchGetResult(items, operation.keys[position:], cost)
                cost += capacity.read_capacity(size, consistent=operation.consistent)
                if row is not None:
                    item = layout.packer.unpack(packed, key)
                    items.append(
                        project(item, operation.projection) if operation.projection else item
                    )
        except (apsw.Error, UnicodeDecodeError) as error:
            raise self._failure(error, layout, None) from error
        return BatchGetResult(items, (), cost)

    async def batch_write(self, operation: BatchWrite) -> BatchWriteResult:
        check_batch_write(operation)
        table = operation.table
        layout = self._layout(table)
        writes: list[Write] = [Put(table, item) for item in operation.puts]
        writes += [Delete(table, key) for key in operation.deletes]
        prepared = [prepare(layout, write) for write in writes]
        for write_of_batch in prepared:
            observe_put(write_of_batch)
        jobs = [*map(self._writer.submit, prepared)]
        written: list[WriteResult] = await asyncio.gather(*jobs)
        return BatchWriteResult(
            None,
            sum((result.capacity for result in written), Capacity()),
            tuple(cost for result in written for cost in result.index_units),
        )

    async def transact(self, operation: Transaction) -> TransactionResult:
        prepared = self._prepare_transaction(operation)
        result: TransactionResult = await self._writer.submit(
            prepared if operation.token is None else partial(self._transact, prepared)
        )
        return result

    async def transact_each(
        self, operations: Sequence[Transaction]
    ) -> list[TransactionResult | StoreError]:
        submitted = self.write_router.submit(operations, self._layout)
        if submitted is None:
            prepared = [self._prepare_transaction(operation) for operation in operations]
            submitted = self._writer.submit(partial(self._transact_each, prepared))
        outcomes: list[TransactionResult | StoreError] = await submitted
        return outcomes

    async def transact_get(self, operation: TransactionGet) -> TransactionGetResult:
        check_transaction_get(operation)
        connection = self._read_connection()
        layouts = [self._layout(get.table) for get in operation.gets]
        # One read transaction without an await inside: all gets see one snapshot.
        try:
            with connection:
                rows = [
                    self._row(layout, get)
                    for layout, get in zip(layouts, operation.gets, strict=True)
                ]
        except apsw.Error as error:
            raise to_store_error(error, self.path) from error
        check_transaction_size(sum(size for _, size in rows))
        parts = capacity.transaction_read_units(size for _, size in rows)
        return TransactionGetResult([item for item, _ in rows], Capacity(read=sum(parts)), parts)

    async def create_table(self, table: Table) -> None:
        await self._change_schema(partial(self._writer_registry.create, table=table))

    async def ensure_table(self, table: Table) -> None:
        """Create or change the table, and wait until new indexes are complete.

        Others read and write the table meanwhile.
        """
        await self._change_schema(partial(self._writer_registry.ensure, table=table))
        advance = partial(self._writer_registry.advance_backfill, name=table.name)
        while self._registry.layout(table.name).building:
            await self._change_schema(advance)

    async def building_indexes(self, name: str) -> list[str]:
        self._registry.refresh(self._read_connection())
        return sorted(self._registry.layout(name).building)

    async def read_state(self, name: str) -> str | None:
        """Return a fact about the database, or None; see `state.py`."""
        try:
            return read_state(self._read_connection(), name)
        except apsw.Error as error:
            raise to_store_error(error, self.path) from error

    async def write_state(self, name: str, value: str) -> None:
        """Store a fact about the database."""
        await self._writer.submit(lambda connection: write_state(connection, name, value))

    async def set_fence(self, reason: str | None) -> None:
        """Reject the writes of all processes with WritesPaused, or accept them again."""
        await self._change_schema(partial(self._writer_registry.set_fence, reason=reason))

    async def set_recording(self, *, is_on: bool) -> None:
        """Keep streams that the tables' declarations lack, also when a server starts."""
        await self._change_schema(partial(self._writer_registry.set_recording, is_on=is_on))

    async def scrub(self, max_pages: int | None) -> bool:
        """Verify the checksums of the next pages, or of all; return whether a pass is complete.

        Raise StorageDamaged at the first damaged page.
        """
        try:
            return await asyncio.to_thread(self._scrubber.verify, max_pages)
        except apsw.Error as error:
            raise to_store_error(error, self.path) from error

    async def drop_table(self, name: str) -> None:
        await self._change_schema(partial(self._writer_registry.drop, name=name))

    async def describe_table(self, name: str) -> Table:
        self._registry.refresh(self._read_connection())
        return self._registry.layout(name).table

    async def list_tables(self) -> list[str]:
        connection = self._read_connection()
        self._registry.refresh(connection)
        return self._registry.names(connection)

    async def sweep(self, table: Table, now: float, limit: int) -> int:
        deleted: int = await self._writer.submit(
            lambda connection: sweep(
                connection, self._writer_registry.layout(table.name), now, limit
            )
        )
        return deleted

    async def sweep_current_hour(self, table: Table, now: float, limit: int) -> None:
        """Delete expired items of the current hour, reading up to `limit` items."""
        find = self._writer_registry.layout
        await self._writer.submit(
            lambda connection: sweep_current_hour(connection, find(table.name), now, limit)
        )

    async def sweep_all(self, table: Table, now: float) -> None:
        """Delete every expired item at once; for the small tables of tests."""
        await self._writer.submit(
            lambda connection: sweep_all(connection, self._writer_registry.layout(table.name), now)
        )

    def changes(self, table: Table, after: str | None) -> AsyncGenerator[Change, None]:
        return self._streams.follow(table, after)

    async def stream_position(self, table: Table) -> str:
        return self._streams.last_position(table)

    async def read_changes(
        self, table: Table, partition: Any, after: str | None, limit: int
    ) -> ChangePage:
        return self._streams.read_partition(table, partition, after, limit)

    def stream_reader(self, ended: EndedStream | None = None) -> ChangeStreams:
        """Return the reader of the current streams, or that of one which a table had."""
        return self._streams if ended is None else self._streams.for_ended(ended)

    async def has_changes(self, table: Table, after: str, until: str) -> bool:
        try:
            return self._streams.has_changes(table, after, until)
        except apsw.Error as error:
            raise to_store_error(error, self.path) from error

    async def trim_changes(self) -> bool:
        """Delete a slice of the changes that are no longer kept; return whether there were any."""
        now, retention = self._clock(), self._stream_retention
        trimmed: bool = await self._writer.submit(
            lambda connection: trim_changes(connection, now - retention, now + retention)
        )
        return trimmed

    async def ping(self) -> None:
        """Check the connection and the writer: an empty job passes through its queue."""
        await self._writer.submit(lambda _connection: None)

    async def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._streams.close()
            try:
                await self.write_router.close()
            finally:
                await self._writer.close()
                self._connection.close()
                self._lease.close()

    async def _change_schema(self, change: Callable[[apsw.Connection], object]) -> None:
        await self._writer.submit(change)
        self._registry.refresh(self._read_connection())

    def _current_layout(self, name: str) -> Layout:
        self._registry.refresh(self._read_connection())
        return self._registry.layout(name)

    def _layout(self, table: Table, index: str | None = None) -> Layout:
        if not self._is_open:
            raise StoreUnavailable("the store is closed")
        return self._registry.find(table.name, self._connection, index)

    def _read_connection(self) -> apsw.Connection:
        if not self._is_open:
            raise StoreUnavailable("the store is closed")
        return self._connection

    def _row(self, layout: Layout, get: Get) -> tuple[Item | None, int]:
        """Return the item and its size; `_layout` has checked that the store is open."""
        key = layout.checked_key(get.key)
        try:
            row = self._connection.execute(layout.select, key).fetchone()
        except (apsw.Error, UnicodeDecodeError) as error:
            raise self._failure(error, layout, None) from error
        if row is None:
            return None, 0
        item = layout.packer.unpack(row[0], key)
        return (project(item, get.projection) if get.projection else item), row[1]

    def _rows(
        self, layout: Layout, keys: Iterable[Key]
    ) -> Iterator[tuple[RowKey, tuple[bytes, int] | None]]:
        """Read packed items and their sizes, several keys per statement."""
        row_keys = [*map(layout.checked_key, keys)]
        for start in range(0, len(row_keys), KEYS_PER_READ):
            chunk = row_keys[start : start + KEYS_PER_READ]
            found = read_rows(self._connection, layout, chunk)
            for key in chunk:
                yield key, found.get(key)

    async def _page(
        self, layout: Layout, operation: Query | Scan, key_range: KeyRange | None
    ) -> Page:
        try:
            reader = Reader(self._read_connection(), layout, operation, self._slices)
            return await reader.page(key_range)
        except (apsw.Error, UnicodeDecodeError) as error:
            raise self._failure(error, layout, operation.index) from error

    def _failure(
        self, error: apsw.Error | UnicodeDecodeError, layout: Layout, index: str | None
    ) -> StoreError:
        """Map an error of SQLite; report a table or index that another process dropped."""
        if isinstance(error, apsw.SQLError):
            self._registry.refresh(self._read_connection())
            table = self._registry.layout(layout.table.name).table
            if index is not None:
                table.index(index)
        return to_store_error(error, self.path)

    def _write(self, write: Put | Update | Delete) -> "asyncio.Future[WriteResult]":
        prepared = prepare(self._layout(write.table), write)
        observe_put(prepared)
        return self._writer.submit(prepared)

    def _prepare_transaction(self, operation: Transaction) -> PreparedTransaction:
        return prepare_transaction(operation, self._layout)

    # The methods below run on the writer thread inside its transaction, with the stored tables.

    def _transact(
        self, prepared: PreparedTransaction, connection: apsw.Connection
    ) -> TransactionResult:
        return transact(connection, prepared.with_current(self._writer_layout), self._clock())

    def _transact_each(
        self, transactions: list[PreparedTransaction], connection: apsw.Connection
    ) -> list[TransactionResult | StoreError]:
        now = self._clock()
        current = [prepared.with_current(self._writer_layout) for prepared in transactions]
        return [try_transact(connection, prepared, now) for prepared in current]

    def _writer_layout(self, table: Table) -> Layout:
        return self._writer_registry.writable(table.name)
