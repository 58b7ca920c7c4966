"""Creates a backup of a data directory, whether or not the server runs."""

import asyncio
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tally import __version__
from tally.backup.archive import FORMAT, PRIVATE_MODE, Manifest, describe, write_archive
from tally.backup.database import copy_store
from tally.backup.errors import BackupFailed, BackupRejected
from tally.backup.members import DUMP, max_member_bytes
from tally.backup.tables import copy_tables_out
from tally.embedded.postgres import open_postgres
from tally.kit import directory_lock
from tally.kit.clock import Clock
from tally.kit.durable_directory import sync_directory
from tally.kit.keyfile import read_or_create
from tally.kit.log_file import FILE_NAME as LOG_FILE
from tally.kit.log_file import PREVIOUS_SUFFIX
from tally.settings import Secret
from tally.store.sqlite.directory import MARKER_NAME
from tally.store.sqlite.files import FILE_NAME as STORE_FILE

# Marks the directory of an unfinished backup, so that the remains of a killed one are recognizable.
DRAFT_SUFFIX: Final = ".draft"
KEY_FILE: Final = "backup.key"
# Copied separately or not at all: the servers' directories, the store, the lock and the console's
# sessions, so that a restore does not bring back a session that has ended.
EXCLUDED_NAMES: Final = frozenset(
    {
        "postgres",
        "valkey",
        "console",
        LOG_FILE,
        f"{LOG_FILE}{PREVIOUS_SUFFIX}",
        STORE_FILE,
        f"{STORE_FILE}-wal",
        f"{STORE_FILE}-shm",
        MARKER_NAME,
        directory_lock.FILE_NAME,
    }
)


@dataclass(frozen=True, slots=True)
class Backup:
    """A complete backup on disk, and the files of the data directory that it omits."""

    path: Path
    manifest: Manifest
    omitted: tuple[str, ...]

    @property
    def size(self) -> int:
        return self.path.stat().st_size


async def create_backup(
    data_dir: Path, target: Path, clock: Clock, key: Secret | None = None
) -> Backup:
    """Back up the data directory to the file `target`, signed with the key.

    If `target` is a directory, the file in it is named after the time. The default key is in the
    data directory; the first backup creates it.
    """
    now = clock.now()
    path = _resolve_target(data_dir, target, f"tally-{now:%Y%m%d-%H%M%S}.tar")
    key = key or read_or_create(data_dir / KEY_FILE)
    draft = _create_draft(path)
    files = draft / "files"
    try:
        omitted = _copy_plain_files(data_dir, files)
        version = await _copy_databases(data_dir, files, clock)
        created = now.isoformat(timespec="seconds")
        manifest = Manifest(FORMAT, __version__, created, describe(files), version)
        await asyncio.to_thread(_finish, draft, manifest, path, key)
    except OSError as error:
        raise BackupFailed(f"Cannot write {path}: {error}") from error
    finally:
        shutil.rmtree(draft)
    return Backup(path, manifest, omitted)


def _resolve_target(data_dir: Path, target: Path, name: str) -> Path:
    """Return the file to write; raises BackupRejected."""
    if not data_dir.is_dir() or not any(data_dir.iterdir()):
        raise BackupRejected(f"There is nothing to back up in {data_dir.resolve()}")
    path = target / name if target.is_dir() else target
    if path.exists():
        raise BackupRejected(f"{path} already exists")
    if path.resolve().is_relative_to(data_dir.resolve()):
        raise BackupRejected(f"{path} is inside the data directory; choose a path outside")
    return path


def _create_draft(path: Path) -> Path:
    draft = path.with_name(f"{path.name}.{os.getpid()}{DRAFT_SUFFIX}")
    try:
        draft.mkdir(mode=0o700)
    except OSError as error:
        raise BackupRejected(f"Cannot write {path}: {error.strerror}") from error
    return draft


def _copy_plain_files(data_dir: Path, files: Path) -> tuple[str, ...]:
    """Copy keys before the databases, so that every key the databases use is included.

    Returns the names of files that are not part of a backup.
    """
    files.mkdir(mode=0o700)
    omitted = []
    for path in _plain_files(data_dir):
        name = path.relative_to(data_dir).as_posix()
        limit = max_member_bytes(name)
        if limit is None or name == DUMP or path.is_symlink() or path.stat().st_size > limit:
            omitted.append(name)
            continue
        copy = files / name
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        copy.touch(mode=PRIVATE_MODE)
        shutil.copyfile(path, copy)
    return tuple(omitted)


async def _copy_databases(data_dir: Path, files: Path, clock: Clock) -> int:
    """Copy one snapshot of each database; return the version of PostgreSQL's schema."""
    if (data_dir / STORE_FILE).exists():
        (files / STORE_FILE).touch(mode=PRIVATE_MODE)
        await asyncio.to_thread(copy_store, data_dir / STORE_FILE, files / STORE_FILE)
    if not (data_dir / "postgres" / "cluster").exists():
        return 0
    async with open_postgres(data_dir, clock) as dsn:
        return await copy_tables_out(dsn, files)


def _plain_files(data_dir: Path) -> Iterator[Path]:
    for top in sorted(data_dir.iterdir()):
        if top.name not in EXCLUDED_NAMES:
            is_directory = top.is_dir() and not top.is_symlink()
            paths = sorted(top.rglob("*")) if is_directory else [top]
            yield from (path for path in paths if path.is_symlink() or not path.is_dir())


def _finish(draft: Path, manifest: Manifest, path: Path, key: Secret) -> None:
    """Write the archive in the draft directory and publish it under its name when complete."""
    archive = draft / path.name
    write_archive(draft / "files", manifest, archive, key)
    os.link(archive, path)  # unlike a rename, it never replaces an existing file
    sync_directory(path.parent)
