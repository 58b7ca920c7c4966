"""The tables of a database.

The database holds the declarations, so every process maintains every index, including one that
another process added.
"""

import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import msgspec

from tally.store.errors import (
    IndexBackfilling,
    InvalidSchema,
    StorageDamaged,
    TableDiffers,
    TableExists,
    TableNotFound,
    WritesPaused,
)
from tally.store.schema import Table, index_key
from tally.store.sqlite.backfill import backfill_slice, begin_backfill, drop_entries
from tally.store.sqlite.change_log import end_stream, open_stream
from tally.store.sqlite.declarations import (
    declare,
    read_building,
    read_declaration,
    read_stream_id,
)
from tally.store.sqlite.directory import REMEDY
from tally.store.sqlite.expiry import delete_expiry, write_expiry
from tally.store.sqlite.files import connect, to_store_error
from tally.store.sqlite.layout import (
    Layout,
    compile_layout,
    create_entries,
    create_rows,
    entries_name,
    index_name,
    rows_name,
)
from tally.store.sqlite.shapes import Shapes
from tally.store.sqlite.state import FENCE, RECORDING, delete_state, read_state, write_state

_EXPIRY_ROWS = 1_000


class LayoutCache:
    """The compiled tables of a database: equal declarations have one layout, in every thread."""

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = shapes
        self._lock = threading.Lock()
        self._layouts: dict[str, Layout] = {}

    def layout(self, declaration: str) -> Layout:
        """Return the layout of a stored declaration."""
        with self._lock:
            found = self._layouts.get(declaration)
            if found is None:
                found = compile_layout(
                    read_declaration(declaration),
                    self.shapes,
                    read_building(declaration),
                    read_stream_id(declaration),
                )
                self._layouts[declaration] = found
        return found


def load_shapes(connection: apsw.Connection, path: Path) -> Shapes:
    """Read the shapes of a database."""
    shapes = Shapes(partial(connect, path))
    try:
        shapes.load(connection)
    except apsw.Error as error:
        raise to_store_error(error, path) from error
    except msgspec.DecodeError as error:
        raise StorageDamaged(f"{path}: the shapes are damaged ({error}): {REMEDY}") from error
    return shapes


