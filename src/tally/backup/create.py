"""Takes a back-up of a data directory, while the server runs or not."""

import asyncio
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tally import __version__
from tally.backup.archive import FORMAT, OWNER_BITS, Manifest, describe, write_archive
from tally.backup.database import DUMP, copy_store, dump_postgres
from tally.backup.errors import BackupFailed, BackupRejected
from tally.kit import directory_lock
from tally.kit.clock import Clock
from tally.store.sqlite.files import FILE_NAME as STORE_FILE

# What the folder of a back-up under way has in its name, so that one that was killed can be told
# from a back-up.
DRAFT_SUFFIX: Final = ".draft"
# Copied by their own means, or not at all: servers' folders, the store, locks.
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
    """A back-up that is on disk."""

    path: Path
    manifest: Manifest

    @property
    def size(self) -> int:
        return self.path.stat().st_size


async def create_backup(data_dir: Path, where: Path, clock: Clock) -> Backup:
    """Back up the data directory to the file `where`, or to a file named after the time if `where` is a folder."""
    now = clock.now()
    target = _target(data_dir, where, f"tally-{now:%Y%m%d-%H%M%S}.tar")
    draft = _make_draft(target)
    try:
        _copy_plain_files(data_dir, draft / "files")
        await _copy_databases(data_dir, draft / "files", clock)
        manifest = Manifest(
            FORMAT, __version__, now.isoformat(timespec="seconds"), describe(draft / "files")
        )
        await asyncio.to_thread(_finish, draft, manifest, target)
    except OSError as error:
        raise BackupFailed(f"{target} could not be written: {error}") from error
    finally:
        shutil.rmtree(draft)
    return Backup(target, manifest)


def _target(data_dir: Path, where: Path, name: str) -> Path:
    """The file to write, if there is something to write and nothing in the way."""
    if not data_dir.is_dir() or not any(data_dir.iterdir()):
        raise BackupRejected(f"There is nothing to back up in {data_dir.resolve()}")
    target = where / name if where.is_dir() else where
    if target.exists():
        raise BackupRejected(f"{target} is there already")
    if target.resolve().is_relative_to(data_dir.resolve()):
        raise BackupRejected(f"{target} is inside the data directory, which it is to outlive")
    return target


def _make_draft(target: Path) -> Path:
    draft = target.with_name(f"{target.name}.{os.getpid()}{DRAFT_SUFFIX}")
    try:
        draft.mkdir(mode=0o700)
    except OSError as error:
        raise BackupRejected(f"{target} cannot be written: {error.strerror}") from error
    return draft


def _copy_plain_files(data_dir: Path, files: Path) -> None:
    """Before the databases: whatever those were sealed or signed with is then among the keys."""
    files.mkdir(mode=0o700)
    for path in _plain_files(data_dir):
        copy = files / path.relative_to(data_dir)
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
        copy.chmod(path.stat().st_mode & OWNER_BITS)


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
            inside = sorted(top.rglob("*")) if top.is_dir() else [top]
            yield from (
                path
                for path in inside
                if path.is_file() and not path.is_symlink() and path.suffix != DRAFT_SUFFIX
            )


def _finish(draft: Path, manifest: Manifest, target: Path) -> None:
    """Write the file apart, and give it its name when it is whole."""
    whole = draft / target.name
    write_archive(draft / "files", manifest, whole)
    os.link(whole, target)  # unlike a rename, it never replaces a file that came meanwhile
    sync_directory(target.parent)


def sync_directory(directory: Path) -> None:
    """Have the names in a folder on disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
