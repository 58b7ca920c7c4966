"""Deletes expired items like DynamoDB's TTL process.

Late, in small batches, within five years of expiry.
"""

from typing import Any

import apsw

from tally.store.sqlite.expiry import pop_due_rows, read_current_rows
from tally.store.sqlite.layout import ItemChange, Layout
from tally.store.sqlite.writes import apply_changes
from tally.store.values import Item

# DynamoDB ignores older timestamps: they are probably mistakes, such as milliseconds divided twice.
_MAX_AGE_SECONDS = 5 * 365 * 86_400.0
_MAX_ROWS_READ = 10_000  # items whose expiry was extended are read in vain; the next sweep goes on


def sweep(connection: apsw.Connection, layout: Layout, now: float, limit: int) -> int:
    """Delete up to `limit` expired items and return their number."""
    deleted = reads = 0
    while deleted < limit and reads < _MAX_ROWS_READ:
        rows = pop_due_rows(connection, layout.table, layout.rows, now, limit - deleted)
        if rows is None:
            break
        reads += 1 + len(rows)
        expired = [
            ItemChange(layout, (pk, sk), item, 0, None, 0)
            for pk, sk, packed in rows
            if _is_due(layout, item := layout.packer.unpack(packed, (pk, sk)), now)
        ]
        if expired:
            apply_changes(connection, expired, now, is_expiry=True)
        deleted += len(expired)
    return deleted


def sweep_current_hour(connection: apsw.Connection, layout: Layout, now: float, limit: int) -> int:
    """Delete expired items of the hour that has not ended; return their number.

    It reads `limit` items at most, due or not. `sweep` deletes the others when the hour is over.
    """
    rows = read_current_rows(connection, layout.table, layout.rows, now, limit)
    expired = [
        ItemChange(layout, key, item, 0, None, 0)
        for key, packed in rows.items()
        if _is_due(layout, item := layout.packer.unpack(packed, key), now)
    ]
    if expired:
        apply_changes(connection, expired, now, is_expiry=True)
    return len(expired)


def sweep_all(connection: apsw.Connection, layout: Layout, now: float) -> int:
    """Delete every expired item, also of the current hour, and return their number.

    It reads the whole table, so it is for the small tables of tests.
    """
    rows: list[Any] = connection.execute(f"SELECT pk, sk, item FROM {layout.rows}").fetchall()
    expired = [
        ItemChange(layout, (pk, sk), item, 0, None, 0)
        for pk, sk, packed in rows
        if _is_due(layout, item := layout.packer.unpack(packed, (pk, sk)), now)
    ]
    if expired:
        apply_changes(connection, expired, now, is_expiry=True)
    return len(expired)


def _is_due(layout: Layout, item: Item, now: float) -> bool:
    expires = layout.expires(item)
    return expires is not None and now - _MAX_AGE_SECONDS < expires <= now
