"""The store's database: an online copy, a check of a restored file, and its new id."""

from pathlib import Path

import apsw

from tally.backup.errors import BackupFailed
from tally.store.sqlite.change_log import last_sequence
from tally.store.sqlite.checksums import load_checksum_vfs
from tally.store.sqlite.directory import DirectoryLease, check_directory, check_identity
from tally.store.sqlite.files import connect, to_store_error
from tally.store.sqlite.state import STORE_ID, read_state, renew_incarnation


def copy_store(source: Path, target: Path) -> None:
    """Copy one snapshot of the store's database into a single file and check its integrity.

    SQLite's backup API does this while writers continue.
    """
    lease = DirectoryLease(source.parent)
    try:
        check_directory(source, is_first=lease.is_first)
        lease.share()
        result = _copy(source, target)
    finally:
        lease.close()
    if result != ("ok",):
        reason = result[0] if result else "the integrity check returned no result"
        raise BackupFailed(f"{source} is damaged and cannot be backed up: {reason}")


def _copy(source: Path, target: Path) -> tuple[object, ...] | None:
    """Copy the database and return the result of the copy's integrity check."""
    reader = connect(source)
    try:
        writer = apsw.Connection(str(target))
        try:
            with writer.backup("main", reader, "main") as copy:
                copy.step(-1)
            writer.execute("PRAGMA journal_mode = DELETE")
            return writer.execute("PRAGMA quick_check(1)").fetchone()
        finally:
            writer.close()
    except apsw.Error as error:
        raise to_store_error(error, source, reader.system_errno) from error
    finally:
        reader.close()


def begin_incarnation(path: Path) -> None:
    """Give a restored database another id, so that it does not continue the old change log.

    Positions of the old database remain valid up to the backup. The id is also written next to the
    database, so that a loss before the first start is noticed.
    """
    try:
        connection = apsw.Connection(str(path), vfs=load_checksum_vfs())
        try:
            connection.execute("BEGIN IMMEDIATE")
            has_log = connection.table_exists(None, "changes")
            renew_incarnation(connection, last_sequence(connection) if has_log else 0)
            connection.execute("COMMIT")
            store_id = read_state(connection, STORE_ID)
        finally:
            connection.close()
    except apsw.Error as error:
        raise BackupFailed(f"{path.name} in the backup cannot be used: {error}") from error
    if store_id is not None:  # a database of an older version gets its id at the first start
        check_identity(path, store_id)


def check_store(path: Path) -> None:
    """Refuse a database with triggers, views or virtual tables: the store creates none."""
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            foreign = connection.execute(
                "SELECT name FROM sqlite_schema"
                " WHERE type NOT IN ('table', 'index') OR sql LIKE 'CREATE VIRTUAL%'"
            ).fetchall()
        finally:
            connection.close()
    except apsw.Error as error:
        raise BackupFailed(f"{path.name} in the backup is not a database: {error}") from error
    if foreign:
        raise BackupFailed(f"{path.name} in the backup has objects that Tally does not create")
