"""Upgrades the databases of earlier formats, in one transaction.

Format 5 had no index of the change log by partition, and format 4 no change log. Format 3 had the
expiry of single rows in a column with an index, and that of rows written together in the SQL table
`notes`; formats 1 and 2 had only the column. Rows are not rewritten: an item that is packed with
its key and its names is still read.
"""

from typing import Any

import apsw

from tally.store.sqlite.change_log import CREATE_CHANGES
from tally.store.sqlite.codec import unpack
from tally.store.sqlite.declarations import read_declaration
from tally.store.sqlite.expiry import CREATE_EXPIRY, write_expiry
from tally.store.sqlite.layout import Layout, compile_layout
from tally.store.sqlite.shapes import CREATE_SHAPES, Shapes

_NO_CHANGE_LOG = 4
_ROWS = 1_000


def upgrade(connection: apsw.Connection, version: int) -> None:
    """Upgrade an older database to this version, unless another process already did."""
    connection.execute("BEGIN IMMEDIATE")
    stored = connection.pragma("user_version")
    if stored < _NO_CHANGE_LOG:
        connection.execute(CREATE_EXPIRY + CREATE_SHAPES)
        for (declaration,) in connection.execute("SELECT declaration FROM tables").fetchall():
            _upgrade_rows(connection, compile_layout(read_declaration(str(declaration)), Shapes()))
        connection.execute("DROP TABLE IF EXISTS notes")
    if stored < version:
        connection.execute(CREATE_CHANGES)
        connection.execute(f"PRAGMA user_version = {version}")
    connection.execute("COMMIT")


def _upgrade_rows(connection: apsw.Connection, layout: Layout) -> None:
    """Record the expiry of all rows, and drop its column."""
    last_key: Any = (b"", b"")
    while layout.table.ttl is not None and last_key:
        rows: Any = connection.execute(
            f"SELECT pk, sk, item FROM {layout.rows} WHERE (pk, sk) > (?, ?)"
            f" ORDER BY pk, sk LIMIT {_ROWS}",
            last_key,
        ).fetchall()
        times = [layout.expires(unpack(packed)) for _, _, packed in rows]
        write_expiry(connection, layout.expiry_records([row[:2] for row in rows], times))
        last_key = rows[-1][:2] if rows else None
    connection.execute(f'DROP INDEX IF EXISTS "expires {layout.table.name}"')
    connection.execute(f"ALTER TABLE {layout.rows} DROP COLUMN expires")
