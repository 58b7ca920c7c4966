"""Many transactions at once that look alike, written table by table instead of one by one.

What a busy backend asks for is mostly this: a hundred times a put of a new item, with a put of
another item beside it. Then nothing depends on the order, so that each table can be checked,
encoded and written as a whole, and several callers' transactions with it: that saves most of
Python's share of the cost. A transaction whose item is there already goes the long way, and learns
why it was refused.
"""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import apsw
from msgspec import Struct

from tally.store.api import (
    BatchPut,
    Capacity,
    Put,
    Transaction,
    TransactionBatch,
    TransactionResult,
)
from tally.store.errors import StoreError
from tally.store.expressions import Absent, Condition
from tally.store.schema import Table
from tally.store.sqlite import capacity
from tally.store.sqlite.codec import unpack
from tally.store.sqlite.expiry import ExpiryRange, write_expiry_ranges
from tally.store.sqlite.keys import RowKey
from tally.store.sqlite.layout import Layout, Row
from tally.store.sqlite.rows import put_new, put_rows
from tally.store.sqlite.transactions import prepare_transaction, try_transact

_MAX_WRITES = 10  # of a transaction: so many items of any size fit
_NO_TOKENS = 0.0  # the time matters to transactions with a token alone


class PreparedPuts(Struct, frozen=True):
    """The first writes of all transactions, or the second ones, and so on: puts of different items into one table.

    The condition, if there is one, is that there is no such item.
    """

    layout: Layout
    condition: Condition | None
    keys: list[RowKey]
    rows: list[Row]
    notes: list[ExpiryRange]  # of when the rows expire, where they do not say it themselves


class PreparedBatch(Struct, frozen=True):
    """Transactions whose order does not matter, with all that could be worked out before their turn came."""

    columns: list[PreparedPuts]

    def __len__(self) -> int:
        return len(self.columns[0].rows)

    def is_like(self, other: "PreparedBatch") -> bool:
        """Whether they put into the same tables, on the same condition."""
        return len(self.columns) == len(other.columns) and all(
            one.layout is two.layout and (one.condition is None) == (two.condition is None)
            for one, two in zip(self.columns, other.columns, strict=True)
        )

    def is_current(self, layout_of: Callable[[Table], Layout]) -> bool:
        """Whether no table was changed in the meantime."""
        return all(layout_of(column.layout.table) is column.layout for column in self.columns)

    def transaction(self, position: int) -> Transaction:
        """One of them by itself.

        The items were let go of, since they take more memory than their rows: it has them again.
        """
        writes = [
            Put(column.layout.table, unpack(column.rows[position][2]), column.condition)
            for column in self.columns
        ]
        return Transaction(tuple(writes))


def run_batch(
    connection: apsw.Connection, alike: PreparedBatch, layout_of: Callable[[Table], Layout]
) -> list[TransactionResult | StoreError]:
    """What became of each; the long way for all if a table was changed in the meantime."""

    def long_way(position: int) -> TransactionResult | StoreError:
        return try_transact(
            connection, prepare_transaction(alike.transaction(position), layout_of), _NO_TOKENS
        )

    if not alike.is_current(layout_of):
        return [long_way(position) for position in range(len(alike))]
    there = {
        number: put_new(connection, column.layout, column.rows)
        for number, column in _conditional(alike)
    }
    taken = {
        place
        for number, column in _conditional(alike)
        for place, key in enumerate(column.keys)
        if key in there[number]
    }
    if taken:
        for number, column in _conditional(alike):
            written = [
                column.keys[place] for place in taken if column.keys[place] not in there[number]
            ]
            connection.executemany(column.layout.delete, written)
    for number, column in enumerate(alike.columns):
        if column.condition is None:
            free = (
                [row for place, row in enumerate(column.rows) if place not in taken]
                if taken
                else column.rows
            )
            there[number] = put_rows(connection, column.layout, free)
    write_expiry_ranges(
        connection, [*chain.from_iterable(column.notes for column in alike.columns)]
    )
    answers: list[TransactionResult | StoreError] = [*_answers(alike.columns, there)]
    for place in sorted(taken):
        answers[place] = long_way(place)
    return answers


