"""Creates a backup of a data directory, whether or not the server runs."""

import asyncio
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tally import __version__
from tally.backup.archive import FORMAT, OWNER_PERMISSIONS, Manifest, describe, write_archive
from tally.backup.database import DUMP, copy_store, dump_postgres
from tally.backup.errors import BackupFailed, BackupRejected
from tally.kit import directory_lock
from tally.kit.clock import Clock
from tally.store.sqlite.files import FILE_NAME as STORE_FILE

# Marks the directory of an unfinished backup, so that the remains of a killed one are recognizable.
DRAFT_SUFFIX: Final = ".draft"
# Copied separately or not at all: the servers' directories, the store and the lock.
EXCLUDED_NAMES: Final = frozenset(
    {
        "postgres",
        "valkey",
        STORE_FILE,
        f"{STORE_FILE}-wal",
        f"{STORE_FILE}-shm",
        directory_lock.FILE_NAME,
    }
)


@dataclass(frozen=True, slots=True)
class Backup:
    """A complete backup on disk."""

    path: Path
    manifest: Manifest

    @property
    def size(self) -> int:
        return self.path.stat().st_size


async def create_backup(data_dir: Path, target: Path, clock: Clock) -> Backup:
    """Back up the data directory to the file `target`.

    If `target` is a directory, the file in it is named after the time.
    """
    now = clock.now()
    path = _resolve_target(data_dir, target, f"tally-{now:%Y%m%d-%H%M%S}.tar")
    draft = _create_draft(path)
    try:
        _copy_plain_files(data_dir, draft / "files")
        await _copy_databases(data_dir, draft / "files", clock)
        manifest = Manifest(
            FORMAT, __version__, now.isoformat(timespec="seconds"), describe(draft / "files")
        )
        await asyncio.to_thread(_finish, draft, manifest, path)
    except OSError as error:
        raise BackupFailed(f"Cannot write {path}: {error}") from error
    finally:
        shutil.rmtree(draft)
    return Backup(path, manifest)


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


def _copy_plain_files(data_dir: Path, files: Path) -> None:
    """Copy keys before the databases, so that every key the databases use is included."""
    files.mkdir(mode=0o700)
    for path in _plain_files(data_dir):
        copy = files / path.relative_to(data_dir)
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
        copy.chmod(path.stat().st_mode & OWNER_PERMISSIONS)


async def _copy_databases(data_dir: Path, files: Path, clock: Clock) -> None:
    if (data_dir / STORE_FILE).exists():
        await asyncio.to_thread(copy_store, data_dir / STORE_FILE, files / STORE_FILE)
        (files / STORE_FILE).chmod(0o600)
    if (data_dir / "postgres" / "cluster").exists():
        await dump_postgres(data_dir, files / DUMP, clock)
        (files / DUMP).chmod(0o600)


def _plain_files(data_dir: Path) -> Iterator[Path]:
    for top in sorted(data_dir.iterdir()):
        if top.name not in EXCLUDED_NAMES and not top.is_symlink():
            paths = sorted(top.rglob("*")) if top.is_dir() else [top]
            yield from (
                path
                for path in paths
                if path.is_file() and not path.is_symlink() and path.suffix != DRAFT_SUFFIX
            )


def _finish(draft: Path, manifest: Manifest, path: Path) -> None:
    """Write the archive in the draft directory and publish it under its name when complete."""
    archive = draft / path.name
    write_archive(draft / "files", manifest, archive)
    os.link(archive, path)  # unlike a rename, it never replaces an existing file
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Flush the directory's entries to disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
