"""Restores a data directory from a backup, completely or not at all.

Files are extracted, verified and loaded in a draft directory next to the data directory, which is
renamed when complete. A failed or killed restore leaves the data directory unchanged.
"""

import asyncio
import errno
import shutil
import tempfile
from pathlib import Path

from tally.backup.archive import Manifest, read_archive
from tally.backup.create import sync_directory
from tally.backup.database import DUMP, load_postgres
from tally.backup.errors import BackupFailed, BackupRejected
from tally.kit import directory_lock
from tally.kit.clock import Clock


async def restore_backup(source: Path, data_dir: Path, clock: Clock) -> Manifest:
    """Create the data directory from the backup; it must not exist or be empty."""
    _check_preconditions(source, data_dir)
    draft = _create_draft(data_dir)
    try:
        manifest = await asyncio.to_thread(read_archive, source, draft)
        if manifest.entry(DUMP) is not None:
            await load_postgres(draft, draft / DUMP, clock)
            (draft / DUMP).unlink()
        _publish(draft, data_dir)
    except OSError as error:
        raise BackupFailed(f"Cannot restore {data_dir}: {error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)  # it no longer exists after a success
    return manifest


def _check_preconditions(source: Path, data_dir: Path) -> None:
    if not source.is_file():
        raise BackupRejected(f"Backup {source} does not exist")
    if directory_lock.is_locked(data_dir):
        raise BackupRejected(
            f"A program is running on {data_dir.resolve()}; stop it and move the directory"
        )
    if data_dir.exists() and not (data_dir.is_dir() and not any(data_dir.iterdir())):
        raise BackupRejected(
            f"{data_dir.resolve()} is not empty; move it, or set TALLY_DATA_DIR to another path"
        )


def _create_draft(data_dir: Path) -> Path:
    """Create a directory next to the data directory, on the same file system for the rename."""
    target = data_dir.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f"{target.name}.restored-", dir=target.parent))
    except OSError as error:
        raise BackupRejected(f"Cannot create {data_dir}: {error.strerror}") from error


def _publish(draft: Path, data_dir: Path) -> None:
    """Rename the draft; the kernel rejects it if the data directory is no longer empty."""
    target = data_dir.resolve()
    for directory in (
        draft,
        *(path for path in draft.rglob("*") if path.is_dir() and not path.is_symlink()),
    ):
        sync_directory(directory)
    try:
        draft.rename(target)
    except OSError as error:
        if error.errno in {errno.EBUSY, errno.EXDEV}:
            raise BackupFailed(
                f"{data_dir} is a mount point and cannot be replaced; choose a directory in it"
            ) from error
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
            raise BackupFailed(
                f"{data_dir} is no longer empty: another program uses it now"
            ) from error
        raise
    sync_directory(target.parent)
