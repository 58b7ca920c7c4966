"""Opens the database file, checks its format, and maps SQLite's errors to the store's."""

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

import apsw

from tally.store.errors import (
    StorageFull,
    StorageTooNew,
    StorageUnwritable,
    StoreError,
    StoreUnavailable,
)
from tally.store.sqlite.expiry import CREATE_EXPIRY_RANGES
from tally.store.sqlite.layout import create_expiry_index

FILE_NAME = "store.db"
FORMAT_VERSION = 3  # 2: expiry index by the hour; 3: expiry ranges for rows written together
_APPLICATION_ID = 0x54414C59  # "TALY", so that `file` recognises it
_PAGE_BYTES = 4096
# Per connection. Pages come from the memory map, so a larger cache does not help:
# random updates in 272 MB take 27 µs with 8 MiB and 29 µs with 64 MiB.
_CACHE_KIB = 8 * 1024
# Every commit invalidates the page cache of read connections, but not the memory map.
_MMAP_BYTES = 2**31 - 65536
BUSY_TIMEOUT_SECONDS = 10.0
_BUSY_POLL_SECONDS = 0.0005
_NO_SPACE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_CREATE_REGISTRY = """
CREATE TABLE IF NOT EXISTS tables (name TEXT PRIMARY KEY, declaration TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tokens (
    token TEXT PRIMARY KEY, fingerprint BLOB NOT NULL, used REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS tokens_used ON tokens (used);
CREATE TABLE IF NOT EXISTS generation (
    one INTEGER PRIMARY KEY CHECK (one = 1), value INTEGER NOT NULL
);
INSERT OR IGNORE INTO generation VALUES (1, 0);
"""


def prepare_database(directory: Path) -> Path:
    """Return the path of the database in the directory; create it if it does not exist."""
    path = _prepare_directory(directory)
    connection = connect(path)
    try:
        # An existing database is opened without a write, so this works on a full disk too.
        if connection.pragma("application_id") != _APPLICATION_ID:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
            connection.execute(_CREATE_REGISTRY + CREATE_EXPIRY_RANGES)
            connection.execute("COMMIT")
        elif connection.pragma("user_version") < FORMAT_VERSION:
            _upgrade(connection)
    except apsw.Error as error:
        raise to_store_error(error, path, connection.system_errno) from error
    finally:
        connection.close()
    return path


def _upgrade(connection: apsw.Connection) -> None:
    """Upgrade an older database, unless another process already did."""
    connection.execute("BEGIN IMMEDIATE")
    if connection.pragma("user_version") < 2:
        for (table,) in connection.execute("SELECT name FROM tables").fetchall():
            connection.execute(
                f'DROP INDEX IF EXISTS "expires {table}"; {create_expiry_index(str(table))}'
            )
    if connection.pragma("user_version") < FORMAT_VERSION:
        connection.execute(CREATE_EXPIRY_RANGES)
        connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
    connection.execute("COMMIT")


def connect(path: Path) -> apsw.Connection:
    """Open a connection: write-ahead log, fsync on every commit, no checkpoint during commits."""
    try:
        connection = apsw.Connection(str(path))
    except apsw.Error as error:
        raise to_store_error(error, path) from error
    try:
        connection.set_busy_handler(busy_handler(BUSY_TIMEOUT_SECONDS))
        connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        _check_format(connection, path)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        connection.execute(f"PRAGMA mmap_size = {_MMAP_BYTES}")
    except apsw.Error as error:
        failure = to_store_error(error, path, connection.system_errno)
        connection.close()
        raise failure from error
    except StoreError:
        connection.close()
        raise
    return connection


def file_identity(path: Path) -> tuple[int, int]:
    """Return device and inode; a different value means that the file was replaced."""
    try:
        found = path.stat()
    except OSError as error:
        raise StorageUnwritable(f"{path} does not exist: {error.strerror}") from error
    return found.st_dev, found.st_ino


def to_store_error(
    error: apsw.Error | UnicodeDecodeError, path: object, system_error: int = 0
) -> StoreError:
    """Map an error of SQLite.

    `system_error` is the operating system's error number, if there is one.
    """
    if isinstance(error, UnicodeDecodeError):  # a damaged row, with binary data marked as text
        return StorageUnwritable(f"{path} is damaged: {error}")
    if isinstance(error, apsw.FullError) or (
        isinstance(error, apsw.IOError) and system_error in _NO_SPACE_ERRORS
    ):
        return StorageFull(f"no space left for {path}: the write was not stored")
    if isinstance(error, apsw.ConnectionClosedError):
        return StoreUnavailable("the store is closed")
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StoreUnavailable(
            f"another process locked {path} for more than {BUSY_TIMEOUT_SECONDS:.0f} s"
        )
    if isinstance(
        error,
        apsw.ReadOnlyError
        | apsw.CantOpenError
        | apsw.PermissionsError
        | apsw.NotADBError
        | apsw.CorruptError,
    ):
        return StorageUnwritable(f"{path} cannot be used: {error}")
    return StoreUnavailable(f"{path}: {error}")


def _prepare_directory(directory: Path) -> Path:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StorageUnwritable(
            f"cannot create the data directory {directory}: {error.strerror}"
        ) from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise StorageUnwritable(f"the data directory {directory} is not writable")
    return directory / FILE_NAME


def _check_format(connection: apsw.Connection, path: Path) -> None:
    connection.execute("BEGIN")  # one snapshot: another process may be creating the database
    application, version = connection.pragma("application_id"), connection.pragma("user_version")
    empty = connection.execute("SELECT 1 FROM sqlite_schema").fetchone() is None
    connection.execute("COMMIT")
    if connection.readonly("main"):
        raise StorageUnwritable(f"{path} is not writable")
    if application != _APPLICATION_ID and not (application == version == 0 and empty):
        raise StorageUnwritable(f"{path} belongs to another program")
    if version > FORMAT_VERSION:
        raise StorageTooNew(
            f"{path} has format {version} of a newer Tally; this version supports {FORMAT_VERSION}"
        )


def busy_handler(seconds: float) -> Callable[[int], bool]:
    """Wait for another process's lock in short steps.

    SQLite's default sleeps up to 100 ms at a time.
    """
    started = 0.0

    def wait(attempt: int) -> bool:
        nonlocal started
        if attempt == 0:
            started = time.monotonic()
        time.sleep(_BUSY_POLL_SECONDS)
        return time.monotonic() - started < seconds

    return wait
