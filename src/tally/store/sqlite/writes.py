"""Applies single writes to rows and indexes inside the writer's transaction.

First decide, then write.
"""

from collections.abc import Sequence

import apsw
from msgspec import Struct

from tally.store.api import Capacity, Check, Delete, Put, Returns, Update, Write, WriteResult
from tally.store.errors import ConditionFailed
from tally.store.evaluate import apply, matches, project
from tally.store.expressions import Discard, Exists, Remove
from tally.store.sqlite import capacity
from tally.store.sqlite.change_log import record_change
from tally.store.sqlite.expiry import write_expiry
from tally.store.sqlite.keys import RowKey
from tally.store.sqlite.layout import IndexLayout, ItemChange, Layout
from tally.store.sqlite.rows import put_rows, upsert_rows
from tally.store.validate import check_expressions
from tally.store.values import Item


class PreparedWrite(Struct, frozen=True, gc=False):
    """A validated write with its encoded key and, for a put, the encoded item and its size."""

    layout: Layout
    write: Write
    key: RowKey
    size: int = 0
    packed: bytes = b""


def prepare(layout: Layout, write: Write) -> PreparedWrite:
    """Validate a write against the stored table and encode it.

    The stored table may be newer than the caller's.
    """
    if isinstance(write, Put):
        pk, sk, packed, size = layout.encode_item(write.item)
        prepared = PreparedWrite(layout, write, (pk, sk), size, packed)
    else:
        prepared = PreparedWrite(layout, write, layout.checked_key(write.key))
    check_expressions(layout.table, write)
    return prepared


def observe_put(prepared: PreparedWrite) -> None:
    """Learn the shape of an item, once its whole request is valid."""
    if isinstance(prepared.write, Put):
        prepared.layout.packer.observe_packed(prepared.write.item, prepared.packed)


def read_row(connection: apsw.Connection, layout: Layout, key: RowKey) -> tuple[Item | None, int]:
    """Return the item at a key and its size."""
    row = connection.execute(layout.select, key).fetchone()
    return (None, 0) if row is None else (layout.packer.unpack(row[0], key), row[1])


def plan_change(prepared: PreparedWrite, row: tuple[bytes, int] | None) -> ItemChange | None:
    """Return what a write changes, or None for a check; `row` is the stored item.

    Raise ConditionFailed with the existing item.
    """
    layout, write, key = prepared.layout, prepared.write, prepared.key
    if row is not None and type(write) is Put and _requires_only_existence(layout, write):
        return ItemChange(layout, key, None, row[1], write.item, prepared.size, prepared.packed)
    before, before_size = (None, 0) if row is None else (layout.packer.unpack(row[0], key), row[1])
    if write.condition is not None and not matches(write.condition, before or {}):
        raise ConditionFailed(f"table {layout.table.name}: the condition is false", before)
    if isinstance(write, Check):
        return None
    if isinstance(write, Delete):
        return ItemChange(layout, key, before, before_size, None, 0)
    if isinstance(write, Put):
        return ItemChange(
            layout, key, before, before_size, write.item, prepared.size, prepared.packed
        )
    if (
        before is None
        and write.actions
        and all(isinstance(action, (Remove, Discard)) for action in write.actions)
    ):
        return ItemChange(layout, key, None, 0, None, 0)  # removing from nothing creates nothing
    after = apply(write.actions, dict(write.key) if before is None else before)
    _, _, packed, size = layout.encode_item(after)
    layout.packer.observe_packed(after, packed)
    return ItemChange(layout, key, before, before_size, after, size, packed)


def _requires_only_existence(layout: Layout, put: Put) -> bool:
    """Whether a put requires that an item exists and nothing else of it."""
    return (
        type(put.condition) is Exists
        and put.condition.path.parts == (layout.table.partition.name,)
        and put.returns == "NONE"
        and not layout.indexes
        and layout.stream is None
    )


def apply_changes(
    connection: apsw.Connection,
    changes: Sequence[ItemChange],
    now: float,
    *,
    is_expiry: bool = False,
) -> None:
    """Write changes of distinct items of one table to the rows, index entries and change log."""
    layout = changes[0].layout
    written = [change for change in changes if change.after is not None]
    upsert_rows(
        connection,
        layout,
        [(*change.key, change.packed, change.after_size) for change in written],
    )
    if layout.table.ttl is not None:
        times = [layout.expires(change.after) for change in written if change.after is not None]
        keys = [change.key for change in written]
        write_expiry(connection, layout.expiry_records(keys, times))
    if len(written) < len(changes):
        deleted = [
            change.key for change in changes if change.after is None and change.before is not None
        ]
        connection.executemany(layout.delete, deleted)
    for index in layout.indexes:
        _apply_to_index(connection, index, changes)
    if layout.stream is not None:
        for change in changes:
            record_change(connection, change, now, is_expiry=is_expiry)


def _apply_to_index(
    connection: apsw.Connection, index: IndexLayout, changes: Sequence[ItemChange]
) -> None:
    removed, added = [], []
    for change in changes:
        old = index.read_key(change.before) if change.before is not None else None
        new = index.read_key(change.after) if change.after is not None else None
        if old == new:
            continue
        if old is not None:
            removed.append((*old, *change.key))
        if new is not None:
            added.append((*new, *change.key))
    connection.executemany(index.delete, removed)
    connection.executemany(index.insert, added)


def to_result(
    connection: apsw.Connection, prepared: PreparedWrite, change: ItemChange | None
) -> WriteResult:
    """Return the result of a single write after its change was applied."""
    if change is None:
        return WriteResult(None, Capacity())
    units, indexes = capacity.table_units(change), capacity.index_units(change)
    item = _returned_item(connection, prepared, change)
    if item is None:
        return capacity.write_result(units, indexes)
    return WriteResult(item, Capacity(write=units + sum(cost for _, cost in indexes)), indexes)


def is_unconditional_put(prepared: PreparedWrite) -> bool:
    """Whether a write is a put that needs only the size of the item that it replaces."""
    write = prepared.write
    return (
        type(write) is Put
        and write.condition is None
        and write.returns == "NONE"
        and not prepared.layout.indexes
    )


def put_many(
    connection: apsw.Connection, layout: Layout, puts: Sequence[PreparedWrite], now: float
) -> list[WriteResult]:
    """Apply unconditional puts into one table, with distinct keys, in few statements."""
    rows = [(*put.key, put.packed, put.size) for put in puts]
    sizes = put_rows(connection, layout, rows, now)
    if layout.table.ttl is not None:
        times = [layout.expires(put.write.item) for put in puts]  # type: ignore[union-attr]
        write_expiry(connection, layout.expiry_records([put.key for put in puts], times))
    return [
        capacity.write_result(capacity.write_units(max(put.size, sizes.get(put.key, 0))))
        for put in puts
    ]


def _returned_item(
    connection: apsw.Connection, prepared: PreparedWrite, change: ItemChange
) -> Item | None:
    write = prepared.write
    returns: Returns = "NONE" if isinstance(write, Check) else write.returns
    if returns == "NONE":
        return None
    if returns.endswith("OLD"):
        item = change.before
    else:  # the new item as a reader gets it, without the caller's own objects
        item, _ = read_row(connection, change.layout, prepared.key)
    if item is None or returns.startswith("ALL") or not isinstance(write, Update):
        return item
    return project(item, [action.path for action in write.actions]) or None
