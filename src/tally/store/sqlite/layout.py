"""Where a table lives in the database: one SQL table of rows, one more for each index, and the statements for both.

A row is `(pk, sk) → item, size, expires`. An index holds no copy of the item, only `(ipk, isk, pk, sk)`, and a query joins
the rows: so a write touches an index only when the item's key in it changes, and an index can never carry a stale value.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from msgspec import Struct

from tally.store.expressions import Path
from tally.store.schema import Index, Table, carried_names
from tally.store.sqlite.keys import RowKey, checked_key_reader, index_key_reader, row_key_reader
from tally.store.values import Item, measure_item


@dataclass(frozen=True, slots=True)
class IndexLayout:
    """One index: how to read an item's key in it, what it carries, and its statements."""

    index: Index
    read_key: Callable[[Mapping[str, Any]], RowKey | None]
    carried: frozenset[str] | None
    insert: str
    delete: str

    def carry(self, item: Item) -> Item:
        """What the index shows of an item."""
        carried = self.carried
        return item if carried is None else {name: value for name, value in item.items() if name in carried}

    def fetches(self, projection: Sequence[Path]) -> bool:
        """Whether the projection asks for what a local index has to fetch from the table, item by item."""
        carried = self.carried
        return carried is not None and self.index.local and any(path.parts[0] not in carried for path in projection)

    def carried_size(self, item: Item, size: int) -> int:
        """The size of what the index shows."""
        return size if self.carried is None else measure_item(self.carry(item))


@dataclass(frozen=True, slots=True)
class Layout:
    """A table compiled once: key readers and statements."""

    table: Table
    rows: str
    read_key: Callable[[Mapping[str, Any]], RowKey]
    checked_key: Callable[[Mapping[str, Any]], RowKey]
    indexes: tuple[IndexLayout, ...]
    select: str
    upsert: str
    delete: str
    expired: str
    ranges: dict[tuple[Any, ...], str] = field(default_factory=dict)

    def select_sizes(self, count: int) -> str:
        """The statement that finds the sizes of the items at so many keys: one step of SQLite instead of one for each."""
        statement = self.ranges.get(("sizes", count))
        if statement is None:
            marks = ", ".join(["(?, ?)"] * count)
            statement = f"SELECT pk, sk, size FROM {self.rows} WHERE (pk, sk) IN (VALUES {marks})"
            self.ranges["sizes", count] = statement
        return statement

    def index_layout(self, name: str) -> IndexLayout:
        """The layout of one index."""
        return next(layout for layout in self.indexes if layout.index.name == name)

    def expires(self, item: Item) -> float | None:
        """When the item's time to live is over, where it has one."""
        until = item.get(self.table.ttl) if self.table.ttl else None
        return float(until) if isinstance(until, int | Decimal) and not isinstance(until, bool) else None


class Change(Struct, frozen=True):
    """An item before and after, decided and not yet written. `after` is None where nothing will be left."""

    layout: Layout
    key: RowKey
    before: Item | None
    before_size: int
    after: Item | None
    after_size: int
    packed: bytes = b""


def rows_name(table: str) -> str:
    """The SQL name of a table's rows; names of tables hold no quotes."""
    return f'"rows {table}"'


def index_name(table: str, index: str) -> str:
    """The SQL name of an index's entries."""
    return f'"index {table} {index}"'


def compile_layout(table: Table) -> Layout:
    """The layout of a table."""
    rows = rows_name(table.name)
    return Layout(
        table=table,
        rows=rows,
        read_key=row_key_reader(table),
        checked_key=checked_key_reader(table),
        indexes=tuple(_compile_index(table, index) for index in table.by_name.values()),
        select=f"SELECT item, size FROM {rows} WHERE pk = ? AND sk = ?",
        upsert=f"INSERT INTO {rows} VALUES (?, ?, ?, ?, ?) ON CONFLICT (pk, sk) DO UPDATE"
        " SET item = excluded.item, size = excluded.size, expires = excluded.expires",
        delete=f"DELETE FROM {rows} WHERE pk = ? AND sk = ?",
        expired=f"SELECT pk, sk, item FROM {rows} WHERE expires > ? AND expires <= ? LIMIT ?",
    )


def _compile_index(table: Table, index: Index) -> IndexLayout:
    name = index_name(table.name, index.name)
    carried = None
    if index.projection.kind != "ALL":
        carried = carried_names(table, index)
    return IndexLayout(
        index=index,
        read_key=index_key_reader(index),
        carried=carried,
        insert=f"INSERT OR REPLACE INTO {name} VALUES (?, ?, ?, ?)",
        delete=f"DELETE FROM {name} WHERE ipk = ? AND isk = ? AND pk = ? AND sk = ?",
    )


def create_rows(table: str) -> str:
    """The statement that makes a table's rows. The sweeper's index holds only rows that expire."""
    return (
        f"CREATE TABLE {rows_name(table)} (pk BLOB NOT NULL, sk BLOB NOT NULL, item BLOB NOT NULL, size INTEGER NOT NULL,"
        " expires REAL, PRIMARY KEY (pk, sk)) WITHOUT ROWID;"
        f'CREATE INDEX "expires {table}" ON {rows_name(table)} (expires) WHERE expires IS NOT NULL'
    )


def create_index(table: str, index: str) -> str:
    """The statement that makes an index's entries."""
    return (
        f"CREATE TABLE {index_name(table, index)} (ipk BLOB NOT NULL, isk BLOB NOT NULL, pk BLOB NOT NULL, sk BLOB NOT NULL,"
        " PRIMARY KEY (ipk, isk, pk, sk)) WITHOUT ROWID"
    )
