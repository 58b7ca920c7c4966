"""Deletes expired items like DynamoDB's TTL process.

Late, in small batches, within five years of expiry.
"""

from typing import Any

import apsw

from tally.store.sqlite.codec import unpack
from tally.store.sqlite.expiry import pop_due_rows
from tally.store.sqlite.layout import EXPIRY_BUCKET_SECONDS, ItemChange, Layout
from tally.store.sqlite.writes import apply_change

# DynamoDB ignores older timestamps: they are probably mistakes, such as milliseconds divided twice.
_MAX_AGE_SECONDS = 5 * 365 * 86_400.0
_MAX_ROWS_PER_DELETE = 10  # rows to read in expiry ranges per item that may be deleted


def sweep(connection: apsw.Connection, layout: Layout, now: float, limit: int) -> int:
    """Delete up to `limit` expired items and return their number."""
    deleted = _sweep_indexed(connection, layout, now, limit)
    return deleted + _sweep_ranges(connection, layout, now, limit - deleted)


def _sweep_indexed(connection: apsw.Connection, layout: Layout, now: float, limit: int) -> int:
    oldest = now - _MAX_AGE_SECONDS
    hours = int(oldest / EXPIRY_BUCKET_SECONDS), int(now / EXPIRY_BUCKET_SECONDS)
    rows: list[Any] = connection.execute(layout.expired, (*hours, oldest, now, limit)).fetchall()
    for pk, sk, packed in rows:
        apply_change(connection, ItemChange(layout, (pk, sk), unpack(packed), 0, None, 0))
    return len(rows)


def _sweep_ranges(connection: apsw.Connection, layout: Layout, now: float, limit: int) -> int:
    deleted = reads = 0
    while deleted < limit and reads < limit * _MAX_ROWS_PER_DELETE:
        rows = pop_due_rows(connection, (layout.table.name, layout.rows), now, limit - deleted)
        if rows is None:
            break
        reads += 1 + len(rows)
        for pk, sk, packed in rows:
            item = unpack(packed)
            expires = layout.expires(item)
            if expires is not None and now - _MAX_AGE_SECONDS < expires <= now:
                apply_change(connection, ItemChange(layout, (pk, sk), item, 0, None, 0))
                deleted += 1
    return deleted
