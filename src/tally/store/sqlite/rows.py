"""Many rows in one step of SQLite: as many as possible to a statement, and so with one turn of Python's lock.

A step lets go of the lock, so that the event loop works while SQLite does. With a row to a step the
two would hand the lock to and fro for every row, which costs more than the row; and whoever asks a
busy loop for it waits up to a millisecond.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, TypeVar

import apsw

from tally.store.sqlite.keys import RowKey
from tally.store.sqlite.layout import Layout, Row

# Rows to a statement: any number up to the first, or a multiple of the second up to the third. Each
# number is a statement of its own, which SQLite keeps prepared.
_ANY, _STEP, _MOST = 512, 256, 1024

T = TypeVar("T")


def _portions(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    start, left = 0, len(rows)
    while left:
        size = left if left <= _ANY else min(left // _STEP * _STEP, _MOST)
        yield rows[start : start + size]
        start, left = start + size, left - size


def sizes_at(
    connection: apsw.Connection, layout: Layout, keys: Sequence[RowKey]
) -> dict[RowKey, int]:
    """How large the items at these keys are, of those that there are."""
    found: dict[RowKey, int] = {}
    for some in _portions(keys):
        rows: list[Any] = connection.execute(
            layout.select_sizes(len(some)), [*chain.from_iterable(some)]
        ).fetchall()
        found.update(((pk, sk), size) for pk, sk, size in rows)
    return found


def put_new(connection: apsw.Connection, layout: Layout, rows: Sequence[Row]) -> dict[RowKey, int]:
    """Write rows of different keys, but not where there is one: the sizes of those that are there.

    To look for them beforehand would cost a third of the writing, and there are none as a rule.
    """
    there: dict[RowKey, int] = {}
    for some in _portions(rows):
        try:
            connection.execute(layout.insert_new(len(some)), [*chain.from_iterable(some)])
        except apsw.ConstraintError:
            left = some[connection.changes() :]  # those before it are written
            found = sizes_at(connection, layout, [row[:2] for row in left])
            there |= found
            put_new(connection, layout, [row for row in left if row[:2] not in found])
    return there


def put_rows(connection: apsw.Connection, layout: Layout, rows: Sequence[Row]) -> dict[RowKey, int]:
    """Write rows of different keys: the sizes of those that were there before."""
    there = put_new(connection, layout, rows)
    if there:
        connection.executemany(layout.upsert, [row for row in rows if row[:2] in there])
    return there
