"""Restores a data directory from a backup, completely or not at all.

The archive is checked before anything is written. Files are extracted, verified and loaded in a
draft directory next to the data directory, which is renamed when complete. A failed or killed
restore leaves the data directory unchanged.
"""

import asyncio
import errno
import shutil
import tempfile
from pathlib import Path
from typing import Final

from tally.backup.archive import UNSIGNED_FORMAT, Archive, Manifest, open_archive
from tally.backup.database import begin_incarnation, check_store
from tally.backup.dump import extract_dump
from tally.backup.errors import BackupFailed, BackupRejected
from tally.backup.members import DUMP, TABLES_DIRECTORY
from tally.backup.tables import check_table_members, copy_tables_in
from tally.embedded.postgres import open_postgres
from tally.kit import directory_lock
from tally.kit.clock import Clock
from tally.kit.durable_directory import create_directory, sync_directory
from tally.settings import Secret
from tally.store.sqlite.files import FILE_NAME as STORE_FILE

EXTRACTED: Final = "extracted"
SET_KEY: Final = (
    "Set TALLY_BACKUP_KEY to the content of backup.key in the data directory of the backup."
)


async def restore_backup(
    source: Path, data_dir: Path, clock: Clock, key: Secret | None = None, *, trust: bool = False
) -> Manifest:
    """Create the data directory from the backup; it must not exist or be empty.

    The backup must be signed with `key`, unless `trust` is set.
    """
    _check_preconditions(source, data_dir)
    with open_archive(source) as archive:
        _check_origin(archive, key, trust=trust)
        _check_tables(archive.manifest)
        draft = _create_draft(data_dir)
        try:
            await _build(archive, draft, clock)
            _publish(draft, data_dir)
        except OSError as error:
            raise BackupFailed(f"Cannot restore {data_dir}: {error}") from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)  # it no longer exists after a success
        return archive.manifest


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


def _check_origin(archive: Archive, key: Secret | None, *, trust: bool) -> None:
    """Require a signature of this installation; raises BackupRejected."""
    if trust or (key is not None and archive.is_signed_with(key)):
        return
    if archive.signature is None:
        problem = "is not signed."
    elif key is None:
        problem = f"is signed, and the key to verify it is missing. {SET_KEY}"
    else:
        problem = f"was changed, or was signed by another installation. {SET_KEY}"
    raise BackupRejected(
        f"{archive.source} {problem} If you know where the file comes from, restore it with"
        " --trust: the new data directory then has the keys, accounts and data of the file."
    )


def _check_tables(manifest: Manifest) -> None:
    names = {entry.name for entry in manifest.entries}
    tables = {name for name in names if name.startswith(f"{TABLES_DIRECTORY}/")}
    check_table_members(tables, manifest.schema_version)
    if DUMP in names and manifest.format != UNSIGNED_FORMAT:
        raise BackupFailed(f"The backup contains {DUMP}, which is not part of its format")


def _create_draft(data_dir: Path) -> Path:
    """Create a directory next to the data directory, on the same file system for the rename."""
    target = data_dir.resolve()
    try:
        create_directory(target.parent)
        return Path(tempfile.mkdtemp(prefix=f"{target.name}.restored-", dir=target.parent))
    except OSError as error:
        raise BackupRejected(f"Cannot create {data_dir}: {error.strerror}") from error


async def _build(archive: Archive, draft: Path, clock: Clock) -> None:
    """Extract the archive into the draft, and load PostgreSQL."""
    free = shutil.disk_usage(draft).free
    if archive.size > free:
        raise BackupFailed(f"The backup has {archive.size} bytes, and {free} bytes are free")
    files = draft / EXTRACTED
    files.mkdir(mode=0o700)
    await asyncio.to_thread(archive.extract, files)
    if (files / STORE_FILE).exists():
        check_store(files / STORE_FILE)
        await asyncio.to_thread(begin_incarnation, files / STORE_FILE)
    version = archive.manifest.schema_version
    if version or (files / DUMP).exists():
        async with open_postgres(draft, clock) as dsn:
            if not version:
                version = await extract_dump(dsn, files / DUMP, files)
            if version:
                await copy_tables_in(dsn, files, version, clock)
    (files / DUMP).unlink(missing_ok=True)
    shutil.rmtree(files / TABLES_DIRECTORY, ignore_errors=True)
    for path in files.iterdir():
        path.rename(draft / path.name)
    files.rmdir()


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
