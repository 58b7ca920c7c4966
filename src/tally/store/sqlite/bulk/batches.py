"""Writes transactions of the same shape table by table instead of one by one.

Under load, most transactions put one new item into each of a few tables. Their order does not
matter, so each table is validated, encoded and written as a whole, also across callers; this avoids
most of the cost in Python. A transaction whose item already exists runs individually, to report why
it was rejected.
"""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import apsw
from msgspec import Struct

from tally.store.api import (
    BatchPut,
    Put,
    Transaction,
    TransactionBatch,
    TransactionResult,
)
from tally.store.errors import StoreError
from tally.store.expressions import Absent, Condition
from tally.store.schema import Table
from tally.store.sqlite import capacity
from tally.store.sqlite.change_log import record_inserts
from tally.store.sqlite.expiry import ExpiryRecord, write_expiry
from tally.store.sqlite.keys import RowKey
from tally.store.sqlite.layout import WRITE_STEP_BYTES, Layout, Row
from tally.store.sqlite.rows import put_new, put_rows
from tally.store.sqlite.transactions import prepare_transaction, try_transact

_MAX_WRITES = 10  # ten items of any size fit in one transaction


class PreparedPuts(Struct, frozen=True):
    """The puts of a batch into one table, one per transaction, validated and encoded.

    The condition, if any, is that the item does not exist.
    """

    layout: Layout
    condition: Condition | None
    keys: list[RowKey]
    rows: list[Row]
    expiry: list[ExpiryRecord]


class PreparedBatch(Struct, frozen=True):
    """Independent transactions of the same shape, validated and encoded before they are queued."""

    puts_by_table: list[PreparedPuts]

    def __len__(self) -> int:
        return len(self.puts_by_table[0].rows)

    def has_same_shape(self, other: "PreparedBatch") -> bool:
        """Whether both batches put into the same tables on the same condition."""
        return len(self.puts_by_table) == len(other.puts_by_table) and all(
            first.layout is second.layout
            and (first.condition is None) == (second.condition is None)
            for first, second in zip(self.puts_by_table, other.puts_by_table, strict=True)
        )

    def is_current(self, layout_of: Callable[[Table], Layout]) -> bool:
        """Whether no table changed since the batch was prepared."""
        return all(layout_of(puts.layout.table) is puts.layout for puts in self.puts_by_table)

    def transaction(self, position: int) -> Transaction:
        """Return one transaction.

        The batch keeps only encoded rows, which need less memory than items, so this decodes them.
        """
        writes = [
            Put(
                puts.layout.table,
                puts.layout.packer.unpack(puts.rows[position][2], puts.keys[position]),
                puts.condition,
            )
            for puts in self.puts_by_table
        ]
        return Transaction(tuple(writes))


def run_batch(
    connection: apsw.Connection,
    batch: PreparedBatch,
    layout_of: Callable[[Table], Layout],
    now: float,
) -> list[TransactionResult | StoreError]:
    """Run the batch and return one outcome per transaction.

    If a table changed since the batch was prepared, each transaction runs individually.
    """

    def run_individually(position: int) -> TransactionResult | StoreError:
        try:
            prepared = prepare_transaction(batch.transaction(position), layout_of)
        except StoreError as error:  # invalid for the table as it is now
            return error
        return try_transact(connection, prepared, now)

    if not batch.is_current(layout_of):
        return [run_individually(position) for position in range(len(batch))]
    existing_sizes = {
        number: put_new(connection, puts.layout, puts.rows) for number, puts in _conditional(batch)
    }
    rejected = {
        position
        for number, puts in _conditional(batch)
        for position, key in enumerate(puts.keys)
        if key in existing_sizes[number]
    }
    if rejected:
        for number, puts in _conditional(batch):
            written = [
                puts.keys[position]
                for position in rejected
                if puts.keys[position] not in existing_sizes[number]
            ]
            connection.executemany(puts.layout.delete, written)
    for number, puts in enumerate(batch.puts_by_table):
        if puts.condition is None:
            rows = _accepted(puts, rejected)
            existing_sizes[number] = put_rows(connection, puts.layout, rows, now)
        elif puts.layout.stream is not None:
            record_inserts(connection, puts.layout, _accepted(puts, rejected), now)
    write_expiry(connection, [*chain.from_iterable(puts.expiry for puts in batch.puts_by_table)])
    outcomes: list[TransactionResult | StoreError] = [
        *_results(batch.puts_by_table, existing_sizes)
    ]
    for position in sorted(rejected):
        outcomes[position] = run_individually(position)
    return outcomes


