"""Deletes what has expired, as DynamoDB's own sweeper would: late, in small bites, and never what is older than five years."""

from typing import Any

import apsw

from tally.store.sqlite.codec import unpack
from tally.store.sqlite.expiry import pop_due_rows
from tally.store.sqlite.layout import EXPIRY_BUCKET_SECONDS, ItemChange, Layout
from tally.store.sqlite.writes import apply_change

_FIVE_YEARS = (
    5 * 365 * 86_400.0
)  # an older expiry is taken for a mistake (milliseconds divided twice), and left alone
_LOOKS = 10  # at rows under a note for each that may be deleted: most of them are to be


def sweep(connection: apsw.Connection, layout: Layout, now: float, limit: int) -> int:
    """Delete up to `limit` expired items, and say how many."""
    swept = _sweep_indexed(connection, layout, now, limit)
    return swept + _sweep_noted(connection, layout, now, limit - swept)


def _sweep_indexed(connection: apsw.Connection, layout: Layout, now: float, limit: int) -> int:
    since = now - _FIVE_YEARS
    span = int(since / EXPIRY_BUCKET_SECONDS), int(now / EXPIRY_BUCKET_SECONDS)
    rows: list[Any] = connection.execute(layout.expired, (*span, since, now, limit)).fetchall()
    for pk, sk, packed in rows:
        apply_change(connection, ItemChange(layout, (pk, sk), unpack(packed), 0, None, 0))
    return len(rows)


def _sweep_noted(connection: apsw.Connection, layout: Layout, now: float, limit: int) -> int:
    swept = looks = 0
    while swept < limit and looks < limit * _LOOKS:
        rows = pop_due_rows(connection, (layout.table.name, layout.rows), now, limit - swept)
        if rows is None:
            break
        looks += 1 + len(rows)
        for pk, sk, packed in rows:
            item = unpack(packed)
            expires = layout.expires(item)
            if expires is not None and now - _FIVE_YEARS < expires <= now:
                apply_change(connection, ItemChange(layout, (pk, sk), item, 0, None, 0))
                swept += 1
    return swept
