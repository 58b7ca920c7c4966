"""What a write does to the rows and their indexes, inside the writer's transaction.

It decides first and writes last.
"""

from collections.abc import Callable, Sequence
from typing import Any

import apsw
from msgspec import Struct
from msgspec.structs import replace

from tally.store.api import Capacity, Check, Delete, Put, Returns, Update, Write, WriteResult
from tally.store.errors import ConditionFailed
from tally.store.evaluate import apply, matches, project
from tally.store.expressions import Discard, Remove
from tally.store.sqlite import capacity
from tally.store.sqlite.codec import pack, unpack
from tally.store.sqlite.keys import RowKey
from tally.store.sqlite.layout import ItemChange, Layout
from tally.store.sqlite.rows import put_rows
from tally.store.validate import check_check, check_delete, check_put, check_update, check_updated
from tally.store.values import Item, measure_item


class PreparedWrite(Struct, frozen=True):
    """A write with all that could be worked out before its turn came: its key's bytes and, for a put, the item's."""

    write: Write
    key: RowKey
    size: int = 0
    packed: bytes = b""


def prepare(layout: Layout, write: Write) -> PreparedWrite:
    """Check a write by the table as it is stored, which may be newer than the caller's, and encode what can be encoded."""
    write = replace(write, table=layout.table)
    if isinstance(write, Put):
        return encode_write(layout, write, check_put(write))
    _CHECKS[type(write)](write)
    return encode_write(layout, write)


def encode_write(layout: Layout, write: Write, size: int = 0) -> PreparedWrite:
    """A write that was found good, with what can be encoded of it; `size` is that of a put's item."""
    if isinstance(write, Put):
        return PreparedWrite(write, layout.read_key(write.item), size, pack(write.item))
    return PreparedWrite(write, layout.read_key(write.key))


_CHECKS: dict[type, Callable[[Any], None]] = {
    Update: check_update,
    Delete: check_delete,
    Check: check_check,
}


def refresh(layout: Layout, prepared: PreparedWrite) -> PreparedWrite:
    """The same write; checked and encoded again where the table was changed after it had been prepared."""
    return prepared if prepared.write.table is layout.table else prepare(layout, prepared.write)


def read_row(connection: apsw.Connection, layout: Layout, key: RowKey) -> tuple[Item | None, int]:
    """The item at a key and its size."""
    row = connection.execute(layout.select, key).fetchone()
    return (None, 0) if row is None else (unpack(row[0]), row[1])


def plan_change(
    connection: apsw.Connection, layout: Layout, prepared: PreparedWrite
) -> ItemChange | None:
    """What a write would change; None for a mere check.

    Raises ConditionFailed with the item that stands in the way.
    """
    write, key = prepared.write, prepared.key
    before, before_size = read_row(connection, layout, key)
    if write.condition is not None and not matches(write.condition, before or {}):
        raise ConditionFailed(f"table {layout.table.name}: the condition does not hold", before)
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
        and all(isinstance(action, Remove | Discard) for action in write.actions)
    ):
        return ItemChange(
            layout, key, None, 0, None, 0
        )  # there is nothing to take away from, and so nothing to make
    start, start_size = (
        (before, before_size) if before is not None else (dict(write.key), measure_item(write.key))
    )
    after = apply(write.actions, start)
    after_size = check_updated(layout.table, start, start_size, after, write.actions)
    return ItemChange(layout, key, before, before_size, after, after_size, pack(after))


def apply_change(connection: apsw.Connection, change: ItemChange) -> None:
    """Write a change, and whatever it moves in the indexes."""
    layout, key = change.layout, change.key
    if change.after is not None:
        values = (*key, change.packed, change.after_size, layout.expires(change.after))
        connection.execute(layout.upsert, values)
    elif change.before is not None:
        connection.execute(layout.delete, key)
    for index in layout.indexes:
        old = index.read_key(change.before) if change.before is not None else None
        new = index.read_key(change.after) if change.after is not None else None
        if old == new:
            continue
        if old is not None:
            connection.execute(index.delete, (*old, *key))
        if new is not None:
            connection.execute(index.insert, (*new, *key))


def write_one(connection: apsw.Connection, layout: Layout, prepared: PreparedWrite) -> WriteResult:
    """Do a single write."""
    write = prepared.write
    change = plan_change(connection, layout, prepared)
    if change is None:
        return WriteResult(None, Capacity())
    apply_change(connection, change)
    return WriteResult(_returned(write, change), capacity.change_capacity(change))


def is_unconditional_put(layout: Layout, prepared: PreparedWrite) -> bool:
    """Whether a write is a put that asks nothing of what it replaces but the size, for the cost."""
    write = prepared.write
    return (
        type(write) is Put
        and write.condition is None
        and write.returns == "NONE"
        and not layout.indexes
    )


def put_many(
    connection: apsw.Connection, layout: Layout, puts: Sequence[PreparedWrite]
) -> list[WriteResult]:
    """Plain puts of one table, with different keys, at the speed of SQLite rather than of Python."""
    expires = layout.expires
    rows = [(*put.key, put.packed, put.size, expires(put.write.item)) for put in puts]  # type: ignore[union-attr]
    sizes = put_rows(connection, layout, rows)
    return [_PLAIN[capacity.write_units(max(put.size, sizes.get(put.key, 0)))] for put in puts]


class _Plain(dict[float, WriteResult]):
    """One answer for each cost: plain puts are many, and their answers alike."""

    def __missing__(self, units: float) -> WriteResult:
        self[units] = answer = WriteResult(None, Capacity(write=units))
        return answer


_PLAIN = _Plain()


def _returned(write: Write, change: ItemChange) -> Item | None:
    returns: Returns = "NONE" if isinstance(write, Check) else write.returns
    if returns == "NONE":
        return None
    item = change.before if returns.endswith("OLD") else change.after
    if item is None or returns.startswith("ALL") or not isinstance(write, Update):
        return item
    return project(item, [action.path for action in write.actions]) or None
