"""Builds a new index while others read and write the table.

The transaction that declares the index also makes every writer of every process maintain it. Then
slices of the existing rows follow, each in its own transaction, with the position in the database:
a crash loses at most one slice, and the next `ensure_table` of any process continues. Entries are
inserted from the rows as they are in that transaction, so they cannot contradict a concurrent
write, and inserting one twice has no effect.

Until it is complete, the entries have another SQL name, so that no reader can mistake an incomplete
index for a complete one.
"""

from typing import Any, Final

import apsw

from tally.store.sqlite.layout import Layout, building_name, create_entries, index_name

_SLICE_ROWS: Final = 500  # about 10 ms, which other writers may wait
_CREATE_POSITIONS = (
    "CREATE TABLE IF NOT EXISTS backfills (name TEXT NOT NULL, index_name TEXT NOT NULL,"
    " pk BLOB NOT NULL, sk BLOB NOT NULL, PRIMARY KEY (name, index_name)) WITHOUT ROWID"
)


def begin_backfill(connection: apsw.Connection, table: str, index: str) -> None:
    """Create the empty entries of an index and its position."""
    connection.execute(_CREATE_POSITIONS)
    connection.execute(create_entries(building_name(table, index)))
    connection.execute("INSERT INTO backfills VALUES (?, ?, x'', x'')", (table, index))


def drop_entries(connection: apsw.Connection, layout: Layout, index: str) -> None:
    """Drop the entries of an index, complete or not."""
    table = layout.table.name
    if index in layout.building:
        connection.execute(f"DROP TABLE {building_name(table, index)}")
        _delete_position(connection, table, index)
    else:
        connection.execute(f"DROP TABLE {index_name(table, index)}")


def backfill_slice(connection: apsw.Connection, layout: Layout, index: str) -> bool:
    """Insert the entries of the next rows; return whether the index is complete."""
    table = layout.table.name
    position: Any = connection.execute(
        "SELECT pk, sk FROM backfills WHERE (name, index_name) = (?, ?)", (table, index)
    ).fetchone()
    rows: list[Any] = connection.execute(
        f"SELECT pk, sk, item FROM {layout.rows} WHERE (pk, sk) > (?, ?)"
        f" ORDER BY pk, sk LIMIT {_SLICE_ROWS}",
        position,
    ).fetchall()
    compiled = layout.index_layout(index)
    for pk, sk, packed in rows:
        key = compiled.read_key(layout.packer.unpack(packed, (pk, sk)))
        if key is not None:
            connection.execute(compiled.insert, (*key, pk, sk))
    if len(rows) == _SLICE_ROWS:
        connection.execute(
            "UPDATE backfills SET pk = ?, sk = ? WHERE (name, index_name) = (?, ?)",
            (*rows[-1][:2], table, index),
        )
        return False
    connection.execute(
        f"ALTER TABLE {building_name(table, index)} RENAME TO {index_name(table, index)}"
    )
    _delete_position(connection, table, index)
    return True


def _delete_position(connection: apsw.Connection, table: str, index: str) -> None:
    connection.execute("DELETE FROM backfills WHERE (name, index_name) = (?, ?)", (table, index))
