"""The tables of a database.

The database holds the declarations, so every process maintains every index, including one that
another process added.
"""

import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import apsw

from tally.store.errors import (
    InvalidSchema,
    StorageUnwritable,
    TableDiffers,
    TableExists,
    TableNotFound,
)
from tally.store.schema import Table
from tally.store.sqlite.codec import unpack
from tally.store.sqlite.declarations import declare, read_declaration
from tally.store.sqlite.expiry import delete_expiry_ranges
from tally.store.sqlite.files import to_store_error
from tally.store.sqlite.layout import (
    Layout,
    compile_layout,
    create_index,
    create_rows,
    index_name,
    rows_name,
)

_BACKFILL_ROWS = 1_000
_compile_lock = threading.Lock()


class TableRegistry:
    """The compiled tables of one database, reloaded when the database changes.

    The readers and the writer have one each, because they live in different threads and see
    different snapshots.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._layouts: Mapping[str, Layout] = {}
        self._generation = -1
        self.refresh(connection)

    def refresh(self, connection: apsw.Connection) -> None:
        """Reload the declarations if they changed."""
        try:
            generation: Any = connection.execute("SELECT value FROM generation").fetchall()[0][0]
            if generation != self._generation:
                rows: list[Any] = connection.execute("SELECT declaration FROM tables").fetchall()
                layouts = [cached_layout(declaration) for (declaration,) in rows]
                self._layouts = {layout.table.name: layout for layout in layouts}
                self._generation = generation
        except apsw.Error as error:
            raise to_store_error(error, connection.filename) from error
        except (ValueError, TypeError, LookupError, InvalidSchema) as error:
            raise StorageUnwritable(
                f"{connection.filename}: the table registry is damaged: {error!r}"
            ) from error

    def invalidate(self) -> None:
        """Discard the state of a rolled-back transaction."""
        self._generation = -1

    def layout(self, name: str) -> Layout:
        """Return the layout of a table; raise TableNotFound if there is none."""
        found = self._layouts.get(name)
        if found is None:
            raise TableNotFound(f"table {name} does not exist")
        return found

    def find(self, name: str, connection: apsw.Connection, index: str | None = None) -> Layout:
        """Return the layout of a table.

        Refresh first if the table or the index is unknown: another process may have created it.
        """
        found = self._layouts.get(name)
        if found is None or (index is not None and index not in found.table.by_name):
            self.refresh(connection)
            found = self.layout(name)
        return found

    def names(self) -> list[str]:
        """Return the names of all tables."""
        return sorted(self._layouts)

    def create(self, connection: apsw.Connection, table: Table) -> None:
        """Create a table."""
        if table.name in self._layouts:
            raise TableExists(f"table {table.name} already exists")
        connection.execute(create_rows(table.name))
        for index in table.by_name:
            connection.execute(create_index(table.name, index))
        self._record(connection, table)

    def ensure(self, connection: apsw.Connection, table: Table) -> None:
        """Create a table, or change its indexes and TTL to match the declaration."""
        layout = self._layouts.get(table.name)
        if layout is None:
            self.create(connection, table)
            return
        stored = layout.table
        if stored.key != table.key:
            raise TableDiffers(
                f"table {table.name} has the key {stored.key_names}; a key cannot be changed"
            )
        if _stored_part(stored) == _stored_part(table):
            return
        self._alter(connection, layout, table)
        self._record(connection, table)

    def drop(self, connection: apsw.Connection, name: str) -> None:
        """Delete a table with all items."""
        for index in self.layout(name).table.by_name:
            connection.execute(f"DROP TABLE {index_name(name, index)}")
        connection.execute(f"DROP TABLE {rows_name(name)}")
        delete_expiry_ranges(connection, name)
        connection.execute("DELETE FROM tables WHERE name = ?", (name,))
        self._increment_generation(connection)

    def _alter(self, connection: apsw.Connection, layout: Layout, table: Table) -> None:
        stored = layout.table
        for name, index in stored.by_name.items():
            if table.by_name.get(name) != index:
                connection.execute(f"DROP TABLE {index_name(table.name, name)}")
        added = {name for name, index in table.by_name.items() if stored.by_name.get(name) != index}
        for name in added:
            connection.execute(create_index(table.name, name))
        if added or stored.ttl != table.ttl:
            _backfill(connection, compile_layout(table), added)
            delete_expiry_ranges(
                connection, table.name
            )  # the backfill stores the expiry in every row

    def _record(self, connection: apsw.Connection, table: Table) -> None:
        connection.execute(
            "INSERT OR REPLACE INTO tables VALUES (?, ?)", (table.name, declare(table))
        )
        self._increment_generation(connection)

    def _increment_generation(self, connection: apsw.Connection) -> None:
        connection.execute("UPDATE generation SET value = value + 1")
        self.refresh(connection)


def _backfill(connection: apsw.Connection, layout: Layout, added: set[str]) -> None:
    """Fill new indexes and the expiry column from the existing rows."""
    indexes = [index for index in layout.indexes if index.index.name in added]
    select = (
        f"SELECT pk, sk, item, expires FROM {layout.rows} WHERE (pk, sk) > (?, ?)"
        f" ORDER BY pk, sk LIMIT {_BACKFILL_ROWS}"
    )
    update = f"UPDATE {layout.rows} SET expires = ? WHERE pk = ? AND sk = ?"
    last_key: Any = (b"", b"")
    while True:
        rows: Any = connection.execute(select, last_key).fetchall()
        if not rows:
            return
        last_key = rows[-1][:2]
        for pk, sk, packed, expires in rows:
            item = unpack(packed)
            for index in indexes:
                key = index.read_key(item)
                if key is not None:
                    connection.execute(index.insert, (*key, pk, sk))
            if layout.expires(item) != expires:
                connection.execute(update, (layout.expires(item), pk, sk))


def _stored_part(table: Table) -> Table:
    """Return the table without attributes and version, which the engine does not store."""
    return replace(
        table,
        attributes=(),
        version="",
        indexes=tuple(sorted(table.by_name.values(), key=lambda index: index.name)),
    )


def cached_layout(declaration: str) -> Layout:
    """Return the same layout object for equal declarations, in every thread."""
    with _compile_lock:
        return _compile_cached(declaration)


@lru_cache(maxsize=1024)
def _compile_cached(declaration: str) -> Layout:
    return compile_layout(read_declaration(declaration))
