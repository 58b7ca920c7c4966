"""Page checksums: SQLite's checksum VFS, which comes with apsw.

A database with eight reserved bytes per page has a checksum in each page. The VFS computes it on
every write and verifies it on every read from the disk; pages are then never memory-mapped.
"""

import threading
from pathlib import Path
from typing import Final

import apsw
import apsw.sqlite_extra

from tally.store.errors import StorageUnwritable

CHECKSUM_VFS: Final = "cksmvfs"
CHECKSUM_BYTES: Final = 8
_RESERVED_BYTES_OFFSET: Final = 20  # in the header of a database
_HEADER_BYTES: Final = 100
_loading = threading.Lock()


def load_checksum_vfs() -> str:
    """Register the VFS in this process, once, and return its name."""
    with _loading:
        if CHECKSUM_VFS not in apsw.vfs_names():
            connection = apsw.Connection(":memory:")
            try:
                connection.enable_load_extension(True)
                apsw.sqlite_extra.load(connection, "cksumvfs")
            except apsw.sqlite_extra.NotAvailable as error:
                raise StorageUnwritable(
                    f"apsw {apsw.apsw_version()} has no page checksums (cksumvfs):"
                    " install apsw as a wheel"
                ) from error
            finally:
                connection.close()
    return CHECKSUM_VFS


def reserve_checksums(connection: apsw.Connection) -> None:
    """Give the pages of a new database checksums; call it before the first write."""
    connection.reserve_bytes(reserve=CHECKSUM_BYTES)


def add_checksums(connection: apsw.Connection) -> None:
    """Rewrite an existing database with checksums; no other connection may use it.

    An upgrade calls it outside of a transaction. It needs free space for a copy of the database.
    """
    connection.reserve_bytes(reserve=CHECKSUM_BYTES)
    connection.execute("VACUUM")


def extended_result(error: apsw.Error) -> int:
    """Return SQLite's extended result code, which apsw adds to errors of SQLite."""
    return int(getattr(error, "extendedresult", 0))


class PageFile:
    """Reads the pages of a database from its file, past SQLite's cache, and verifies them.

    SQLite's own file object shares its descriptors with the connections: closing a file that was
    opened differently would release their locks.
    """

    def __init__(self, path: Path, page_bytes: int) -> None:
        flags = apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE
        self._file = apsw.VFSFile(load_checksum_vfs(), str(path), [flags, 0])
        self._page_bytes = page_bytes
        header = self._file.xRead(_HEADER_BYTES, 0)  # from it, the VFS learns of the checksums
        self.has_checksums = header[_RESERVED_BYTES_OFFSET] == CHECKSUM_BYTES

    @property
    def pages(self) -> int:
        return self._file.xFileSize() // self._page_bytes

    def is_intact(self, number: int) -> bool:
        """Whether the checksum of a page, counted from 1, is right."""
        try:
            self._file.xRead(self._page_bytes, (number - 1) * self._page_bytes)
        except apsw.IOError as error:
            result = extended_result(error)
            if result not in {apsw.SQLITE_IOERR_DATA, apsw.SQLITE_IOERR_SHORT_READ}:
                raise
            # A checkpoint may have just shortened the file.
            return result == apsw.SQLITE_IOERR_SHORT_READ
        return True

    def close(self) -> None:
        self._file.xClose()


def has_checksums(path: Path, page_bytes: int) -> bool:
    """Whether the pages of a database have checksums."""
    file = PageFile(path, page_bytes)
    try:
        return file.has_checksums
    finally:
        file.close()
