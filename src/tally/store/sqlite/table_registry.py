"""Which tables there are.

The database holds the declarations, so that every process on it keeps every index, also one that a
newer process added.
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
_compiling = threading.Lock()


class TableRegistry:
    """The tables of one database, read again whenever the database says that they changed.

    The readers have one and the writer has another, since they live in different threads and see
    different moments.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._layouts: Mapping[str, Layout] = {}
        self._generation = -1
        self.refresh(connection)

    def refresh(self, connection: apsw.Connection) -> None:
        """Read the declarations again if they changed."""
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
                f"{connection.filename}: the list of tables is damaged: {error!r}"
            ) from error

    def forget(self) -> None:
        """What was read or made in a transaction that was rolled back is not to be relied on."""
        self._generation = -1

    def layout(self, name: str) -> Layout:
        """The layout of a table."""
        found = self._layouts.get(name)
        if found is None:
            raise TableNotFound(f"there is no table {name}")
        return found

    def known(self, name: str, connection: apsw.Connection, index: str | None = None) -> Layout:
        """The layout of a table that another process may have made, or given that index, a moment ago."""
        found = self._layouts.get(name)
        if found is None or (index is not None and index not in found.table.by_name):
            self.refresh(connection)
            found = self.layout(name)
        return found

    def names(self) -> list[str]:
        """The names of all tables."""
        return sorted(self._layouts)

    def create(self, connection: apsw.Connection, table: Table) -> None:
        """Make a table."""
        if table.name in self._layouts:
            raise TableExists(f"there is already a table {table.name}")
        connection.execute(create_rows(table.name))
        for index in table.by_name:
            connection.execute(create_index(table.name, index))
        self._record(connection, table)

    def ensure(self, connection: apsw.Connection, table: Table) -> None:
        """Make a table, or bring its indexes and time to live to what is declared."""
        layout = self._layouts.get(table.name)
        if layout is None:
            self.create(connection, table)
            return
        stored = layout.table
        if stored.key != table.key:
            raise TableDiffers(
                f"table {table.name} has the key {stored.key_names}; a key cannot be changed"
            )
        if _bare(stored) == _bare(table):
            return
        self._change(connection, layout, table)
        self._record(connection, table)

    def drop(self, connection: apsw.Connection, name: str) -> None:
        """Remove a table with all that is in it."""
        for index in self.layout(name).table.by_name:
            connection.execute(f"DROP TABLE {index_name(name, index)}")
        connection.execute(f"DROP TABLE {rows_name(name)}")
        delete_expiry_ranges(connection, name)
        connection.execute("DELETE FROM tables WHERE name = ?", (name,))
        self._changed(connection)

    def _change(self, connection: apsw.Connection, layout: Layout, table: Table) -> None:
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
            )  # every row says by itself now when it expires

    def _record(self, connection: apsw.Connection, table: Table) -> None:
        connection.execute(
            "INSERT OR REPLACE INTO tables VALUES (?, ?)", (table.name, declare(table))
        )
        self._changed(connection)

    def _changed(self, connection: apsw.Connection) -> None:
        connection.execute("UPDATE generation SET value = value + 1")
        self.refresh(connection)


def _backfill(connection: apsw.Connection, layout: Layout, added: set[str]) -> None:
    """Fill new indexes and the expiry from the rows that are there."""
    indexes = [index for index in layout.indexes if index.index.name in added]
    select = f"SELECT pk, sk, item, expires FROM {layout.rows} WHERE (pk, sk) > (?, ?) ORDER BY pk, sk LIMIT {_BACKFILL_ROWS}"
    update = f"UPDATE {layout.rows} SET expires = ? WHERE pk = ? AND sk = ?"
    passed: Any = (b"", b"")
    while True:
        rows: Any = connection.execute(select, passed).fetchall()
        if not rows:
            return
        passed = rows[-1][:2]
        for pk, sk, packed, expires in rows:
            item = unpack(packed)
            for index in indexes:
                key = index.read_key(item)
                if key is not None:
                    connection.execute(index.insert, (*key, pk, sk))
            if layout.expires(item) != expires:
                connection.execute(update, (layout.expires(item), pk, sk))


def _bare(table: Table) -> Table:
    """A table without the attributes that are a contract of its readers and no business of the engine."""
    return replace(
        table,
        attributes=(),
        version="",
        indexes=tuple(sorted(table.by_name.values(), key=lambda index: index.name)),
    )


def cached_layout(declaration: str) -> Layout:
    """One layout for one declaration, so that all who mean the same know it by identity, in whichever thread."""
    with _compiling:
        return _compiled(declaration)


@lru_cache(maxsize=1024)
def _compiled(declaration: str) -> Layout:
    return compile_layout(read_declaration(declaration))
