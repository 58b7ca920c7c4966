"""Expiry ranges: one record for many adjacent rows that expire on the same day.

Writing an index entry per row costs nearly as much as the row itself. A range holds the first and
last key and the time by which all of its rows have expired, at most a day after the first. Later
inserts and deletes within the range are harmless: the sweeper checks each item before it deletes
it.

The SQL table is called `notes`; the name is part of the file format.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, groupby
from typing import Any, NamedTuple

import apsw

from tally.store.sqlite.keys import RowKey

CREATE_EXPIRY_RANGES = """
CREATE TABLE IF NOT EXISTS notes (
    name TEXT NOT NULL, due REAL NOT NULL,
    pk BLOB NOT NULL, sk BLOB NOT NULL, last_pk BLOB NOT NULL, last_sk BLOB NOT NULL,
    PRIMARY KEY (name, due, pk, sk, last_pk, last_sk)
) WITHOUT ROWID;
"""
_DAY_SECONDS = 86_400
_MIN_ROWS_PER_RANGE = 4  # fewer rows use the expiry index
_MAX_RANGES_PER_STATEMENT = 128


class ExpiryRange(NamedTuple):
    """A range of a table's keys, inclusive, and the time when all of its rows have expired."""

    name: str
    due: float
    pk: bytes
    sk: bytes
    last_pk: bytes
    last_sk: bytes


def expiry_ranges(
    table: str, keys: Sequence[RowKey], expiry_times: Sequence[float | None]
) -> list[ExpiryRange]:
    """Return ranges that cover all rows.

    Return none if the rows are not adjacent or one does not expire.
    """
    times = [time for time in expiry_times if time is not None]
    if not _MIN_ROWS_PER_RANGE <= len(keys) == len(times) or not (
        _are_in_order(keys) and _are_in_order(times) and _are_neighbours(keys)
    ):
        return []
    days = [[*day] for _, day in groupby(zip(keys, times, strict=True), key=_day)]
    if len(days) * _MIN_ROWS_PER_RANGE > len(keys):
        return []
    return [_make_range(table, day[0], day[-1]) for day in days]


def _day(row: tuple[RowKey, float]) -> float:
    return row[1] // _DAY_SECONDS


def _make_range(table: str, *ends: tuple[RowKey, float]) -> ExpiryRange:
    """Create a range from the first and the last row."""
    (one, due), (other, last_due) = ends
    return ExpiryRange(table, max(due, last_due), *min(one, other), *max(one, other))


def _are_in_order(values: Sequence[Any]) -> bool:
    """Whether the values ascend or descend, as counters and timestamps do.

    Random keys would produce ranges that cover most of the table.
    """
    ordered = sorted(values)
    return values == ordered or values == ordered[::-1]


def _are_neighbours(keys: Sequence[RowKey]) -> bool:
    """Whether few other keys can lie between these.

    They are in one partition, or the partitions have more than half of their prefix in common.
    """
    first, last = keys[0][0], keys[-1][0]
    half = len(first) // 2 + 1
    return first == last or first[:half] == last[:half]


def write_expiry_ranges(connection: apsw.Connection, ranges: Sequence[ExpiryRange]) -> None:
    """Insert ranges."""
    for start in range(0, len(ranges), _MAX_RANGES_PER_STATEMENT):
        chunk = ranges[start : start + _MAX_RANGES_PER_STATEMENT]
        connection.execute(_insert(len(chunk)), [*chain.from_iterable(chunk)])


@lru_cache(maxsize=_MAX_RANGES_PER_STATEMENT)
def _insert(count: int) -> str:
    return f"INSERT OR IGNORE INTO notes VALUES {', '.join(['(?, ?, ?, ?, ?, ?)'] * count)}"


def delete_expiry_ranges(connection: apsw.Connection, table: str) -> None:
    """Delete all ranges of a table."""
    connection.execute("DELETE FROM notes WHERE name = ?", (table,))


def pop_due_rows(
    connection: apsw.Connection, table: tuple[str, str], now: float, limit: int
) -> list[Any] | None:
    """Remove a due range and return up to `limit` of its rows, or None if no range is due.

    `table` is the table's name and the SQL name of its rows.
    """
    name, sql_rows = table
    found: Any = connection.execute(
        "SELECT * FROM notes WHERE name = ? AND due <= ? LIMIT 1", (name, now)
    ).fetchone()
    if found is None:
        return None
    due_range = ExpiryRange(*found)
    rows: list[Any] = connection.execute(
        f"SELECT pk, sk, item FROM {sql_rows} WHERE (pk, sk) BETWEEN (?, ?) AND (?, ?)"
        " ORDER BY pk, sk LIMIT ?",
        (*due_range[2:], limit),
    ).fetchall()
    connection.execute(
        "DELETE FROM notes WHERE (name, due, pk, sk, last_pk, last_sk) = (?, ?, ?, ?, ?, ?)",
        due_range,
    )
    if len(rows) == limit:
        pk, sk, _ = rows[-1]
        # The rest of the range is due next time.
        write_expiry_ranges(connection, [due_range._replace(pk=pk, sk=sk + b"\0")])
    return rows
