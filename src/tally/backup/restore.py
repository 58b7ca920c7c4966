"""Makes a data directory of a back-up: all of it, or none.

Everything is unpacked, checked and loaded in a folder beside the data directory, which takes the
directory's name when it is whole. A restore that fails or is killed leaves the data directory as it
was.
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
    """Make the data directory from the back-up; there must be none yet, or an empty one."""
    _check(source, data_dir)
    draft = _make_draft(data_dir)
    try:
        manifest = await asyncio.to_thread(read_archive, source, draft)
        if manifest.entry(DUMP) is not None:
            await load_postgres(draft, draft / DUMP, clock)
            (draft / DUMP).unlink()
        _put_in_place(draft, data_dir)
    except OSError as error:
        raise BackupFailed(f"{data_dir} could not be restored: {error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)  # it has moved, if all went well
    return manifest


def _check(source: Path, data_dir: Path) -> None:
    if not source.is_file():
        raise BackupRejected(f"There is no back-up {source}")
    if directory_lock.is_locked(data_dir):
        raise BackupRejected(
            f"A program runs on {data_dir.resolve()}: stop it first, and move the directory out of the way"
        )
    if data_dir.exists() and not (data_dir.is_dir() and not any(data_dir.iterdir())):
        raise BackupRejected(
            f"{data_dir.resolve()} is not empty: move it out of the way, or set TALLY_DATA_DIR to another place"
        )


def _make_draft(data_dir: Path) -> Path:
    """A folder beside the data directory, so that it can take its name in one step."""
    target = data_dir.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f"{target.name}.restored-", dir=target.parent))
    except OSError as error:
        raise BackupRejected(f"{data_dir} cannot be made: {error.strerror}") from error


def _put_in_place(draft: Path, data_dir: Path) -> None:
    """The kernel refuses it if somebody has put something into the directory meanwhile."""
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
                f"{data_dir} is the top of a disk and cannot be replaced: choose a directory in it"
            ) from error
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
            raise BackupFailed(
                f"{data_dir} is no longer empty: another program has begun to use it"
            ) from error
        raise
    sync_directory(target.parent)
