"""The data directory: who uses its database, and whether it has held one before.

The file `store.id` contains the id of the directory's database. If the database is then missing,
empty or another one, the directory is refused: an empty store would hide the loss.
"""

import fcntl
import os
import secrets
from pathlib import Path
from typing import Final

from tally.kit.durable_directory import sync_directory
from tally.store.errors import StorageDamaged, StorageUnwritable
from tally.store.sqlite.wal_check import WAL_SUFFIX, find_wal_damage

MARKER_NAME: Final = "store.id"
MIN_FILE_BYTES: Final = 512  # the smallest page of SQLite
REMEDY: Final = (
    "stop Tally, keep a copy of the data directory and restore a backup with `tally restore`;"
    " `tally store check` shows the extent"
)


class DirectoryLease:
    """A lock on the data directory while its database is open; the kernel ends it with the process.

    The first process to open the database, and only that one, may check what a crash left behind.
    """

    def __init__(self, directory: Path) -> None:
        self._descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.is_first = True
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.is_first = False
            self.share()

    def share(self) -> None:
        """Let other processes open the database."""
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def check_directory(path: Path, *, is_first: bool) -> bool:
    """Check the files before SQLite opens the database; return whether the last end was unclean.

    Raise StorageDamaged if the database is lost or its write-ahead log is damaged.
    """
    if _read_marker(path) is not None:
        _check_present(path)
    log = path.with_name(path.name + WAL_SUFFIX)
    # The last process to close the database removes the log.
    if not is_first or not log.exists() or not log.stat().st_size:
        return False
    damage = find_wal_damage(log)
    if damage is not None:
        where = f"frame {damage.frame}" if damage.frame else "its header"
        raise StorageDamaged(
            f"{log} is damaged at {where}, and at least {damage.transactions} later transactions"
            f" are intact: {REMEDY}; without a backup, `tally store cut-log` gives up everything"
            " after the damage"
        )
    return True


def check_identity(path: Path, store_id: str) -> None:
    """Compare the database with the marker; write the marker if there is none."""
    expected = _read_marker(path)
    if expected is None:
        _write_marker(path, store_id)
    elif expected != store_id:
        raise StorageDamaged(
            f"{path} is not the database of this data directory: its id is {store_id}, and"
            f" {MARKER_NAME} names {expected}; if you replaced the database on purpose, delete"
            f" {MARKER_NAME}"
        )


def _check_present(path: Path) -> None:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        size = -1
    except OSError as error:
        raise StorageUnwritable(f"{path} cannot be used: {error.strerror}") from error
    # SQLite takes a file of a few bytes for an empty database, and writes a new one over it.
    if size < MIN_FILE_BYTES:
        problem = "is missing" if size < 0 else f"has only {size} bytes" if size else "is empty"
        raise StorageDamaged(
            f"{path} {problem}, and the data directory held a database: {REMEDY};"
            " to begin with an empty store, move the data directory away"
        )


def _read_marker(path: Path) -> str | None:
    try:
        return path.with_name(MARKER_NAME).read_text(encoding="ascii").strip() or None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise StorageUnwritable(f"{path.with_name(MARKER_NAME)} cannot be read: {error}") from error


def _write_marker(path: Path, store_id: str) -> None:
    """Write the marker completely or not at all; the database already exists on the disk."""
    draft = path.with_name(f"{MARKER_NAME}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(store_id + "\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path.with_name(MARKER_NAME))
        sync_directory(path.parent)
    except OSError:
        draft.unlink(missing_ok=True)  # such as a full disk; the next start writes it