def _accepted(puts: PreparedPuts, rejected: set[int]) -> list[Row]:
    if not rejected:
        return puts.rows
    return [row for position, row in enumerate(puts.rows) if position not in rejected]


def _conditional(batch: PreparedBatch) -> list[tuple[int, PreparedPuts]]:
    return [
        (number, puts)
        for number, puts in enumerate(batch.puts_by_table)
        if puts.condition is not None
    ]


def merge_batches(parts: Sequence[PreparedBatch]) -> PreparedBatch:
    """Merge the batches of several callers; they have the same shape and distinct items."""
    if len(parts) == 1:
        return parts[0]
    puts_by_table = [
        PreparedPuts(
            table_puts[0].layout,
            table_puts[0].condition,
            [*chain.from_iterable(puts.keys for puts in table_puts)],
            [*chain.from_iterable(puts.rows for puts in table_puts)],
            [*chain.from_iterable(puts.expiry for puts in table_puts)],
        )
        for table_puts in zip(*(part.puts_by_table for part in parts), strict=True)
    ]
    return PreparedBatch(puts_by_table)


def prepare_batch(
    operations: Sequence[Transaction], layout_of: Callable[[Table], Layout]
) -> PreparedBatch | None:
    """Validate and encode transactions table by table; None if their shape does not allow it."""
    batch = operations if isinstance(operations, TransactionBatch) else _as_batch(operations)
    if (
        not batch
        or len(batch.puts) > _MAX_WRITES
        or len({puts.table.name for puts in batch.puts}) < len(batch.puts)
    ):
        return None
    puts_by_table: list[PreparedPuts] = []
    for puts in batch.puts:
        prepared = _prepare_puts(puts, layout_of)
        if prepared is None:
            return None
        puts_by_table.append(prepared)
    return PreparedBatch(puts_by_table)


def _as_batch(operations: Sequence[Transaction]) -> TransactionBatch | None:
    """Return the transactions as a batch if they have the same shape."""
    first = operations[0].writes if operations else ()
    if not first or any(
        operation.token is not None or len(operation.writes) != len(first)
        for operation in operations
    ):
        return None
    puts_by_table: list[Sequence[Any]] = [
        *zip(*(operation.writes for operation in operations), strict=True)
    ]
    if not all(_is_same_put(puts[0], write) for puts in puts_by_table for write in puts):
        return None
    return TransactionBatch(
        *(
            BatchPut(puts[0].table, [put.item for put in puts], {}, puts[0].condition)
            for puts in puts_by_table
        )
    )


def _is_same_put(first: Any, write: Any) -> bool:
    if type(write) is not Put or type(first) is not Put or write.returns != "NONE":
        return False
    return write.table is first.table and write.condition is first.condition


def _prepare_puts(puts: BatchPut, layout_of: Callable[[Table], Layout]) -> PreparedPuts | None:
    layout, condition = layout_of(puts.table), puts.condition
    if layout.indexes or not (condition is None or _requires_absence(condition, puts.table)):
        return None
    row_batch = layout.encode_rows(puts.items, puts.common)
    if len(set(row_batch.keys)) < len(row_batch.keys):
        return None
    return PreparedPuts(layout, condition, row_batch.keys, row_batch.rows, row_batch.expiry)


def _requires_absence(condition: Condition, table: Table) -> bool:
    """Whether the condition is that the item does not exist: every item has its partition key."""
    return type(condition) is Absent and condition.path.parts == (table.partition.name,)


def _results(
    puts_by_table: Sequence[PreparedPuts], existing_sizes: dict[int, dict[RowKey, int]]
) -> list[TransactionResult]:
    units = [_units(puts, existing_sizes[number]) for number, puts in enumerate(puts_by_table)]
    totals = map(sum, zip(*units, strict=True))
    return [capacity.total_result(2.0 * total) for total in totals]


def _units(puts: PreparedPuts, old_sizes: dict[RowKey, int]) -> list[int]:
    to_steps = capacity.write_steps
    if not old_sizes:
        return [1 if row[3] <= WRITE_STEP_BYTES else to_steps(row[3]) for row in puts.rows]
    return [to_steps(max(row[3], old_sizes.get(row[:2], 0))) for row in puts.rows]
