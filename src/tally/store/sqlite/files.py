"""Opens the database file: its settings, its version, and SQLite's errors in the store's words."""

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
from tally.store.sqlite.layout import create_expiry

FILE_NAME = "store.db"
FORMAT_VERSION = (
    3  # 2: the index of what expires goes by the hour; 3: rows written together have a note instead
)
_APPLICATION_ID = 0x54414C59  # "TALY", so that `file` can tell what it is
_PAGE_BYTES = 4096
# Of each connection. Pages are read from the mapped file anyway: random updates in 272 MB cost 27
# µs with 8 MiB, 29 with 64.
_CACHE_KIB = 8 * 1024
_MMAP_BYTES = (
    2**31 - 65536
)  # a read connection's page cache is void after every commit; mapped pages are not
BUSY_TIMEOUT_SECONDS = 10.0
_BUSY_PAUSE = 0.0005
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_CATALOGUE = """
CREATE TABLE IF NOT EXISTS tables (name TEXT PRIMARY KEY, declaration TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tokens (token TEXT PRIMARY KEY, fingerprint BLOB NOT NULL, used REAL NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS tokens_used ON tokens (used);
CREATE TABLE IF NOT EXISTS generation (one INTEGER PRIMARY KEY CHECK (one = 1), value INTEGER NOT NULL);
INSERT OR IGNORE INTO generation VALUES (1, 0);
"""


def prepare_database(directory: Path) -> Path:
    """The path of the database in the directory, made and marked as ours where it is new."""
    path = _prepare_directory(directory)
    connection = connect(path)
    try:
        # One that is ours is opened without writing, so also on a full disk and beside a busy
        # process.
        if connection.pragma("application_id") != _APPLICATION_ID:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
            connection.execute(_CATALOGUE + CREATE_EXPIRY_RANGES)
            connection.execute("COMMIT")
        elif connection.pragma("user_version") < FORMAT_VERSION:
            _upgrade(connection)
    except apsw.Error as error:
        raise to_store_error(error, path, connection.system_errno) from error
    finally:
        connection.close()
    return path


def _upgrade(connection: apsw.Connection) -> None:
    """Bring a database of an older version to ours; another process may have been faster."""
    connection.execute("BEGIN IMMEDIATE")
    if connection.pragma("user_version") < 2:
        for (table,) in connection.execute("SELECT name FROM tables").fetchall():
            connection.execute(
                f'DROP INDEX IF EXISTS "expires {table}"; {create_expiry(str(table))}'
            )
    if connection.pragma("user_version") < FORMAT_VERSION:
        connection.execute(CREATE_EXPIRY_RANGES)
        connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
    connection.execute("COMMIT")


def connect(path: Path) -> apsw.Connection:
    """A connection with our settings: write-ahead log, fsync at every commit, no checkpoint on the commit path."""
    try:
        connection = apsw.Connection(str(path))
    except apsw.Error as error:
        raise to_store_error(error, path) from error
    try:
        connection.set_busy_handler(busy_handler(BUSY_TIMEOUT_SECONDS))
        connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        _check_ground(connection, path)
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
    """Which file is at the path: another one, or none, means that our own was taken away under us."""
    try:
        found = path.stat()
    except OSError as error:
        raise StorageUnwritable(f"{path} is gone: {error.strerror}") from error
    return found.st_dev, found.st_ino


def to_store_error(
    error: apsw.Error | UnicodeDecodeError, path: object, reason: int = 0
) -> StoreError:
    """SQLite's error in the store's words; `reason` is the system's error number, where there is one."""
    if isinstance(error, UnicodeDecodeError):  # a damaged row whose bytes are said to be text
        return StorageUnwritable(f"{path} is damaged: {error}")
    if isinstance(error, apsw.FullError) or (
        isinstance(error, apsw.IOError) and reason in _NO_SPACE
    ):
        return StorageFull(f"no space is left for {path}: nothing of this write was stored")
    if isinstance(error, apsw.ConnectionClosedError):
        return StoreUnavailable("the store is closed")
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StoreUnavailable(
            f"another process held {path} for more than {BUSY_TIMEOUT_SECONDS:.0f} s"
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
            f"the data directory {directory} cannot be made: {error.strerror}"
        ) from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise StorageUnwritable(f"the data directory {directory} cannot be written")
    return directory / FILE_NAME


def _check_ground(connection: apsw.Connection, path: Path) -> None:
    connection.execute("BEGIN")  # one moment: another process may be making the database just now
    application, version = connection.pragma("application_id"), connection.pragma("user_version")
    empty = connection.execute("SELECT 1 FROM sqlite_schema").fetchone() is None
    connection.execute("COMMIT")
    if connection.readonly("main"):
        raise StorageUnwritable(f"{path} cannot be written")
    if application != _APPLICATION_ID and not (application == version == 0 and empty):
        raise StorageUnwritable(f"{path} is a database of another program")
    if version > FORMAT_VERSION:
        raise StorageTooNew(
            f"{path} has format {version}, written by a newer Tally; this one knows {FORMAT_VERSION}"
        )


def busy_handler(seconds: float) -> Callable[[int], bool]:
    """Waits for another process's lock in short steps: SQLite's own waiting sleeps up to 100 ms at a time."""
    begun = 0.0

    def wait(attempt: int) -> bool:
        nonlocal begun
        if attempt == 0:
            begun = time.monotonic()
        time.sleep(_BUSY_PAUSE)
        return time.monotonic() - begun < seconds

    return wait
