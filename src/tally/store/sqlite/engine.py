"""The embedded engine: DynamoDB's semantics on one SQLite file that several processes of a machine may share.

Reads run where they are asked for: a point read takes some microseconds, less than handing it to a
thread would. Writes go to the one writer thread and are answered after its fsync.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import apsw
from msgspec.structs import replace

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
from tally.store.errors import StoreError, StoreUnavailable
from tally.store.evaluate import project
from tally.store.schema import Table
from tally.store.sqlite import capacity
from tally.store.sqlite.bulk import prepare_batch
from tally.store.sqlite.codec import unpack
from tally.store.sqlite.files import connect, prepare_database, to_store_error
from tally.store.sqlite.group_executor import BatchingExecutor
from tally.store.sqlite.layout import Layout
from tally.store.sqlite.reads import Reader
from tally.store.sqlite.sweep import sweep
from tally.store.sqlite.table_registry import TableRegistry
from tally.store.sqlite.transactions import PreparedTransaction, transact, try_transact
from tally.store.sqlite.writer_process import WriteRouter
from tally.store.sqlite.writer_thread import WriterThread
from tally.store.sqlite.writes import encode_write, prepare
from tally.store.validate import (
    KeyRange,
    check_batch_get,
    check_batch_write,
    check_query,
    check_scan,
    check_transaction,
    check_transaction_get,
)
from tally.store.validate_expressions import check_projection
from tally.store.values import Item

T = TypeVar("T")


@asynccontextmanager
async def open_sqlite(
    directory: Path | str,
    clock: Callable[[], float] = time.time,
    *,
    writer_process_rate: int | None = None,
) -> AsyncIterator["SqliteEngine"]:
    """The engine on a data directory, closed at the end with all that was asked for done.

    From `busy` transactions in a second on, of those that come many at a time, a process of its own
    writes them.
    """
    engine = SqliteEngine(Path(directory), clock, writer_process_rate)
    try:
        yield engine
    finally:
        await engine.close()


class SqliteEngine:
    """See `open_sqlite`. One engine belongs to one event loop."""

    name = "sqlite"

    def __init__(
        self,
        directory: Path,
        clock: Callable[[], float] = time.time,
        writer_process_rate: int | None = None,
    ) -> None:
        self._clock = clock
        self.path = prepare_database(directory)
        self._connection = connect(self.path)
        try:
            self._catalogue = TableRegistry(self._connection)
            self._written = TableRegistry(self._connection)  # for the writer's thread alone
            self._writer = WriterThread(
                self.path, asyncio.get_running_loop(), BatchingExecutor(self._written)
            )
            self.write_router = WriteRouter(self.path, self._writer, writer_process_rate)
        except StoreError:
            self._connection.close()
            raise
        self._open = True

    async def get(self, operation: Get) -> GetResult:
        layout = self._layout(operation.table)
        if operation.projection:
            check_projection(operation.projection)
        item, size = self._row(layout, operation)
        return GetResult(item, capacity.read_capacity(size, consistent=operation.consistent))

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
        for position, key in enumerate(operation.keys):
            found, size = self._row(layout, Get(operation.table, key, operation.projection))
            total += size
            if total > MAX_BATCH_GET_BYTES:
                return BatchGetResult(items, operation.keys[position:], cost)
            cost += capacity.read_capacity(size, consistent=operation.consistent)
            if found is not None:
                items.append(found)
        return BatchGetResult(items, (), cost)

    async def batch_write(self, operation: BatchWrite) -> BatchWriteResult:
        check_batch_write(operation)
        table = operation.table
        layout = self._layout(table)
        writes: list[Write] = [Put(table, item) for item in operation.puts]
        writes += [Delete(table, key) for key in operation.deletes]
        jobs = [
            self._writer.submit(prepared)
            for prepared in [prepare(layout, write) for write in writes]
        ]
        written: list[WriteResult] = await asyncio.gather(*jobs)
        return BatchWriteResult(None, sum((each.capacity for each in written), Capacity()))

    async def transact(self, operation: Transaction) -> TransactionResult:
        done: TransactionResult = await self._writer.submit(
            partial(self._transact, self._asked(operation))
        )
        return done

    async def transact_each(
        self, operations: Sequence[Transaction]
    ) -> list[TransactionResult | StoreError]:
        outcomes: list[TransactionResult | StoreError]
        work = prepare_batch(operations, self._layout)
        if work is None:
            each = partial(
                self._transact_each, [self._asked(operation) for operation in operations]
            )
            outcomes = await self._writer.submit(each)
        else:
            outcomes = await self.write_router.submit(work)
        return outcomes

    async def transact_get(self, operation: TransactionGet) -> TransactionGetResult:
        check_transaction_get(operation)
        connection = self._reading()
        layouts = [self._layout(get.table) for get in operation.gets]
        # One read transaction, and no await inside it: all gets see one moment.
        try:
            with connection:
                rows = [
                    self._row(layout, get)
                    for layout, get in zip(layouts, operation.gets, strict=True)
                ]
        except apsw.Error as error:
            raise to_store_error(error, self.path) from error
        return TransactionGetResult(
            [item for item, _ in rows], capacity.transaction_read_capacity(size for _, size in rows)
        )

    async def create_table(self, table: Table) -> None:
        await self._declare(partial(self._written.create, table=table))

    async def ensure_table(self, table: Table) -> None:
        await self._declare(partial(self._written.ensure, table=table))

    async def drop_table(self, name: str) -> None:
        await self._declare(partial(self._written.drop, name=name))

    async def describe_table(self, name: str) -> Table:
        self._catalogue.refresh(self._reading())
        return self._catalogue.layout(name).table

    async def list_tables(self) -> list[str]:
        self._catalogue.refresh(self._reading())
        return self._catalogue.names()

    async def sweep(self, table: Table, now: float, limit: int) -> int:
        swept: int = await self._writer.submit(
            lambda connection: sweep(connection, self._written.layout(table.name), now, limit)
        )
        return swept

    async def ping(self) -> None:
        """Readable, and the writer answers: an empty group goes through its queue."""
        await self._writer.submit(lambda _connection: None)

    async def close(self) -> None:
        if self._open:
            self._open = False
            try:
                await self.write_router.close()
            finally:
                await self._writer.close()
                self._connection.close()

    async def _declare(self, change: Callable[[apsw.Connection], None]) -> None:
        await self._writer.submit(change)
        self._catalogue.refresh(self._reading())

    def _layout(self, table: Table, index: str | None = None) -> Layout:
        return self._catalogue.known(table.name, self._reading(), index)

    def _reading(self) -> apsw.Connection:
        if not self._open:
            raise StoreUnavailable("the store is closed")
        return self._connection

    def _row(self, layout: Layout, get: Get) -> tuple[Item | None, int]:
        try:
            row = self._reading().execute(layout.select, layout.checked_key(get.key)).fetchone()
        except (apsw.Error, UnicodeDecodeError) as error:
            raise self._failure(error, layout, None) from error
        if row is None:
            return None, 0
        item = unpack(row[0])
        return (project(item, get.projection) if get.projection else item), row[1]

    async def _page(self, layout: Layout, operation: Query | Scan, wanted: KeyRange | None) -> Page:
        try:
            return await Reader(self._reading(), layout, operation).page(wanted)
        except (apsw.Error, UnicodeDecodeError) as error:
            raise self._failure(error, layout, operation.index) from error

    def _failure(
        self, error: apsw.Error | UnicodeDecodeError, layout: Layout, index: str | None
    ) -> StoreError:
        """SQLite's error in the store's words; if another process dropped the table or the index, then that."""
        if isinstance(error, apsw.SQLError):
            self._catalogue.refresh(self._reading())
            table = self._catalogue.layout(layout.table.name).table
            if index is not None:
                table.index(index)
        return to_store_error(error, self.path)

    def _write(self, write: Put | Update | Delete) -> "asyncio.Future[WriteResult]":
        prepared = prepare(self._layout(write.table), write)
        return self._writer.submit(prepared)

    def _asked(self, operation: Transaction) -> PreparedTransaction:
        """A transaction with its writes checked and encoded by the tables as they are stored."""
        layouts = [self._layout(write.table) for write in operation.writes]
        writes = [
            replace(write, table=layout.table)
            for layout, write in zip(layouts, operation.writes, strict=True)
        ]
        operation = Transaction(tuple(writes), operation.token)
        sizes = check_transaction(operation)
        steps = zip(layouts, writes, sizes, strict=True)
        return PreparedTransaction(
            operation,
            [(layout, encode_write(layout, write, size)) for layout, write, size in steps],
        )

    # These run on the writer's thread, inside its transaction, with the catalogue as it stands in
    # the database.

    def _transact(
        self, asked: PreparedTransaction, connection: apsw.Connection
    ) -> TransactionResult:
        return transact(connection, self._renewed([asked])[0], self._clock())

    def _transact_each(
        self, all_asked: list[PreparedTransaction], connection: apsw.Connection
    ) -> list[TransactionResult | StoreError]:
        now = self._clock()
        return [try_transact(connection, asked, now) for asked in self._renewed(all_asked)]

    def _renewed(self, all_asked: list[PreparedTransaction]) -> list[PreparedTransaction]:
        tables = {layout.table.name: layout for asked in all_asked for layout, _ in asked.steps}
        current = {name: self._written.layout(name) for name in tables}
        if all(current[name] is layout for name, layout in tables.items()):
            return all_asked
        return [asked.renewed(current) for asked in all_asked]
