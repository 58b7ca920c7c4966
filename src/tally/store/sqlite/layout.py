"""Where a table lives in the database: one SQL table of rows, one more for each index, and the statements for both.

A row is `(pk, sk) → item, size, expires`. An index holds no copy of the item, only `(ipk, isk, pk,
sk)`, and a query joins the rows: so a write touches an index only when the item's key in it
changes, and an index can never carry a stale value.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import repeat
from typing import Any, TypeAlias

from msgspec import Struct

from tally.store.expressions import Path
from tally.store.schema import Index, Table, check_item_keys, projected_names
from tally.store.sqlite.codec import pack
from tally.store.sqlite.columns import pack_columns, to_columns
from tally.store.sqlite.declarations import declare
from tally.store.sqlite.expiry import ExpiryRange, expiry_ranges
from tally.store.sqlite.keys import (
    RowKey,
    checked_key_reader,
    index_key_reader,
    key_columns,
    row_key_reader,
)
from tally.store.values import Item, measure_item

# What stands in the columns of a table's rows: pk, sk, item, size, expires.
Row: TypeAlias = tuple[bytes, bytes, bytes, int, float | None]

EXPIRY_BUCKET_SECONDS = 3600
_HOUR = f"CAST(expires / {EXPIRY_BUCKET_SECONDS} AS INTEGER)"


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
        return (
            item
            if carried is None
            else {name: value for name, value in item.items() if name in carried}
        )

    def fetches(self, projection: Sequence[Path]) -> bool:
        """Whether the projection asks for what a local index has to fetch from the table, item by item."""
        carried = self.carried
        return (
            carried is not None
            and self.index.local
            and any(path.parts[0] not in carried for path in projection)
        )

    def carried_size(self, item: Item, size: int) -> int:
        """The size of what the index shows."""
        return size if self.carried is None else measure_item(self.carry(item))


class RowBatch(Struct, frozen=True):
    """Rows to be written together, and the notes of when they expire, where they do not say it themselves."""

    keys: list[RowKey]
    rows: list[Row]
    notes: list[ExpiryRange]


@dataclass(frozen=True, slots=True)
class Layout:
    """A table compiled once: key readers and statements."""

    table: Table
    declaration: str
    rows: str
    read_key: Callable[[Mapping[str, Any]], RowKey]
    checked_key: Callable[[Mapping[str, Any]], RowKey]
    # When the item's time to live is over, where it has one.
    expires: Callable[[Mapping[str, Any]], float | None]
    # The rows of items, each with what is common to all of them, once they have been found good.
    rows_of: Callable[[Sequence[Item], Item], "RowBatch"]
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

    def insert_new(self, count: int) -> str:
        """The statement that writes so many rows whose keys have none.

        At the first one that has, it stops and fails, and those before stay written: SQLite need
        not keep what it would take to undo the statement alone, which costs as much as the rows.
        """
        statement = self.ranges.get(("insert", count))
        if statement is None:
            marks = ",".join(
                ["(?,?,?,?,?)"] * count
            )  # short: SQLite's longest prepared statements are not kept
            statement = self.ranges["insert", count] = (
                f"INSERT OR FAIL INTO {self.rows} VALUES {marks}"
            )
        return statement

    def index_layout(self, name: str) -> IndexLayout:
        """The layout of one index."""
        return next(layout for layout in self.indexes if layout.index.name == name)


class ItemChange(Struct, frozen=True):
    """An item before and after, decided and not yet written.

    `after` is None where nothing will be left.
    """

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
        declaration=declare(table),
        rows=rows,
        read_key=row_key_reader(table),
        checked_key=checked_key_reader(table),
        expires=_expiry_reader(table),
        rows_of=_row_maker(table),
        indexes=tuple(_compile_index(table, index) for index in table.by_name.values()),
        select=f"SELECT item, size FROM {rows} WHERE pk = ? AND sk = ?",
        upsert=f"INSERT INTO {rows} VALUES (?, ?, ?, ?, ?) ON CONFLICT (pk, sk) DO UPDATE"
        " SET item = excluded.item, size = excluded.size, expires = excluded.expires",
        delete=f"DELETE FROM {rows} WHERE pk = ? AND sk = ?",
        expired=f"SELECT pk, sk, item FROM {rows} WHERE (pk, sk) IN (SELECT pk, sk FROM {rows}"
        f" WHERE {_HOUR} BETWEEN ? AND ? AND expires > ? AND expires <= ? LIMIT ?)",
    )


def _expiry_reader(table: Table) -> Callable[[Mapping[str, Any]], float | None]:
    ttl = table.ttl
    if ttl is None:
        return lambda _item: None

    return lambda item: _moment(item.get(ttl))


def _moment(value: Any) -> float | None:
    return float(value) if type(value) is int or type(value) is Decimal else None


def _moments(values: Sequence[Any]) -> list[float | None]:
    return [*map(float if {*map(type, values)} <= {int, Decimal} else _moment, values)]


def _row_maker(table: Table) -> Callable[[Sequence[Item], Item], RowBatch]:
    expires, read_key = _expiry_reader(table), row_key_reader(table)

    def row(item: Item) -> Row:
        size = measure_item(item)
        check_item_keys(table, item)
        return (*read_key(item), pack(item), size, expires(item))

    def make(items: Sequence[Item], common: Item) -> RowBatch:
        columns = to_columns(items, common)
        if columns is not None:
            packed, sizes = pack_columns(
                columns, common
            )  # before the keys: it refuses what no value may be
            found = key_columns(table, columns, common)
            if found is not None:
                keys = [*zip(*found, strict=True)]
                ends = (
                    _moments(columns[table.ttl])
                    if table.ttl and table.ttl in columns
                    else [expires(common)] * len(keys)
                )
                notes = expiry_ranges(table.name, keys, ends)
                return RowBatch(
                    keys,
                    [*zip(*found, packed, sizes, repeat(None) if notes else ends)],  # noqa: B905
                    notes,
                )
        rows = [row({**common, **item}) for item in items]
        return RowBatch([each[:2] for each in rows], rows, [])

    return make


def _compile_index(table: Table, index: Index) -> IndexLayout:
    name = index_name(table.name, index.name)
    carried = None
    if index.projection.kind != "ALL":
        carried = projected_names(table, index)
    return IndexLayout(
        index=index,
        read_key=index_key_reader(index),
        carried=carried,
        insert=f"INSERT OR REPLACE INTO {name} VALUES (?, ?, ?, ?)",
        delete=f"DELETE FROM {name} WHERE ipk = ? AND isk = ? AND pk = ? AND sk = ?",
    )


def create_rows(table: str) -> str:
    """The statements that make a table's rows, and the sweeper's index of them."""
    return (
        f"CREATE TABLE {rows_name(table)} (pk BLOB NOT NULL, sk BLOB NOT NULL, item BLOB NOT NULL, size INTEGER NOT NULL,"
        f" expires REAL, PRIMARY KEY (pk, sk)) WITHOUT ROWID; {create_expiry(table)}"
    )


def create_expiry(table: str) -> str:
    """The statement that makes the sweeper's index, which holds only rows that expire.

    It goes by the hour and then by key: what a device measured in a day then stands in a few
    places, where by the second every reading would have a page of its own to be written.
    """
    return (
        f'CREATE INDEX "expires {table}" ON {rows_name(table)} ({_HOUR}, pk, sk, expires)'  # the last, to be read from here
        " WHERE expires IS NOT NULL"
    )


def create_index(table: str, index: str) -> str:
    """The statement that makes an index's entries."""
    return (
        f"CREATE TABLE {index_name(table, index)} (ipk BLOB NOT NULL, isk BLOB NOT NULL, pk BLOB NOT NULL, sk BLOB NOT NULL,"
        " PRIMARY KEY (ipk, isk, pk, sk)) WITHOUT ROWID"
    )
