"""Many transactions at once that look alike, written table by table instead of one by one.

What a busy backend asks for is mostly this: a hundred times a put of a new item, with a put of another item beside it. Then
nothing depends on the order, so that each table can be checked, encoded and written as a whole, and several callers' transactions
with it: that saves most of Python's share of the cost. A transaction whose item is there already goes the long way, and learns
why it was refused.
"""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import apsw
from msgspec import Struct

from tally.store.api import Capacity, Put, Transacted, Transaction
from tally.store.errors import StoreError
from tally.store.expressions import Absent, Condition
from tally.store.schema import Table
from tally.store.sqlite import capacity
from tally.store.sqlite.keys import RowKey
from tally.store.sqlite.layout import Layout, Row
from tally.store.sqlite.rows import put_rows, sizes_at
from tally.store.sqlite.transactions import asked_of, outcome_of

_MOST_WRITES = 10  # of a transaction: so many items of any size fit
_NO_TOKENS = 0.0  # the time matters to transactions with a token alone


class Column(Struct, frozen=True):
    """The first writes of all transactions, or the second ones, and so on: puts of different items into one table."""

    layout: Layout
    only_new: bool
    keys: list[RowKey]
    rows: list[Row]


class Together(Struct, frozen=True):
    """Transactions whose order does not matter, with all that could be worked out before their turn came."""

    operations: Sequence[Transaction]
    columns: list[Column]

    def is_like(self, other: "Together") -> bool:
        """Whether they put into the same tables, on the same condition."""
        return len(self.columns) == len(other.columns) and all(
            one.layout is two.layout and one.only_new == two.only_new
            for one, two in zip(self.columns, other.columns, strict=True)
        )

    def is_current(self, layout_of: Callable[[Table], Layout]) -> bool:
        """Whether no table was changed in the meantime."""
        return all(layout_of(column.layout.table) is column.layout for column in self.columns)


def run_together(
    connection: apsw.Connection, alike: Together, layout_of: Callable[[Table], Layout]
) -> list[Transacted | StoreError]:
    """What became of each; the long way for all if a table was changed in the meantime."""

    def long_way(operation: Transaction) -> Transacted | StoreError:
        return outcome_of(connection, asked_of(operation, layout_of), _NO_TOKENS)

    if not alike.is_current(layout_of):
        return [long_way(operation) for operation in alike.operations]
    olds = [sizes_at(connection, column.layout, column.keys) for column in alike.columns]
    taken = _taken(alike.columns, olds)
    for column, sizes in zip(alike.columns, olds, strict=True):
        free = [row for position, row in enumerate(column.rows) if position not in taken] if taken else column.rows
        put_rows(connection, column.layout, free, sizes)
    answers: list[Transacted | StoreError] = list(_answers(alike.columns, olds))
    for position in taken:
        answers[position] = long_way(alike.operations[position])
    return answers


def joined(parts: Sequence[Together]) -> Together:
    """The transactions of several callers, all alike and of different items, as one."""
    if len(parts) == 1:
        return parts[0]
    columns = [
        Column(
            same[0].layout,
            same[0].only_new,
            [*chain.from_iterable(column.keys for column in same)],
            [*chain.from_iterable(column.rows for column in same)],
        )
        for same in zip(*(part.columns for part in parts), strict=True)
    ]
    return Together([*chain.from_iterable(part.operations for part in parts)], columns)


def together(operations: Sequence[Transaction], layout_of: Callable[[Table], Layout]) -> Together | None:
    """The transactions table by table, found good; None if they are not of that kind."""
    count = len(operations[0].writes) if operations else 0
    if not 0 < count <= _MOST_WRITES:
        return None
    if any(operation.token is not None or len(operation.writes) != count for operation in operations):
        return None
    columns: list[Column] = []
    for position in range(count):
        column = _column([operation.writes[position] for operation in operations], layout_of)
        if column is None:
            return None
        columns.append(column)
    if len({column.layout.rows for column in columns}) < count:
        return None
    return Together(operations, columns)


def _column(writes: Sequence[Any], layout_of: Callable[[Table], Layout]) -> Column | None:
    first = writes[0]
    if type(first) is not Put:
        return None
    table, condition = first.table, first.condition
    for write in writes:
        if type(write) is not Put or write.table is not table or write.condition is not condition or write.returns != "NONE":
            return None
    layout = layout_of(table)
    if layout.indexes or not (condition is None or _is_absence(condition, table)):
        return None
    row_of = layout.row_of
    rows = [row_of(write.item) for write in writes]
    keys = [row[:2] for row in rows]
    if len(set(keys)) < len(keys):
        return None
    return Column(layout, condition is not None, keys, rows)


def _is_absence(condition: Condition, table: Table) -> bool:
    """Whether the condition is that there is no such item: every item has its key."""
    return type(condition) is Absent and condition.path.parts == (table.partition.name,)


def _taken(columns: Sequence[Column], olds: Sequence[dict[RowKey, int]]) -> set[int]:
    """Which of the transactions want an item to be new that is there."""
    return {
        position
        for column, sizes in zip(columns, olds, strict=True)
        if column.only_new and sizes
        for position, key in enumerate(column.keys)
        if key in sizes
    }


def _answers(columns: Sequence[Column], olds: Sequence[dict[RowKey, int]]) -> list[Transacted]:
    units = [_units(column, sizes) for column, sizes in zip(columns, olds, strict=True)]
    return [_TRANSACTED[each] for each in map(sum, zip(*units, strict=True))]


def _units(column: Column, olds: dict[RowKey, int]) -> list[int]:
    of_write = capacity.steps_of_write
    if not olds:
        return [1 if row[3] <= capacity.WRITE_STEP else of_write(row[3]) for row in column.rows]
    return [of_write(max(row[3], olds.get(row[:2], 0))) for row in column.rows]


class _Costs(dict[int, Transacted]):
    """One answer for each cost: such transactions are many, and their answers alike."""

    def __missing__(self, units: int) -> Transacted:
        self[units] = answer = Transacted(Capacity(write=2.0 * units))
        return answer


_TRANSACTED = _Costs()
