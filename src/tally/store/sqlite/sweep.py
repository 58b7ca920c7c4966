"""Deletes what has expired, as DynamoDB's own sweeper would: late, in small bites, and never what is older than five years."""

from typing import Any

import apsw

from tally.store.sqlite.codec import unpack
from tally.store.sqlite.layout import EXPIRY_SECONDS, Change, Layout
from tally.store.sqlite.writes import carry_out

_FIVE_YEARS = 5 * 365 * 86_400.0  # an older expiry is taken for a mistake (milliseconds divided twice), and left alone


def sweep(connection: apsw.Connection, layout: Layout, now: float, limit: int) -> int:
    """Delete up to `limit` expired items, and say how many."""
    since = now - _FIVE_YEARS
    span = int(since / EXPIRY_SECONDS), int(now / EXPIRY_SECONDS)
    rows: list[Any] = connection.execute(layout.expired, (*span, since, now, limit)).fetchall()
    for pk, sk, packed in rows:
        carry_out(connection, Change(layout, (pk, sk), unpack(packed), 0, None, 0))
    return len(rows)
