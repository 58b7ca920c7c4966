"""The SQL tables and statements of a table: one SQL table of rows, and one per index.

A row is `(pk, sk) → item, size`. An index stores only `(ipk, isk, pk, sk)`, and a query
joins the rows. So a write touches an index only if the item's index key changes, and an index never
holds stale values.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, TypeAlias

from msgspec import Struct

from tally.store.expressions import Path
from tally.store.schema import (
    MAX_PARTITION_BYTES,
    MAX_SORT_BYTES,
    Index,
    StreamView,
    Table,
    check_item_keys,
    projected_names,
)
from tally.store.sqlite.columns import pack_columns, to_columns
from tally.store.sqlite.declarations import declare
from tally.store.sqlite.expiry import ExpiryRecord, expiry_recorder
from tally.store.sqlite.keys import (
    RowKey,
    checked_key_reader,
    index_key_reader,
    key_columns,
    row_key_reader,
)
from tally.store.sqlite.shapes import ItemPacker, Shapes
from tally.store.values import Item, measure_item

WRITE_STEP_BYTES: Final = 1024  # a write costs a unit per step
_REPLACE: Final = "ON CONFLICT (pk, sk) DO UPDATE SET item = excluded.item, size = excluded.size"
# The columns of a row: pk, sk, item, size.
Row: TypeAlias = tuple[bytes, bytes, bytes, int]


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

    def fetches(self, projection: Sequence[Path], *, whole_items: bool) -> bool:
        """Whether a local index must fetch attributes from the table."""
        projected = self.projected
        return (
            projected is not None
            and self.index.local
            and (whole_items or any(path.parts[0] not in projected for path in projection))
        )

    def projected_size(self, item: Item, size: int) -> int:
        """Return the size of the projected attributes."""
        return size if self.projected is None else measure_item(self.project(item))


@dataclass(frozen=True, slots=True)
class StreamLayout:
    """The stream of a table: its id in the change log, and which images a record has.

    `needs_image`: the table's key has other types than strings, which only an image contains.
    """

    id: int
    view: StreamView
    keeps_old: bool
    keeps_new: bool
    needs_image: bool


class RowBatch(Struct, frozen=True):
    """Encoded rows of many items, and the records of those that expire."""

    keys: list[RowKey]
    rows: list[Row]
    expiry: list[ExpiryRecord]


@dataclass(frozen=True, slots=True)
class Layout:
    """A compiled table: key readers, row encoder and SQL statements.

    It has many fields because compiling them once keeps every operation fast.
    """

    table: Table
    declaration: str
    building: frozenset[str]  # indexes that are not complete yet; `backfill.py`
    rows: str
    read_key: Callable[[Mapping[str, Any]], RowKey]
    checked_key: Callable[[Mapping[str, Any]], RowKey]
    packer: ItemPacker
    # Returns the expiry time of an item, or None.
    expires: Callable[[Mapping[str, Any]], float | None]
    # Returns the expiry records of rows by their keys and expiry times.
    expiry_records: Callable[[Sequence[RowKey], Sequence[float | None]], list[ExpiryRecord]]
    # Validates and encodes an item.
    encode_item: Callable[[Item], Row]
    # Validates and encodes items; the second argument holds their common attributes.
    encode_rows: Callable[[Sequence[Item], Item], "RowBatch"]
    indexes: tuple[IndexLayout, ...]
    select: str
    select_current: str  # also returns the generation of the tables' declarations
    delete: str
    stream: StreamLayout | None  # `change_log.py`
    ranges: dict[tuple[Any, ...], str] = field(default_factory=dict)

    def select_sizes(self, count: int) -> str:
        """Return the statement that reads the sizes of this many items."""
        statement = self.ranges.get(("sizes", count))
        if statement is None:
            marks = ", ".join(["(?, ?)"] * count)
            statement = f"SELECT pk, sk, size FROM {self.rows} WHERE (pk, sk) IN (VALUES {marks})"
            self.ranges["sizes", count] = statement
        return statement

    def select_rows(self, count: int) -> str:
        """Return the statement that reads this many items."""
        statement = self.ranges.get(("rows", count))
        if statement is None:
            marks = ",".join(["(?,?)"] * count)
            statement = self.ranges["rows", count] = (
                f"SELECT r.pk, r.sk, r.item, r.size FROM (VALUES {marks}) AS v"
                f" CROSS JOIN {self.rows} AS r ON r.pk = v.column1 AND r.sk = v.column2"
            )
        return statement

    def insert_new(self, count: int) -> str:
        """Return the statement that inserts this many rows.

        It fails at the first existing key and leaves the previous rows inserted: SQLite then needs
        no statement journal, which costs as much as the rows.
        """
        statement = self.ranges.get(("insert", count))
        if statement is None:
            marks = ",".join(["(?,?,?,?)"] * count)  # SQLite does not cache very long statements
            statement = self.ranges["insert", count] = (
                f"INSERT OR FAIL INTO {self.rows} VALUES {marks}"
            )
        return statement

    def upsert_rows(self, count: int, *, keeps_larger: bool = False) -> str:
        """Return the statement that inserts or replaces this many rows.

        `keeps_larger`: it skips existing items whose write would cost more than the new one's.
        """
        statement = self.ranges.get(("upsert", count, keeps_larger))
        if statement is None:
            step = WRITE_STEP_BYTES
            where = f" WHERE (size - 1) / {step} <= (excluded.size - 1) / {step}"
            statement = self.ranges["upsert", count, keeps_larger] = (
                f"{self.insert_new(count)} {_REPLACE}{where if keeps_larger else ''}"
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


def building_name(table: str, index: str) -> str:
    """Return the SQL name of an index's entries until they are complete."""
    return f'"building {table} {index}"'


