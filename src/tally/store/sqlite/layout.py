"""The SQL tables and statements of a table: one SQL table of rows, and one per index.

A row is `(pk, sk) → item, size, expires`. An index stores only `(ipk, isk, pk, sk)`, and a query
joins the rows. So a write touches an index only if the item's index key changes, and an index never
holds stale values.
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

# The columns of a row: pk, sk, item, size, expires.
Row: TypeAlias = tuple[bytes, bytes, bytes, int, float | None]

EXPIRY_BUCKET_SECONDS = 3600
_EXPIRY_BUCKET = f"CAST(expires / {EXPIRY_BUCKET_SECONDS} AS INTEGER)"


@dataclass(frozen=True, slots=True)
class IndexLayout:
    """One index: its key reader, its projection and its statements."""

    index: Index
    read_key: Callable[[Mapping[str, Any]], RowKey | None]
    projected: frozenset[str] | None
    insert: str
    delete: str

    def project(self, item: Item) -> Item:
        """Return the projected attributes of an item."""
        projected = self.projected
        return (
            item
            if projected is None
            else {name: value for name, value in item.items() if name in projected}
        )

    def fetches(self, projection: Sequence[Path]) -> bool:
        """Whether a local index must fetch attributes of the projection from the table."""
        projected = self.projected
        return (
            projected is not None
            and self.index.local
            and any(path.parts[0] not in projected for path in projection)
        )

    def projected_size(self, item: Item, size: int) -> int:
        """Return the size of the projected attributes."""
        return size if self.projected is None else measure_item(self.project(item))


class RowBatch(Struct, frozen=True):
    """Encoded rows of many items.

    If there are expiry ranges, they cover all rows, and the rows themselves have no expiry.
    """

    keys: list[RowKey]
    rows: list[Row]
    expiry_ranges: list[ExpiryRange]


@dataclass(frozen=True, slots=True)
class Layout:
    """A compiled table: key readers, row encoder and SQL statements.

    It has many fields because compiling them once keeps every operation fast.
    """

    table: Table
    declaration: str
    rows: str
    read_key: Callable[[Mapping[str, Any]], RowKey]
    checked_key: Callable[[Mapping[str, Any]], RowKey]
    # Returns the expiry time of an item, or None.
    expires: Callable[[Mapping[str, Any]], float | None]
    # Validates and encodes items; the second argument holds their common attributes.
    encode_rows: Callable[[Sequence[Item], Item], "RowBatch"]
    indexes: tuple[IndexLayout, ...]
    select: str
    upsert: str
    delete: str
    expired: str
    ranges: dict[tuple[Any, ...], str] = field(default_factory=dict)

    def select_sizes(self, count: int) -> str:
        """Return the statement that reads the sizes of this many items."""
        statement = self.ranges.get(("sizes", count))
        if statement is None:
            marks = ", ".join(["(?, ?)"] * count)
            statement = f"SELECT pk, sk, size FROM {self.rows} WHERE (pk, sk) IN (VALUES {marks})"
            self.ranges["sizes", count] = statement
        return statement

    def insert_new(self, count: int) -> str:
        """Return the statement that inserts this many rows.

        It fails at the first existing key and leaves the previous rows inserted: SQLite then needs
        no statement journal, which costs as much as the rows.
        """
        statement = self.ranges.get(("insert", count))
        if statement is None:
            marks = ",".join(["(?,?,?,?,?)"] * count)  # SQLite does not cache very long statements
            statement = self.ranges["insert", count] = (
                f"INSERT OR FAIL INTO {self.rows} VALUES {marks}"
            )
        return statement

    def index_layout(self, name: str) -> IndexLayout:
        """Return the layout of one index."""
        return next(layout for layout in self.indexes if layout.index.name == name)


class ItemChange(Struct, frozen=True):
    """An item before and after a write that is not yet executed; `after` is None for a delete."""

    layout: Layout
    key: RowKey
    before: Item | None
    before_size: int
    after: Item | None
    after_size: int
    packed: bytes = b""


def rows_name(table: str) -> str:
    """Return the SQL name of a table's rows; table names contain no quotes."""
    return f'"rows {table}"'


def index_name(table: str, index: str) -> str:
    """Return the SQL name of an index's entries."""
    return f'"index {table} {index}"'


