"""Expiry records: which keys of a table expire in an hour.

A record holds a table, an hour, a key prefix, and the first and last key below the prefix that
expire in that hour. The prefix is the partition key; in a table without a sort key it is the first
half of the partition key. So the readings of a device share one record per hour, and unrelated keys
have one each. Writing a record per row would cost nearly as much as the row itself.

A record is a superset: later changes and deletions do not affect it, because the sweeper reads each
item before it deletes it.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import chain, groupby
from typing import Any, NamedTuple

import apsw

from tally.store.schema import Table
from tally.store.sqlite.keys import RowKey

CREATE_EXPIRY = """
CREATE TABLE IF NOT EXISTS expiry (
    name TEXT NOT NULL, hour INTEGER NOT NULL, prefix BLOB NOT NULL,
    low BLOB NOT NULL, high BLOB NOT NULL,
    PRIMARY KEY (name, hour, prefix)
) WITHOUT ROWID;
"""
_HOUR_SECONDS = 3_600
_MAX_SECONDS = 1e15  # later times never come, and their hours do not fit in a column
_MAX_BOUND_BYTES = 16  # longer bounds are shortened to a larger range
_MAX_RECORDS_PER_STATEMENT = 128


class ExpiryRecord(NamedTuple):
    """The keys below a prefix, between two bounds, that expire in an hour."""

    name: str
    hour: int
    prefix: bytes
    low: bytes
    high: bytes


def expiry_recorder(
    table: Table,
) -> Callable[[Sequence[RowKey], Sequence[float | None]], list[ExpiryRecord]]:
    """Return a function that computes the records of rows from their keys and expiry times."""
    split = _split_sorted if table.sort else _split_unsorted
    name = table.name

    def record(keys: Sequence[RowKey], times: Sequence[float | None]) -> list[ExpiryRecord]:
        expiring = [
            (int(time // _HOUR_SECONDS), split(key))
            for key, time in zip(keys, times, strict=True)
            if time is not None and abs(time) < _MAX_SECONDS
        ]
        if len(expiring) > 1:
            expiring.sort()
        records = []
        for (hour, prefix), rows in groupby(expiring, key=_group):
            bounds = [suffix for _, (_, suffix) in rows]
            records.append(ExpiryRecord(name, hour, prefix, _lower(bounds[0]), _upper(bounds[-1])))
        return records

    return record


def _group(row: tuple[int, tuple[bytes, bytes]]) -> tuple[int, bytes]:
    return row[0], row[1][0]


def _split_sorted(key: RowKey) -> RowKey:
    return key


def _split_unsorted(key: RowKey) -> RowKey:
    pk = key[0]
    half = len(pk) // 2 + 1
    return pk[:half], pk[half:]


def _lower(bound: bytes) -> bytes:
    return bound[:_MAX_BOUND_BYTES]


def _upper(bound: bytes) -> bytes:
    # Text has no byte 255, so the shortened bound follows every key that starts with it.
    is_short = len(bound) <= _MAX_BOUND_BYTES or b"\xff" in bound
    return bound if is_short else bound[:_MAX_BOUND_BYTES] + b"\xff"


def write_expiry(connection: apsw.Connection, records: Sequence[ExpiryRecord]) -> None:
    """Insert records, or extend the existing ones."""
    for start in range(0, len(records), _MAX_RECORDS_PER_STATEMENT):
        chunk = records[start : start + _MAX_RECORDS_PER_STATEMENT]
        connection.execute(_upsert(len(chunk)), [*chain.from_iterable(chunk)])


@lru_cache(maxsize=_MAX_RECORDS_PER_STATEMENT)
def _upsert(count: int) -> str:
    return (
        f"INSERT INTO expiry VALUES {','.join(['(?,?,?,?,?)'] * count)}"
        " ON CONFLICT DO UPDATE SET low = min(low, excluded.low), high = max(high, excluded.high)"
        " WHERE excluded.low < low OR excluded.high > high"
    )


def delete_expiry(connection: apsw.Connection, table: str) -> None:
    """Delete all records of a table."""
    connection.execute("DELETE FROM expiry WHERE name = ?", (table,))


def pop_due_rows(
    connection: apsw.Connection, table: Table, sql_rows: str, now: float, limit: int
) -> list[Any] | None:
    """Remove a due record and return up to `limit` of its rows, or None if no record is due.

    A record is due after the end of its hour.
    """
    found: Any = connection.execute(
        "SELECT * FROM expiry WHERE name = ? AND hour < ? LIMIT 1",
        (table.name, int(now // _HOUR_SECONDS)),
    ).fetchone()
    if found is None:
        return None
    record = ExpiryRecord(*found)
    condition, values = _range(table, record)
    rows: list[Any] = connection.execute(
        f"SELECT pk, sk, item FROM {sql_rows} WHERE {condition} ORDER BY pk, sk LIMIT ?",
        (*values, limit),
    ).fetchall()
    if len(rows) == limit:  # the next call continues after the last row
        pk, sk, _ = rows[-1]
        low = sk if table.sort else pk[len(record.prefix) :]
        connection.execute(
            "UPDATE expiry SET low = ? WHERE (name, hour, prefix) = (?, ?, ?)",
            (low + b"\0", *record[:3]),
        )
    else:
        connection.execute("DELETE FROM expiry WHERE (name, hour, prefix) = (?, ?, ?)", record[:3])
    return rows


def read_current_rows(
    connection: apsw.Connection, table: Table, sql_rows: str, now: float, limit: int
) -> dict[RowKey, bytes]:
    """Return up to `limit` items by their keys that may expire in the hour that has not ended."""
    records: Any = connection.execute(
        "SELECT * FROM expiry WHERE name = ? AND hour = ? LIMIT ?",
        (table.name, int(now // _HOUR_SECONDS), limit),
    ).fetchall()
    found: dict[RowKey, bytes] = {}
    for record in records:
        condition, values = _range(table, ExpiryRecord(*record))
        rows: Any = connection.execute(
            f"SELECT pk, sk, item FROM {sql_rows} WHERE {condition} LIMIT ?",
            (*values, limit - len(found)),
        )
        found |= {(pk, sk): item for pk, sk, item in rows}
        if len(found) >= limit:
            break
    return found


def _range(table: Table, record: ExpiryRecord) -> tuple[str, Iterable[bytes]]:
    _, _, prefix, low, high = record
    if table.sort:
        return "pk = ? AND sk BETWEEN ? AND ?", (prefix, low, high)
    return "pk BETWEEN ? AND ?", (prefix + low, prefix + high)
