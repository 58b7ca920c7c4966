"""Many transactions at once that look alike, written table by table instead of one by one.

What a busy backend asks for is mostly this: a hundred times a put of a new item, with a put of another item beside it. Then
nothing depends on the order, so that each table can be checked, encoded and written as a whole, which saves most of Python's
share of the cost. A transaction whose item is there already goes the long way, and learns why it was refused.
"""

from collections.abc import Callable, Sequence
from typing import Any

import apsw
from msgspec import Struct

from tally.store.api import Capacity, Put, Transacted, Transaction
from tally.store.errors import StoreError
from tally.store.expressions import Absent, Condition
from tally.store.schema import Table, check_item_keys
from tally.store.sqlite import capacity
from tally.store.sqlite.codec import pack
from tally.store.sqlite.keys import RowKey
from tally.store.sqlite.layout import Layout
from tally.store.sqlite.transactions import asked_of, outcome_of
from tally.store.sqlite.writes import sizes_at
from tally.store.values import measure_item

_MOST_WRITES = 10  # of a transaction: so many items of any size fit


class Column(Struct, frozen=True):
    """The first writes of all transactions, or the second ones, and so on: puts of different items into one table."""

    layout: Layout
    keys: list[RowKey]
    rows: list[tuple[Any, ...]]
    sizes: list[int]
    only_new: bool


class Together(Struct, frozen=True):
    """Transactions whose order does not matter, with all that could be worked out before their turn came."""

    operations: Sequence[Transaction]
    columns: list[Column]

    def run(self, connection: apsw.Connection, layout_of: Callable[[Table], Layout], now: float) -> list[Transacted | StoreError]:
        """What became of each; the long way for all if a table was changed in the meantime."""
        if any(layout_of(column.layout.table) is not column.layout for column in self.columns):
            return [outcome_of(connection, asked_of(operation, layout_of), now) for operation in self.operations]
        olds = [sizes_at(connection, column.layout, column.keys) for column in self.columns]
        taken = {
            position
            for column, sizes in zip(self.columns, olds, strict=True)
            if column.only_new and sizes
            for position, key in enumerate(column.keys)
            if key in sizes
        }
        for column in self.columns:
            free = [row for position, row in enumerate(column.rows) if position not in taken] if taken else column.rows
            connection.executemany(column.layout.upsert, free)
        answers: list[Transacted | StoreError] = list(_answers(self.columns, olds))
        for position in taken:
            answers[position] = outcome_of(connection, asked_of(self.operations[position], layout_of), now)
        return answers


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
    items = [write.item for write in writes]
    sizes = [measure_item(item) for item in items]
    for item in items:
        check_item_keys(layout.table, item)
    keys = [layout.read_key(item) for item in items]
    if len(set(keys)) < len(keys):
        return None
    expires = layout.expires
    rows = [(*key, pack(item), size, expires(item)) for key, item, size in zip(keys, items, sizes, strict=True)]
    return Column(layout, keys, rows, sizes, condition is not None)


def _is_absence(condition: Condition, table: Table) -> bool:
    """Whether the condition is that there is no such item: every item has its key."""
    return type(condition) is Absent and condition.path.parts == (table.partition.name,)


def _answers(columns: Sequence[Column], olds: Sequence[dict[RowKey, int]]) -> list[Transacted]:
    units = [_units(column, sizes) for column, sizes in zip(columns, olds, strict=True)]
    return [_TRANSACTED[sum(each)] for each in zip(*units, strict=True)]


def _units(column: Column, olds: dict[RowKey, int]) -> list[float]:
    of_write = capacity.of_write
    if not olds:
        return [of_write(size) for size in column.sizes]
    return [of_write(max(size, olds.get(key, 0))) for key, size in zip(column.keys, column.sizes, strict=True)]


class _Costs(dict[float, Transacted]):
    """One answer for each cost: such transactions are many, and their answers alike."""

    def __missing__(self, units: float) -> Transacted:
        self[units] = answer = Transacted(Capacity(write=2.0 * units))
        return answer


_TRANSACTED = _Costs()