def _conditional(alike: PreparedBatch) -> list[tuple[int, PreparedPuts]]:
    return [
        (number, column)
        for number, column in enumerate(alike.columns)
        if column.condition is not None
    ]


def merge_batches(parts: Sequence[PreparedBatch]) -> PreparedBatch:
    """The transactions of several callers, all alike and of different items, as one."""
    if len(parts) == 1:
        return parts[0]
    columns = [
        PreparedPuts(
            same[0].layout,
            same[0].condition,
            [*chain.from_iterable(column.keys for column in same)],
            [*chain.from_iterable(column.rows for column in same)],
            [*chain.from_iterable(column.notes for column in same)],
        )
        for same in zip(*(part.columns for part in parts), strict=True)
    ]
    return PreparedBatch(columns)


def prepare_batch(
    operations: Sequence[Transaction], layout_of: Callable[[Table], Layout]
) -> PreparedBatch | None:
    """The transactions table by table, found good; None if they are not of that kind."""
    alike = operations if isinstance(operations, TransactionBatch) else _found_alike(operations)
    if (
        not alike
        or len(alike.puts) > _MAX_WRITES
        or len({puts.table.name for puts in alike.puts}) < len(alike.puts)
    ):
        return None
    columns: list[PreparedPuts] = []
    for puts in alike.puts:
        column = _column(puts, layout_of)
        if column is None:
            return None
        columns.append(column)
    return PreparedBatch(columns)


def _found_alike(operations: Sequence[Transaction]) -> TransactionBatch | None:
    """The same transactions, if they turn out to be alike."""
    first = operations[0].writes if operations else ()
    if not first or any(
        operation.token is not None or len(operation.writes) != len(first)
        for operation in operations
    ):
        return None
    columns: list[Sequence[Any]] = [
        *zip(*(operation.writes for operation in operations), strict=True)
    ]
    if not all(_is_put_like(column[0], write) for column in columns for write in column):
        return None
    return TransactionBatch(
        *(
            BatchPut(column[0].table, [put.item for put in column], {}, column[0].condition)
            for column in columns
        )
    )


def _is_put_like(first: Any, write: Any) -> bool:
    if type(write) is not Put or type(first) is not Put or write.returns != "NONE":
        return False
    return write.table is first.table and write.condition is first.condition


def _column(puts: BatchPut, layout_of: Callable[[Table], Layout]) -> PreparedPuts | None:
    layout, condition = layout_of(puts.table), puts.condition
    if layout.indexes or not (condition is None or _is_absence(condition, puts.table)):
        return None
    made = layout.rows_of(puts.items, puts.common)
    if len(set(made.keys)) < len(made.keys):
        return None
    return PreparedPuts(layout, condition, made.keys, made.rows, made.notes)


def _is_absence(condition: Condition, table: Table) -> bool:
    """Whether the condition is that there is no such item: every item has its key."""
    return type(condition) is Absent and condition.path.parts == (table.partition.name,)


def _answers(
    columns: Sequence[PreparedPuts], there: dict[int, dict[RowKey, int]]
) -> list[TransactionResult]:
    units = [_units(column, there[number]) for number, column in enumerate(columns)]
    return [_TRANSACTED[each] for each in map(sum, zip(*units, strict=True))]


def _units(column: PreparedPuts, olds: dict[RowKey, int]) -> list[int]:
    of_write = capacity.write_steps
    if not olds:
        return [1 if row[3] <= capacity.WRITE_STEP else of_write(row[3]) for row in column.rows]
    return [of_write(max(row[3], olds.get(row[:2], 0))) for row in column.rows]


class _Costs(dict[int, TransactionResult]):
    """One answer for each cost: such transactions are many, and their answers alike."""

    def __missing__(self, units: int) -> TransactionResult:
        self[units] = answer = TransactionResult(Capacity(write=2.0 * units))
        return answer


_TRANSACTED = _Costs()
