"""Many rows in one step of SQLite: as many as possible to a statement, and so with one turn of Python's lock.

A step lets go of the lock, so that the event loop works while SQLite does. With a row to a step the two would hand the lock to
and fro for every row, which costs more than the row.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import apsw

from tally.store.sqlite.keys import RowKey
from tally.store.sqlite.layout import Layout, Row

_MOST = 128  # rows to a statement; their numbers are powers of two, so that there are few different statements


def sizes_at(connection: apsw.Connection, layout: Layout, keys: Sequence[RowKey]) -> dict[RowKey, int]:
    """How large the items at these keys are, of those that there are."""
    found: dict[RowKey, int] = {}
    for start in range(0, len(keys), _MOST):
        some = keys[start : start + _MOST]
        padding = (1 << (len(some) - 1).bit_length()) - len(some)
        asked = [*chain.from_iterable(some), *(some[-1] * padding)]
        rows: list[Any] = connection.execute(layout.select_sizes(len(asked) // 2), asked).fetchall()
        found.update(((pk, sk), size) for pk, sk, size in rows)
    return found


def put_new(connection: apsw.Connection, layout: Layout, rows: Sequence[Row]) -> dict[RowKey, int]:
    """Write rows of different keys, but not where there is one: the sizes of those that are there.

    To look for them beforehand would cost a third of the writing, and there are none as a rule.
    """
    there: dict[RowKey, int] = {}
    start = 0
    while start < len(rows):
        count = min(_MOST, 1 << (len(rows) - start).bit_length() - 1)
        some = rows[start : start + count]
        try:
            connection.execute(layout.insert_new(count), [*chain.from_iterable(some)])
        except apsw.ConstraintError:
            left = some[connection.changes() :]  # those before it are written
            found = sizes_at(connection, layout, [row[:2] for row in left])
            there |= found
            put_new(connection, layout, [row for row in left if row[:2] not in found])
        start += count
    return there


def put_rows(connection: apsw.Connection, layout: Layout, rows: Sequence[Row]) -> dict[RowKey, int]:
    """Write rows of different keys: the sizes of those that were there before."""
    there = put_new(connection, layout, rows)
    if there:
        connection.executemany(layout.upsert, [row for row in rows if row[:2] in there])
    return there
