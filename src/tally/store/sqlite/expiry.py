"""Rows that expire and were written many at a time: one note says where they are, instead of an entry in an index for each.

To write the entries costs nearly as much as to write the rows. A note holds a stretch of keys and
the moment at which the last of its rows has expired, at most a day after the first. What comes into
the stretch or goes from it later does no harm: the sweeper looks at each item before it deletes it.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, groupby
from typing import Any, NamedTuple

import apsw

from tally.store.sqlite.keys import RowKey

CREATE_EXPIRY_RANGES = """
CREATE TABLE IF NOT EXISTS notes (name TEXT NOT NULL, due REAL NOT NULL, pk BLOB NOT NULL, sk BLOB NOT NULL,
    last_pk BLOB NOT NULL, last_sk BLOB NOT NULL, PRIMARY KEY (name, due, pk, sk, last_pk, last_sk)) WITHOUT ROWID;
"""
_DAY = 86_400
_WORTH = 4  # rows to a note: fewer are left to the index
_MOST = 128  # notes to a statement


class ExpiryRange(NamedTuple):
    """A stretch of a table's keys, both ends included."""

    name: str
    due: float
    pk: bytes
    sk: bytes
    last_pk: bytes
    last_sk: bytes


def expiry_ranges(
    table: str, keys: Sequence[RowKey], ends: Sequence[float | None]
) -> list[ExpiryRange]:
    """Notes for all of the rows, if they are few: none where rows may be far apart, or one does not expire."""
    known = [end for end in ends if end is not None]
    if not _WORTH <= len(keys) == len(known) or not (
        _are_in_order(keys) and _are_in_order(known) and _are_neighbours(keys)
    ):
        return []
    days = [[*day] for _, day in groupby(zip(keys, known, strict=True), key=_day)]
    if len(days) * _WORTH > len(keys):
        return []
    return [_note(table, day[0], day[-1]) for day in days]


def _day(row: tuple[RowKey, float]) -> float:
    return row[1] // _DAY


def _note(table: str, *ends: tuple[RowKey, float]) -> ExpiryRange:
    """Of rows in order, by the two at their ends."""
    (one, due), (other, last_due) = ends
    return ExpiryRange(table, max(due, last_due), *min(one, other), *max(one, other))


def _are_in_order(values: Sequence[Any]) -> bool:
    """Whether they rise or fall.

    What is counted or timed does; what is drawn by lot would make stretches of all there is.
    """
    ordered = sorted(values)
    return values == ordered or values == ordered[::-1]


def _are_neighbours(keys: Sequence[RowKey]) -> bool:
    """Of keys in order, whether little else can stand between: they are of one partition, or begin alike for more than half."""
    first, last = keys[0][0], keys[-1][0]
    half = len(first) // 2 + 1
    return first == last or first[:half] == last[:half]


def write_expiry_ranges(connection: apsw.Connection, notes: Sequence[ExpiryRange]) -> None:
    for start in range(0, len(notes), _MOST):
        some = notes[start : start + _MOST]
        connection.execute(_insert(len(some)), [*chain.from_iterable(some)])


@lru_cache(maxsize=_MOST)
def _insert(count: int) -> str:
    return f"INSERT OR IGNORE INTO notes VALUES {', '.join(['(?, ?, ?, ?, ?, ?)'] * count)}"


def delete_expiry_ranges(connection: apsw.Connection, table: str) -> None:
    connection.execute("DELETE FROM notes WHERE name = ?", (table,))


def pop_due_rows(
    connection: apsw.Connection, table: tuple[str, str], now: float, limit: int
) -> list[Any] | None:
    """The rows of a stretch whose time has come, up to `limit`: their keys and items.

    The note of them is done with.

    `table` is the table's name and the SQL name of its rows. None if no time has come.
    """
    name, rows = table
    found: Any = connection.execute(
        "SELECT * FROM notes WHERE name = ? AND due <= ? LIMIT 1", (name, now)
    ).fetchone()
    if found is None:
        return None
    note = ExpiryRange(*found)
    taken: list[Any] = connection.execute(
        f"SELECT pk, sk, item FROM {rows} WHERE (pk, sk) BETWEEN (?, ?) AND (?, ?) ORDER BY pk, sk LIMIT ?",
        (*note[2:], limit),
    ).fetchall()
    connection.execute(
        "DELETE FROM notes WHERE (name, due, pk, sk, last_pk, last_sk) = (?, ?, ?, ?, ?, ?)", note
    )
    if len(taken) == limit:
        pk, sk, _ = taken[-1]
        write_expiry_ranges(
            connection, [note._replace(pk=pk, sk=sk + b"\0")]
        )  # what is behind it waits for the next time
    return taken