def compile_layout(
    table: Table, shapes: Shapes, building: frozenset[str] = frozenset(), stream_id: int = 0
) -> Layout:
    """Compile the layout of a table in a database with these shapes.

    `building` names the indexes that are not complete yet.
    """
    rows, packer = rows_name(table.name), shapes.packer(table)
    encode_item = _item_encoder(table, packer)
    return Layout(
        table=table,
        declaration=declare(table, building, stream_id),
        building=building,
        rows=rows,
        read_key=row_key_reader(table),
        checked_key=checked_key_reader(table),
        packer=packer,
        expires=_expiry_reader(table),
        expiry_records=expiry_recorder(table),
        encode_item=encode_item,
        encode_rows=_row_encoder(table, packer, encode_item),
        indexes=tuple(
            _compile_index(table, index, entries_name(table.name, index.name, building))
            for index in table.by_name.values()
        ),
        select=f"SELECT item, size FROM {rows} WHERE pk = ? AND sk = ?",
        # A subquery takes no time, a join twice that of the row.
        select_current=f"SELECT item, (SELECT value FROM generation) FROM {rows}"
        " WHERE pk = ? AND sk = ?",
        delete=f"DELETE FROM {rows} WHERE pk = ? AND sk = ?",
        stream=_compile_stream(table, stream_id),
    )


def with_ended_stream(layout: Layout, stream_id: int, view: StreamView) -> Layout:
    """Return the layout for reading a stream that the table had."""
    table = dataclasses.replace(layout.table, stream=view)
    return dataclasses.replace(layout, table=table, stream=_compile_stream(table, stream_id))


def _compile_stream(table: Table, stream_id: int) -> StreamLayout | None:
    view = table.stream
    if view is None:
        return None
    needs_image = any(part.type != "S" for part in table.key)
    return StreamLayout(
        stream_id,
        view,
        keeps_old=view in ("OLD_IMAGE", "NEW_AND_OLD_IMAGES"),
        keeps_new=needs_image or view in ("NEW_IMAGE", "NEW_AND_OLD_IMAGES"),
        needs_image=needs_image,
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


def _item_encoder(table: Table, packer: ItemPacker) -> Callable[[Item], Row]:
    read_key, min_sort_bytes = row_key_reader(table), 1 if table.sort else 0
    has_simple_key = not table.by_name and all(part.type == "S" for part in table.key)

    def encode(item: Item) -> Row:
        values, size = packer.read(item)
        if values is None or not has_simple_key:
            check_item_keys(table, item, size)
        pk, sk = read_key(item)
        if not (0 < len(pk) <= MAX_PARTITION_BYTES and min_sort_bytes <= len(sk) <= MAX_SORT_BYTES):
            check_item_keys(table, item, size)
        return pk, sk, packer.pack(item, values), size

    return encode


def _row_encoder(
    table: Table, packer: ItemPacker, encode_item: Callable[[Item], Row]
) -> Callable[[Sequence[Item], Item], RowBatch]:
    expires = _expiry_reader(table)
    record = expiry_recorder(table)

    def encode_each(items: Sequence[Item], common: Item) -> RowBatch:
        rows: list[Row] = []
        times: list[float | None] = []
        for item in items:
            whole = {**common, **item}
            rows.append(encode_item(whole))
            packer.observe_packed(whole, rows[-1][2])
            times.append(expires(whole))
        keys = [row[:2] for row in rows]
        return RowBatch(keys, rows, record(keys, times) if table.ttl else [])

    def encode(items: Sequence[Item], common: Item) -> RowBatch:
        columns = to_columns(items, common)
        if columns is None:
            return encode_each(items, common)
        packed, sizes = pack_columns(columns, common, packer)  # validates values before keys
        key_parts = key_columns(table, columns, common)
        if key_parts is None:
            return encode_each(items, common)
        keys = [*zip(*key_parts, strict=True)]
        rows = [*zip(*key_parts, packed, sizes, strict=True)]
        if table.ttl is None:
            return RowBatch(keys, rows, [])
        times = (
            _to_times(columns[table.ttl]) if table.ttl in columns else [expires(common)] * len(keys)
        )
        return RowBatch(keys, rows, record(keys, times))

    return encode


def entries_name(table: str, index: str, building: Collection[str]) -> str:
    """Return the current SQL name of an index's entries."""
    return building_name(table, index) if index in building else index_name(table, index)


def _compile_index(table: Table, index: Index, name: str) -> IndexLayout:
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
    """Return the statement that creates a table's rows.

    `item` and `size` are never NULL, but declared so, a statement that replaces several rows would
    need a statement journal, which costs as much as the rows.
    """
    return (
        f"CREATE TABLE {rows_name(table)} (pk BLOB NOT NULL, sk BLOB NOT NULL, item BLOB,"
        " size INTEGER, PRIMARY KEY (pk, sk)) WITHOUT ROWID"
    )


def create_entries(name: str) -> str:
    """Return the statement that creates an index's entries with this SQL name."""
    return (
        f"CREATE TABLE {name} (ipk BLOB NOT NULL, isk BLOB NOT NULL, pk BLOB"
        " NOT NULL, sk BLOB NOT NULL,"
        " PRIMARY KEY (ipk, isk, pk, sk)) WITHOUT ROWID"
    )
