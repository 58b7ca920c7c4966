"""The change log: every change of a table with a stream, written in the transaction of the change.

A row of the SQL table `changes` covers changes of one partition: a single one, or many new items
that a bulk group wrote. Its number is never reused, and it increases in the order of the commits.
The images are the packed items of the table, so a bulk group only copies bytes.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

import apsw

from tally.store.changes import Change, ChangeKind
from tally.store.errors import StorageDamaged
from tally.store.evaluate import equal
from tally.store.sqlite.codec import pack, unpack
from tally.store.sqlite.keys import RowKey
from tally.store.sqlite.layout import ItemChange, Layout, Row, StreamLayout
from tally.store.values import Item

CREATE_CHANGES: Final = """
CREATE TABLE IF NOT EXISTS changes (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT, stream INTEGER NOT NULL, at INTEGER NOT NULL,
    pk BLOB NOT NULL, records BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS changes_stream ON changes (stream);
CREATE INDEX IF NOT EXISTS changes_partition ON changes (stream, pk);
CREATE TABLE IF NOT EXISTS trimmed_streams (
    stream INTEGER PRIMARY KEY, sequence INTEGER NOT NULL
);
"""
_INSERT, _MODIFY, _REMOVE, _EXPIRE = range(4)
_KINDS: Final[tuple[ChangeKind, ...]] = ("INSERT", "MODIFY", "REMOVE", "REMOVE")
_FIELDS: Final = 4  # of a record: kind, sort key, old image, new image
_MAX_ROW_BYTES: Final = 256 * 1024  # a reader decodes a row at a time
_MAX_ROWS_PER_STATEMENT: Final = 128
_PLACE_BITS: Final = 20  # of a sequence number: the place of a change in its row
_TRIM_ROWS: Final = 256
_TRIM_BYTES: Final = 1024 * 1024


class LogRow(NamedTuple):
    """A row of the log; `at` is in epoch milliseconds."""

    sequence: int
    at: int
    pk: bytes
    records: bytes


def open_stream(connection: apsw.Connection) -> int:
    """Return the id of a new stream: a number of the log's sequence that no row has."""
    connection.execute("INSERT INTO changes VALUES (NULL, 0, 0, x'', x'')")
    stream = connection.last_insert_rowid()
    connection.execute("DELETE FROM changes WHERE sequence = ?", (stream,))
    return stream


def end_stream(connection: apsw.Connection) -> None:
    """Take a number of the log, so that waiting consumers wake and notice that a stream ended."""
    open_stream(connection)


def record_change(
    connection: apsw.Connection, change: ItemChange, now: float, *, is_expiry: bool = False
) -> None:
    """Record a change of an item in a table with a stream, unless it changes nothing."""
    layout, before, after = change.layout, change.before, change.after
    stream = layout.stream
    if stream is None or before is after is None:
        return
    if before is None:
        kind = _INSERT
    elif after is None:
        kind = _EXPIRE if is_expiry else _REMOVE
    elif equal(before, after):
        return
    else:
        kind = _MODIFY
    old = None
    if before is not None and (stream.keeps_old or (stream.needs_image and after is None)):
        old = layout.packer.pack(before)
    new = change.packed if after is not None and stream.keeps_new else None
    pk, sk = change.key
    _append(connection, [(stream.id, round(now * 1000), pk, pack([kind, sk, old, new]))])


def record_inserts(
    connection: apsw.Connection, layout: Layout, rows: Sequence[Row], now: float
) -> None:
    """Record rows that were inserted together into a table with a stream: one row per partition."""
    stream = layout.stream
    if stream is None or not rows:
        return
    at = round(now * 1000)
    size = max(1, _MAX_ROW_BYTES // max(map(itemgetter(3), rows)))
    log_rows = []
    for pk, group in groupby(sorted(rows, key=itemgetter(0)), key=itemgetter(0)):
        partition = [*group]
        for start in range(0, len(partition), size):
            records = _pack_inserts(partition[start : start + size], stream)
            log_rows.append((stream.id, at, pk, records))
    _append(connection, log_rows)


def record_replaced(
    connection: apsw.Connection, layout: Layout, rows: Sequence[Row], now: float
) -> None:
    """Record rows that are about to replace existing ones in a table with a stream."""
    for pk, sk, packed, size in rows:
        key = pk, sk
        found: Any = connection.execute(layout.select, key).fetchone()
        before, after = layout.packer.unpack(found[0], key), layout.packer.unpack(packed, key)
        record_change(connection, ItemChange(layout, key, before, 0, after, size, packed), now)


def _pack_inserts(rows: Sequence[Row], stream: StreamLayout) -> bytes:
    fields: list[Any] = [_INSERT, None, None, None] * len(rows)
    fields[1::_FIELDS] = map(itemgetter(1), rows)
    if stream.keeps_new:
        fields[3::_FIELDS] = map(itemgetter(2), rows)
    return pack(fields)


def _append(connection: apsw.Connection, log_rows: Sequence[tuple[int, int, bytes, bytes]]) -> None:
    for start in range(0, len(log_rows), _MAX_ROWS_PER_STATEMENT):
        chunk = log_rows[start : start + _MAX_ROWS_PER_STATEMENT]
        connection.execute(_insert_statement(len(chunk)), [*chain.from_iterable(chunk)])


@lru_cache(maxsize=_MAX_ROWS_PER_STATEMENT)
def _insert_statement(count: int) -> str:
    marks = ",".join(["(?,?,?,?)"] * count)
    return f"INSERT INTO changes (stream, at, pk, records) VALUES {marks}"


def last_sequence(connection: apsw.Connection) -> int:
    """Return the number of the last row that was ever written."""
    row: Any = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'changes'")
    found = row.fetchone()
    return 0 if found is None else int(found[0])


def last_stream_sequence(connection: apsw.Connection, stream: int) -> int:
    """Return the number of the last row of a stream that is kept, or 0."""
    row: Any = connection.execute("SELECT max(sequence) FROM changes WHERE stream = ?", (stream,))
    return int(row.fetchone()[0] or 0)


def trimmed_sequence(connection: apsw.Connection, stream: int) -> int:
    """Return the number of the last row of a stream that was trimmed, or 0."""
    row: Any = connection.execute(
        "SELECT sequence FROM trimmed_streams WHERE stream = ?", (stream,)
    ).fetchone()
    return 0 if row is None else int(row[0])


def read_log(connection: apsw.Connection, stream: int, first: int, limit: int) -> list[LogRow]:
    """Return up to `limit` rows of a stream, from the number `first` on."""
    rows: Any = connection.execute(
        "SELECT sequence, at, pk, records FROM changes WHERE stream = ? AND sequence >= ?"
        " ORDER BY sequence LIMIT ?",
        (stream, first, limit),
    )
    return [LogRow(*row) for row in rows]


def read_partition_log(
    connection: apsw.Connection, stream: int, pk: bytes, first: int
) -> Generator[LogRow, None, None]:
    """Iterate over the rows of one partition of a stream, from the number `first` on."""
    rows: Any = connection.execute(
        "SELECT sequence, at, pk, records FROM changes INDEXED BY changes_partition"
        " WHERE stream = ? AND pk = ? AND sequence >= ? ORDER BY sequence",
        (stream, pk, first),
    )
    with closing(rows):
        for row in rows:
            yield LogRow(*row)


def change_sequence(row: int, number: int) -> int:
    """Return the sequence number of a change by its row and its place in the row, from 1."""
    return row << _PLACE_BITS | number


def split_sequence(sequence: int) -> tuple[int, int]:
    """Return the row of a sequence number and the place in the row."""
    return divmod(sequence, 1 << _PLACE_BITS)


def decode_row(layout: Layout, row: LogRow, prefix: str, skip: int = 0) -> Iterator[Change]:
    """Decode the changes of a row after the first `skip`.

    A position is the prefix, the row, and how many of its changes were read; 0 stands for all.
    """
    fields = unpack(row.records)
    count, rest = divmod(len(fields), _FIELDS)
    if rest:
        raise StorageDamaged(f"row {row.sequence} of the change log is damaged")
    for number in range(skip, count):
        kind, sk, old, new = fields[number * _FIELDS : (number + 1) * _FIELDS]
        position = f"{prefix}{row.sequence}.{(number + 1) % count}"
        key, images = _decode_images(layout, (row.pk, sk), old, new)
        sequence = change_sequence(row.sequence, number + 1)
        yield Change(_KINDS[kind], key, position, row.at / 1000, *images, kind == _EXPIRE, sequence)


def _decode_images(
    layout: Layout, key: RowKey, old: bytes | None, new: bytes | None
) -> tuple[Item, tuple[Item | None, Item | None]]:
    """Return the key, and the old and new image as far as the stream's view includes them."""
    stream, packer = layout.stream, layout.packer
    before = None if old is None else packer.unpack(old, key)
    after = None if new is None else packer.unpack(new, key)
    image = after or before
    names = packer.key_of(key) if image is None else layout.table.primary_key(image)
    view = "" if stream is None else stream.view
    return names, (before if "OLD" in view else None, after if "NEW" in view else None)


def trim_changes(connection: apsw.Connection, oldest: float, newest: float) -> bool:
    """Delete a slice of the first rows that are not between these times; return whether any was.

    A row from the future was written before the clock was corrected.
    """
    trimmed: dict[int, int] = {}
    size = 0
    for sequence, stream, at, length in _first_rows(connection):
        if oldest * 1000 <= at <= newest * 1000 or size > _TRIM_BYTES:
            break
        trimmed[stream] = sequence
        size += length
    if not trimmed:
        return False
    connection.execute("DELETE FROM changes WHERE sequence <= ?", (max(trimmed.values()),))
    _record_trimmed(connection, trimmed)
    return True


def _first_rows(connection: apsw.Connection) -> list[Any]:
    return connection.execute(
        "SELECT sequence, stream, at, length(records) FROM changes ORDER BY sequence LIMIT ?",
        (_TRIM_ROWS,),
    ).fetchall()


def _record_trimmed(connection: apsw.Connection, trimmed: Mapping[int, int]) -> None:
    connection.executemany(
        "INSERT INTO trimmed_streams VALUES (?, ?)"
        " ON CONFLICT DO UPDATE SET sequence = excluded.sequence",
        trimmed.items(),
    )
