"""Opens the database file, checks its format, and maps SQLite's errors to the store's."""

import errno
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import apsw

from tally.kit.durable_directory import create_directory
from tally.store.errors import (
    StorageDamaged,
    StorageFull,
    StorageTooNew,
    StorageUnwritable,
    StoreError,
    StoreUnavailable,
)
from tally.store.sqlite.change_log import CREATE_CHANGES
from tally.store.sqlite.checksums import (
    add_checksums,
    extended_result,
    has_checksums,
    load_checksum_vfs,
    reserve_checksums,
)
from tally.store.sqlite.directory import REMEDY, DirectoryLease, check_directory, check_identity
from tally.store.sqlite.expiry import CREATE_EXPIRY
from tally.store.sqlite.shapes import CREATE_SHAPES
from tally.store.sqlite.state import STORE_ID, create_store_id, read_state
from tally.store.sqlite.upgrade import upgrade

FILE_NAME = "store.db"
FORMAT_VERSION = 6
_APPLICATION_ID = 0x54414C59  # "TALY", so that `file` recognises it
PAGE_BYTES = 4096
# Per connection. Every commit of another connection invalidates it, and the operating system caches
# the file too. Pages are not memory-mapped: the checksum VFS verifies each page that it reads.
_CACHE_KIB = 8 * 1024
BUSY_TIMEOUT_SECONDS = 10.0
_BUSY_POLL_SECONDS = 0.0005
_DAMAGE_RESULTS = (apsw.SQLITE_IOERR_DATA, apsw.SQLITE_IOERR_CORRUPTFS)
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


@dataclass(frozen=True, slots=True)
class PreparedDatabase:
    """A database that exists and was checked; `is_unclean` if its last user did not close it."""

    path: Path
    lease: DirectoryLease
    is_unclean: bool


def prepare_database(directory: Path) -> PreparedDatabase:
    """Check the database in the directory, and create it if it does not exist.

    The caller closes the lease after its connections.
    """
    path = _prepare_directory(directory)
    lease = DirectoryLease(directory)
    try:
        is_unclean = check_directory(path, is_first=lease.is_first)
        _open_or_create(path)
        if lease.is_first:
            _ensure_checksums(path)
        lease.share()
    except BaseException:
        lease.close()
        raise
    return PreparedDatabase(path, lease, is_unclean)


def _open_or_create(path: Path) -> None:
    _create_private(path)
    connection = connect(path)
    try:
        # An existing database is opened without a write, so this works on a full disk too.
        if connection.pragma("application_id") != _APPLICATION_ID:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
            connection.execute(_CREATE_REGISTRY + CREATE_EXPIRY + CREATE_SHAPES + CREATE_CHANGES)
            create_store_id(connection)
            connection.execute("COMMIT")
        elif connection.pragma("user_version") < FORMAT_VERSION:
            upgrade(connection, FORMAT_VERSION)
        store_id = read_state(connection, STORE_ID) or _add_store_id(connection, path)
    except apsw.Error as error:
        raise to_store_error(error, path, connection.system_errno) from error
    finally:
        connection.close()
    if store_id is not None:
        check_identity(path, store_id)


def _ensure_checksums(path: Path) -> None:
    """Give the pages of an older database checksums; on a full disk, a later start does."""
    if has_checksums(path, PAGE_BYTES):
        return
    connection = connect(path)
    try:
        add_checksums(connection)
    except apsw.Error as error:
        failure = to_store_error(error, path, connection.system_errno)
        if not isinstance(failure, StorageFull):
            raise failure from error
    finally:
        connection.close()


def _add_store_id(connection: apsw.Connection, path: Path) -> str | None:
    """Give the database of an older version an id; on a full disk, a later start does."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        store_id = create_store_id(connection)
        connection.execute("COMMIT")
    except apsw.Error as error:
        failure = to_store_error(error, path, connection.system_errno)
        if not isinstance(failure, StorageFull):
            raise
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        return None
    return store_id


def connect(path: Path) -> apsw.Connection:
    """Open a connection: write-ahead log, fsync on every commit, no checkpoint during commits."""
    try:
        connection = apsw.Connection(str(path), vfs=load_checksum_vfs())
    except apsw.Error as error:
        raise to_store_error(error, path) from error
    try:
        connection.set_busy_handler(busy_handler(BUSY_TIMEOUT_SECONDS))
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        reserve_checksums(connection)
        _check_format(connection, path)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
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
        return storage_damaged(path, error)
    if isinstance(error, apsw.CorruptError | apsw.NotADBError) or (
        isinstance(error, apsw.IOError) and extended_result(error) in _DAMAGE_RESULTS
    ):
        return storage_damaged(path, error)
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
    if isinstance(error, apsw.ReadOnlyError | apsw.CantOpenError | apsw.PermissionsError):
        return StorageUnwritable(f"{path} cannot be used: {error}")
    return StoreUnavailable(f"{path}: {error}")


def storage_damaged(path: object, reason: object) -> StorageDamaged:
    """Return an error that names the damage and the remedy."""
    return StorageDamaged(f"{path} is damaged ({reason}): {REMEDY}")


def _prepare_directory(directory: Path) -> Path:
    try:
        create_directory(directory, 0o700)
    except OSError as error:
        raise StorageUnwritable(
            f"cannot create the data directory {directory}: {error.strerror}"
        ) from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise StorageUnwritable(f"the data directory {directory} is not writable")
    return directory / FILE_NAME


def _create_private(path: Path) -> None:
    """Create the file for its owner only; SQLite creates its log with the same mode.

    Never opens an existing file: closing it would release the locks of other connections.
    """
    with suppress(OSError):  # it exists, or SQLite reports the error when it opens the file
        path.touch(mode=0o600, exist_ok=False)


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