class TableRegistry:
    """The compiled tables of one database, reloaded when the database changes.

    The readers and the writer have one each, because they live in different threads and see
    different snapshots.
    """

    def __init__(
        self, connection: apsw.Connection, cache: LayoutCache, *, passes_fence: bool = False
    ) -> None:
        self._cache = cache
        self._passes_fence = passes_fence
        self._fence: str | None = None
        self._is_recording = False
        self._layouts: Mapping[str, Layout] = {}
        self._generation = -1
        self.refresh(connection)

    def refresh(self, connection: apsw.Connection) -> None:
        """Reload the declarations if they changed."""
        try:
            generation: Any = connection.execute("SELECT value FROM generation").fetchall()[0][0]
            if generation != self._generation:
                rows: list[Any] = connection.execute("SELECT declaration FROM tables").fetchall()
                layouts = [self._cache.layout(declaration) for (declaration,) in rows]
                self._layouts = {layout.table.name: layout for layout in layouts}
                self._fence = read_state(connection, FENCE)
                self._is_recording = read_state(connection, RECORDING) is not None
                self._generation = generation
        except apsw.Error as error:
            raise to_store_error(error, connection.filename) from error
        except (ValueError, TypeError, LookupError, InvalidSchema) as error:
            raise StorageDamaged(
                f"{connection.filename}: the table registry is damaged: {error!r}; {REMEDY}"
            ) from error

    def is_generation(self, generation: int) -> bool:
        """Whether the tables were loaded in this generation of the declarations."""
        return generation == self._generation

    def invalidate(self) -> None:
        """Discard the state of a rolled-back transaction."""
        self._generation = -1

    def layout(self, name: str) -> Layout:
        """Return the layout of a table; raise TableNotFound if there is none."""
        found = self._layouts.get(name)
        if found is None:
            raise TableNotFound(f"table {name} does not exist")
        return found

    def writable(self, name: str) -> Layout:
        """Return the layout of a table to write to; raise WritesPaused while a fence is set."""
        if self._fence is not None and not self._passes_fence:
            raise WritesPaused(self._fence)
        return self.layout(name)

    def set_fence(self, connection: apsw.Connection, reason: str | None) -> None:
        """Reject the writes of all processes from now on, or accept them again.

        Every write transaction compares the generation, so none commits after this one unnoticed.
        """
        if reason is None:
            delete_state(connection, FENCE)
        else:
            write_state(connection, FENCE, reason)
        self._increment_generation(connection)

    def set_recording(self, connection: apsw.Connection, *, is_on: bool) -> None:
        """Keep the streams of tables that are declared without one, until this is turned off."""
        if is_on:
            write_state(connection, RECORDING, "on")
        else:
            delete_state(connection, RECORDING)
        self._increment_generation(connection)

    def find(self, name: str, connection: apsw.Connection, index: str | None = None) -> Layout:
        """Return the layout of a table.

        Refresh first if the table or the index is unknown: another process may have created it.
        """
        found = self._layouts.get(name)
        if found is None or (
            index is not None and (index not in found.table.by_name or index in found.building)
        ):
            self.refresh(connection)
            found = self.layout(name)
            if index in found.building:
                raise IndexBackfilling(
                    f"index {index} of table {name} is new and not complete yet; retry later"
                )
        return found

    def names(self, connection: apsw.Connection) -> list[str]:
        """Return the names of all tables whose rows and indexes exist."""
        statement = "SELECT name FROM sqlite_schema WHERE type = 'table'"
        try:
            found = {f'"{name}"' for (name,) in connection.execute(statement)}
        except apsw.Error as error:
            raise to_store_error(error, connection.filename) from error
        return sorted(name for name, layout in self._layouts.items() if _sql_names(layout) <= found)

    def create(self, connection: apsw.Connection, table: Table) -> None:
        """Create a table."""
        if table.name in self._layouts:
            raise TableExists(f"table {table.name} already exists")
        connection.execute(create_rows(table.name))
        for index in table.by_name:
            connection.execute(create_entries(index_name(table.name, index)))
        self._record(connection, table)

    def ensure(self, connection: apsw.Connection, table: Table) -> None:
        """Create a table, or change its indexes, TTL and stream to match the declaration.

        While all tables are recorded, a table keeps its stream if it is declared without one.
        """
        layout = self._layouts.get(table.name)
        if layout is None:
            self.create(connection, table)
            return
        stored = layout.table
        if self._is_recording and table.stream is None:
            table = replace(table, stream=stored.stream)
        if stored.key != table.key:
            raise TableDiffers(
                f"table {table.name} has the key {stored.key_names}; a key cannot be changed"
            )
        if _stored_part(stored) == _stored_part(table):
            return
        self._record(connection, table, self._alter(connection, layout, table))

    def advance_backfill(self, connection: apsw.Connection, name: str) -> bool:
        """Fill the next slice of a new index; return whether all indexes are complete."""
        layout = self.layout(name)
        for index in sorted(layout.building)[:1]:
            if backfill_slice(connection, layout, index):
                self._record(connection, layout.table, layout.building - {index})
        return not self.layout(name).building

    def drop(self, connection: apsw.Connection, name: str) -> None:
        """Delete a table with all items."""
        layout = self.layout(name)
        for index in layout.table.by_name:
            drop_entries(connection, layout, index)
        connection.execute(f"DROP TABLE {rows_name(name)}")
        delete_expiry(connection, name)
        if layout.stream is not None:
            end_stream(connection)
        connection.execute("DELETE FROM tables WHERE name = ?", (name,))
        self._increment_generation(connection)

    def _alter(self, connection: apsw.Connection, layout: Layout, table: Table) -> frozenset[str]:
        """Change the indexes and the TTL; return the indexes that are not complete then."""
        stored = layout.table
        retained = {
            name
            for name, index in table.by_name.items()
            if name in stored.by_name and index_key(stored.by_name[name]) == index_key(index)
        }
        for name in stored.by_name.keys() - retained:
            drop_entries(connection, layout, name)
        added = table.by_name.keys() - retained
        for name in added:
            begin_backfill(connection, table.name, name)
        building = frozenset(added | (layout.building & retained))
        if stored.ttl != table.ttl:
            delete_expiry(connection, table.name)
            _record_expiry(connection, self._cache.layout(declare(table, building)))
        return building

    def _record(
        self, connection: apsw.Connection, table: Table, building: frozenset[str] = frozenset()
    ) -> None:
        declaration = declare(table, building, self._stream_id(connection, table))
        connection.execute("INSERT OR REPLACE INTO tables VALUES (?, ?)", (table.name, declaration))
        self._increment_generation(connection)

    def _stream_id(self, connection: apsw.Connection, table: Table) -> int:
        """Return the id of the table's stream; one that was off or had another view is new."""
        stored = self._layouts.get(table.name)
        stream = None if stored is None else stored.stream
        if table.stream is None:
            if stream is not None:
                end_stream(connection)
            return 0
        return stream.id if stream and stream.view == table.stream else open_stream(connection)

    def _increment_generation(self, connection: apsw.Connection) -> None:
        connection.execute("UPDATE generation SET value = value + 1")
        self.refresh(connection)


def _sql_names(layout: Layout) -> set[str]:
    name = layout.table.name
    entries = (entries_name(name, index, layout.building) for index in layout.table.by_name)
    return {layout.rows, *entries}


def _record_expiry(connection: apsw.Connection, layout: Layout) -> None:
    """Write the expiry records of the existing rows."""
    select = (
        f"SELECT pk, sk, item FROM {layout.rows} WHERE (pk, sk) > (?, ?)"
        f" ORDER BY pk, sk LIMIT {_EXPIRY_ROWS}"
    )
    last_key: Any = (b"", b"")
    while True:
        rows: Any = connection.execute(select, last_key).fetchall()
        if not rows:
            return
        last_key = rows[-1][:2]
        items = [layout.packer.unpack(packed, (pk, sk)) for pk, sk, packed in rows]
        keys = [row[:2] for row in rows]
        write_expiry(connection, layout.expiry_records(keys, [*map(layout.expires, items)]))


def _stored_part(table: Table) -> Table:
    """Return the table without attributes and version, which the engine does not store."""
    return replace(
        table,
        attributes=(),
        version="",
        indexes=tuple(sorted(table.by_name.values(), key=lambda index: index.name)),
    )
