"""Finds damage: a slow scrub of all pages, and a complete check for `tally store check`.

The scrub reads pages that no request may read for months. It verifies their checksums in the file,
a few at a time, so that requests do not notice it.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import apsw

from tally.store.errors import StorageDamaged, StoreError
from tally.store.sqlite.change_log import decode_row, read_log
from tally.store.sqlite.checksums import PageFile
from tally.store.sqlite.files import PAGE_BYTES, connect, storage_damaged
from tally.store.sqlite.layout import Layout, index_name
from tally.store.sqlite.table_registry import LayoutCache, TableRegistry, load_shapes

_MAX_PROBLEMS: Final = 100
# A checkpoint may be writing the page: a damaged one stays damaged.
_READ_ATTEMPTS: Final = 5
_RETRY_SECONDS: Final = 0.05
_LOG_ROWS: Final = 64


class Scrubber:
    """Verifies the pages of a database in order, over and over."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = 1

    def verify(self, max_pages: int | None) -> bool:
        """Verify the next pages, or all; return whether that completed a pass.

        Raise StorageDamaged at the first damaged page.
        """
        file = PageFile(self._path, PAGE_BYTES)
        try:
            first = 1 if max_pages is None else self._next
            last = file.pages if max_pages is None else min(file.pages, first + max_pages - 1)
            for number in range(first, last + 1 if file.has_checksums else first):
                if not is_page_intact(file, number):
                    raise storage_damaged(self._path, f"the checksum of page {number} is wrong")
            is_complete = last >= file.pages
            self._next = 1 if is_complete else last + 1
            return is_complete
        finally:
            file.close()


def is_page_intact(file: PageFile, number: int) -> bool:
    """Whether a page is intact; read it again if a checkpoint may have been writing it."""
    for attempt in range(_READ_ATTEMPTS):
        if attempt:
            time.sleep(_RETRY_SECONDS)
        if file.is_intact(number):
            return True
    return False


def find_damage(path: Path) -> Iterator[str]:
    """Check the whole database: checksums, structure, items, and indexes against their tables."""
    yield from _find_damaged_pages(path)
    connection = connect(path)
    try:
        yield from _find_structural_damage(connection)
        try:
            registry = TableRegistry(connection, LayoutCache(load_shapes(connection, path)))
            layouts = [registry.layout(name) for name in registry.names(connection)]
        except StoreError as error:
            yield str(error)
            return
        for layout in layouts:
            try:
                # One snapshot: the rows and the indexes of a table belong together.
                with connection:
                    yield from _find_wrong_rows(connection, layout)
                    yield from _find_wrong_changes(connection, layout)
            except (apsw.Error, UnicodeDecodeError) as error:
                yield f"table {layout.table.name}: {error}"
    finally:
        connection.close()


def _find_damaged_pages(path: Path) -> Iterator[str]:
    try:
        file = PageFile(path, PAGE_BYTES)
    except apsw.Error as error:
        yield f"header: {error}"
        return
    try:
        if not file.has_checksums:
            return
        found = 0
        for number in range(1, file.pages + 1):
            if not is_page_intact(file, number):
                found += 1
                yield f"page {number}: wrong checksum"
                if found == _MAX_PROBLEMS:
                    return
    finally:
        file.close()


def _find_structural_damage(connection: apsw.Connection) -> Iterator[str]:
    try:
        for (line,) in connection.execute(f"PRAGMA integrity_check({_MAX_PROBLEMS})"):
            if line != "ok":
                yield f"structure: {line}"
    except apsw.Error as error:
        yield f"structure: {error}"


def _find_wrong_rows(connection: apsw.Connection, layout: Layout) -> Iterator[str]:
    table = layout.table.name
    indexes = [index for index in layout.indexes if index.index.name not in layout.building]
    found = dict.fromkeys((index.index.name for index in indexes), 0)
    for pk, sk, packed in connection.execute(f"SELECT pk, sk, item FROM {layout.rows}"):
        try:
            item = layout.packer.unpack(packed, (pk, sk))
            if layout.read_key(item) != (pk, sk):
                yield f"table {table}: the item at {pk!r}, {sk!r} has another key"
        except (StorageDamaged, KeyError) as error:
            yield f"table {table}: the item at {pk!r}, {sk!r}: {error}"
            continue
        for index in indexes:
            key = index.read_key(item)
            if key is None:
                continue
            if _has_entry(connection, table, index.index.name, (*key, pk, sk)):
                found[index.index.name] += 1
            else:
                yield f"index {table}/{index.index.name}: no entry for {pk!r}, {sk!r}"
    for name, count in found.items():
        stored: Any = connection.execute(
            f"SELECT count(*) FROM {index_name(table, name)}"
        ).fetchone()
        if stored[0] > count:
            yield f"index {table}/{name}: {stored[0] - count} entries have no item"


def _find_wrong_changes(connection: apsw.Connection, layout: Layout) -> Iterator[str]:
    """Decode the change log of a table's stream."""
    stream, first = layout.stream, 0
    while stream is not None and (rows := read_log(connection, stream.id, first, _LOG_ROWS)):
        for row in rows:
            first = row.sequence + 1
            try:
                for _ in decode_row(layout, row, ""):
                    pass
            except (StorageDamaged, ValueError, TypeError, LookupError) as error:
                yield f"change log of {layout.table.name}: row {row.sequence}: {error}"


def _has_entry(
    connection: apsw.Connection, table: str, index: str, entry: tuple[bytes, ...]
) -> bool:
    found = connection.execute(
        f"SELECT 1 FROM {index_name(table, index)} WHERE (ipk, isk, pk, sk) = (?, ?, ?, ?)", entry
    ).fetchone()
    return found is not None
