"""Writes many rows per SQL statement, to reduce contention for the GIL.

Each statement releases the GIL, so the event loop runs while SQLite works. With one row per
statement, both threads would hand over the GIL for every row, which costs more than the row; a busy
event loop keeps it for up to a millisecond.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, TypeVar

import apsw

from tally.store.sqlite.change_log import record_inserts, record_replaced
from tally.store.sqlite.keys import RowKey
from tally.store.sqlite.layout import Layout, Row

# Rows per statement: any number up to the first, or a multiple of the second up to the third.
# SQLite caches one prepared statement per number.
_MAX_ANY_ROWS, _ROW_STEP, _MAX_ROWS = 512, 256, 1024
_KEY_STEP = 8

T = TypeVar("T")


def _chunks(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    start, remaining = 0, len(rows)
    while remaining:
        size = (
            remaining
            if remaining <= _MAX_ANY_ROWS
            else min(remaining // _ROW_STEP * _ROW_STEP, _MAX_ROWS)
        )
        yield rows[start : start + size]
        start, remaining = start + size, remaining - size


def read_sizes(
    connection: apsw.Connection, layout: Layout, keys: Sequence[RowKey]
) -> dict[RowKey, int]:
    """Return the sizes of the existing items at these keys."""
    found: dict[RowKey, int] = {}
    for chunk in _chunks(keys):
        rows: list[Any] = connection.execute(
            layout.select_sizes(len(chunk)), [*chain.from_iterable(chunk)]
        ).fetchall()
        found.update(((pk, sk), size) for pk, sk, size in rows)
    return found


def read_rows(
    connection: apsw.Connection, layout: Layout, keys: Sequence[RowKey]
) -> dict[RowKey, tuple[bytes, int]]:
    """Return the packed items at these keys and their sizes."""
    found: dict[RowKey, tuple[bytes, int]] = {}
    for start in range(0, len(keys), _MAX_ANY_ROWS):
        chunk = [*keys[start : start + _MAX_ANY_ROWS]]
        # Repeated keys limit the number of statements, and do no harm.
        chunk += chunk[:1] * (-len(chunk) % _KEY_STEP if len(chunk) > _KEY_STEP else 0)
        rows: list[Any] = connection.execute(
            layout.select_rows(len(chunk)), [*chain.from_iterable(chunk)]
        ).fetchall()
        found.update(((pk, sk), (item, size)) for pk, sk, item, size in rows)
    return found


def put_new(connection: apsw.Connection, layout: Layout, rows: Sequence[Row]) -> dict[RowKey, int]:
    """Insert rows with distinct keys unless they exist; return the sizes of the existing items.

    Checking beforehand would cost a third of the insert, and usually none exists.
    """
    existing_sizes: dict[RowKey, int] = {}
    for chunk in _chunks(rows):
        try:
            connection.execute(layout.insert_new(len(chunk)), [*chain.from_iterable(chunk)])
        except apsw.ConstraintError:
            remaining = chunk[connection.changes() :]  # the rows before it were inserted
            found = read_sizes(connection, layout, [row[:2] for row in remaining])
            existing_sizes |= found
            put_new(connection, layout, [row for row in remaining if row[:2] not in found])
    return existing_sizes


def put_rows(
    connection: apsw.Connection, layout: Layout, rows: Sequence[Row], now: float
) -> dict[RowKey, int]:
    """Insert or replace rows with distinct keys.

    Return the sizes of the replaced items that determine the cost, because they were larger.
    """
    if layout.stream is not None:
        return _put_recorded(connection, layout, rows, now)
    unchanged = connection.total_changes() + len(rows)
    upsert_rows(connection, layout, rows, keeps_larger=True)
    if connection.total_changes() == unchanged:
        return {}
    sizes = read_sizes(connection, layout, [row[:2] for row in rows])
    larger = [row for row in rows if sizes[row[:2]] > row[3]]
    upsert_rows(connection, layout, larger)
    return sizes


def upsert_rows(
    connection: apsw.Connection,
    layout: Layout,
    rows: Sequence[Row],
    *,
    keeps_larger: bool = False,
) -> None:
    """Insert or replace rows with distinct keys, without change records."""
    for chunk in _chunks(rows):
        statement = layout.upsert_rows(len(chunk), keeps_larger=keeps_larger)
        connection.execute(statement, [*chain.from_iterable(chunk)])


def _put_recorded(
    connection: apsw.Connection, layout: Layout, rows: Sequence[Row], now: float
) -> dict[RowKey, int]:
    """Insert or replace rows of a table with a stream; return the sizes of the replaced items."""
    existing_sizes = put_new(connection, layout, rows)
    replacing = [row for row in rows if row[:2] in existing_sizes]
    if replacing:
        record_replaced(connection, layout, replacing, now)
        upsert_rows(connection, layout, replacing)
        rows = [row for row in rows if row[:2] not in existing_sizes]
    record_inserts(connection, layout, rows, now)
    return existing_sizes