def compile_layout(table: Table) -> Layout:
    """Compile the layout of a table."""
    rows = rows_name(table.name)
    return Layout(
        table=table,
        declaration=declare(table),
        rows=rows,
        read_key=row_key_reader(table),
        checked_key=checked_key_reader(table),
        expires=_expiry_reader(table),
        encode_rows=_row_encoder(table),
        indexes=tuple(_compile_index(table, index) for index in table.by_name.values()),
        select=f"SELECT item, size FROM {rows} WHERE pk = ? AND sk = ?",
        upsert=f"INSERT INTO {rows} VALUES (?, ?, ?, ?, ?) ON CONFLICT (pk, sk) DO UPDATE"
        " SET item = excluded.item, size = excluded.size, expires = excluded.expires",
        delete=f"DELETE FROM {rows} WHERE pk = ? AND sk = ?",
        expired=f"SELECT pk, sk, item FROM {rows} WHERE (pk, sk) IN (SELECT pk, sk FROM {rows}"
        f" WHERE {_EXPIRY_BUCKET} BETWEEN ? AND ? AND expires > ? AND expires <= ? LIMIT ?)",
    )


def _expiry_reader(table: Table) -> Callable[[Mapping[str, Any]], float | None]:
    ttl = table.ttl
    if ttl is None:
        return lambda _item: None

    return lambda item: _to_time(item.get(ttl))


def _to_time(value: Any) -> float | None:
    return float(value) if type(value) is int or type(value) is Decimal else None


def _to_times(values: Sequence[Any]) -> list[float | None]:
    return [*map(float if {*map(type, values)} <= {int, Decimal} else _to_time, values)]


def _row_encoder(table: Table) -> Callable[[Sequence[Item], Item], RowBatch]:
    expires, read_key = _expiry_reader(table), row_key_reader(table)

    def row(item: Item) -> Row:
        size = measure_item(item)
        check_item_keys(table, item)
        return (*read_key(item), pack(item), size, expires(item))

    def encode(items: Sequence[Item], common: Item) -> RowBatch:
        columns = to_columns(items, common)
        if columns is not None:
            packed, sizes = pack_columns(columns, common)  # validates values before keys
            key_parts = key_columns(table, columns, common)
            if key_parts is not None:
                keys = [*zip(*key_parts, strict=True)]
                expiry_times = (
                    _to_times(columns[table.ttl])
                    if table.ttl and table.ttl in columns
                    else [expires(common)] * len(keys)
                )
                ranges = expiry_ranges(table.name, keys, expiry_times)
                return RowBatch(
                    keys,
                    [*zip(*key_parts, packed, sizes, repeat(None) if ranges else expiry_times)],  # noqa: B905
                    ranges,
                )
        rows = [row({**common, **item}) for item in items]
        return RowBatch([encoded[:2] for encoded in rows], rows, [])

    return encode


def _compile_index(table: Table, index: Index) -> IndexLayout:
    name = index_name(table.name, index.name)
    projected = None
    if index.projection.kind != "ALL":
        projected = projected_names(table, index)
    return IndexLayout(
        index=index,
        read_key=index_key_reader(index),
        projected=projected,
        insert=f"INSERT OR REPLACE INTO {name} VALUES (?, ?, ?, ?)",
        delete=f"DELETE FROM {name} WHERE ipk = ? AND isk = ? AND pk = ? AND sk = ?",
    )


def create_rows(table: str) -> str:
    """Return the statements that create a table's rows and its expiry index."""
    return (
        f"CREATE TABLE {rows_name(table)} (pk BLOB NOT NULL, sk BLOB NOT NULL, item BLOB NOT"
        " NULL, size INTEGER NOT NULL,"
        f" expires REAL, PRIMARY KEY (pk, sk)) WITHOUT ROWID; {create_expiry_index(table)}"
    )


def create_expiry_index(table: str) -> str:
    """Return the statement that creates the expiry index, which contains only rows that expire.

    It is ordered by hour and then by key: a device's readings of one day need few pages, whereas an
    order by second would touch one page per reading.
    """
    return (
        # `expires` makes it a covering index.
        f'CREATE INDEX "expires {table}" ON {rows_name(table)} ({_EXPIRY_BUCKET}, pk, sk, expires)'
        " WHERE expires IS NOT NULL"
    )


def create_index(table: str, index: str) -> str:
    """Return the statement that creates an index's entries."""
    return (
        f"CREATE TABLE {index_name(table, index)} (ipk BLOB NOT NULL, isk BLOB NOT NULL, pk BLOB"
        " NOT NULL, sk BLOB NOT NULL,"
        " PRIMARY KEY (ipk, isk, pk, sk)) WITHOUT ROWID"
    )
