"""The backup file format: a tar archive that begins with a manifest and its checksum.

`manifest.json` lists all files with size, mode and SHA-256, and `manifest.sha256` is its checksum.
A truncated or damaged archive is detected before anything is restored. Standard tools can read the
archive.
"""

import hashlib
import io
import os
import shutil
import tarfile
from pathlib import Path, PurePosixPath
from typing import IO, Final

import msgspec

from tally.backup.errors import BackupFailed

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
CHECKSUM: Final = "manifest.sha256"
MAX_MANIFEST_BYTES: Final = 64 * 1024 * 1024
CHUNK_BYTES: Final = 1024 * 1024
OWNER_PERMISSIONS: Final = 0o700


class ArchiveEntry(msgspec.Struct, frozen=True):
    """A file in the archive: its relative path, and what it must be when restored."""

    name: str
    size: int
    mode: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """The content of an archive, and the version and time of its creation."""

    format: int
    version: str
    created: str
    entries: tuple[ArchiveEntry, ...]

    def entry(self, name: str) -> ArchiveEntry | None:
        return next((entry for entry in self.entries if entry.name == name), None)


def describe(directory: Path) -> tuple[ArchiveEntry, ...]:
    """Return the entries of all files in the directory, sorted by name."""
    files = sorted(
        path for path in directory.rglob("*") if path.is_file() and not path.is_symlink()
    )
    return tuple(_entry(directory, path) for path in files)


def _entry(directory: Path, path: Path) -> ArchiveEntry:
    status = path.stat()
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return ArchiveEntry(
        path.relative_to(directory).as_posix(),
        status.st_size,
        status.st_mode & OWNER_PERMISSIONS,
        digest,
    )


def write_archive(directory: Path, manifest: Manifest, target: Path) -> None:
    """Write the directory's files to `target`, private and flushed to disk."""
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
            encoded = msgspec.json.format(msgspec.json.encode(manifest))
            _add(tar, MANIFEST, io.BytesIO(encoded), len(encoded), 0o600)
            checksum = (hashlib.sha256(encoded).hexdigest() + "\n").encode()
            _add(tar, CHECKSUM, io.BytesIO(checksum), len(checksum), 0o600)
            for entry in manifest.entries:
                with (directory / entry.name).open("rb") as content:
                    _add(tar, entry.name, content, entry.size, entry.mode)
        file.flush()
        os.fsync(file.fileno())


def _add(tar: tarfile.TarFile, name: str, content: IO[bytes], size: int, mode: int) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, mode
    tar.addfile(member, content)


def read_archive(source: Path, directory: Path) -> Manifest:
    """Extract the archive into the directory and verify every file; raises BackupFailed."""
    try:
        with tarfile.open(source, mode="r:") as tar:
            manifest = _read_manifest(tar, source)
            for entry in manifest.entries:
                _extract(tar, entry, directory, source)
    except (tarfile.TarError, EOFError) as error:
        raise BackupFailed(f"{source} is not a Tally backup or is damaged: {error}") from error
    return manifest


def _read_manifest(tar: tarfile.TarFile, source: Path) -> Manifest:
    encoded, checksum = _read_small(tar, MANIFEST, source), _read_small(tar, CHECKSUM, source)
    if hashlib.sha256(encoded).hexdigest().encode() != checksum.strip():
        raise BackupFailed(f"{source} is damaged: the checksum of {MANIFEST} does not match")
    try:
        manifest = msgspec.json.decode(encoded, type=Manifest)
    except msgspec.DecodeError as error:
        raise BackupFailed(f"{source} has an invalid {MANIFEST}: {error}") from error
    if manifest.format > FORMAT:
        raise BackupFailed(
            f"{source} was created by Tally {manifest.version} in format {manifest.format};"
            f" this version supports format {FORMAT}"
        )
    return manifest


def _read_small(tar: tarfile.TarFile, name: str, source: Path) -> bytes:
    member = tar.next()
    content = (
        tar.extractfile(member)
        if member is not None and member.name == name and member.size <= MAX_MANIFEST_BYTES
        else None
    )
    if content is None:
        raise BackupFailed(
            f"{source} is not a Tally backup: it does not begin with {MANIFEST} and {CHECKSUM}"
        )
    return content.read()


def _extract(tar: tarfile.TarFile, entry: ArchiveEntry, directory: Path, source: Path) -> None:
    parts = PurePosixPath(entry.name).parts
    if not parts or entry.name.startswith("/") or ".." in parts:
        raise BackupFailed(f"{source} contains a path outside the data directory: {entry.name}")
    member = tar.next()
    content = tar.extractfile(member) if member is not None and member.name == entry.name else None
    if content is None:
        raise BackupFailed(f"{source} is truncated or damaged: {entry.name} is missing")
    target = directory / entry.name
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(
        target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, entry.mode & OWNER_PERMISSIONS
    )
    with os.fdopen(descriptor, "w+b") as file:
        try:
            shutil.copyfileobj(content, file, CHUNK_BYTES)
        except tarfile.TarError as error:
            raise BackupFailed(f"{source} is truncated: {entry.name} is incomplete") from error
        file.flush()
        os.fsync(file.fileno())
        file.seek(0)
        if hashlib.file_digest(file, "sha256").hexdigest() != entry.sha256:
            raise BackupFailed(f"{source} is damaged: the checksum of {entry.name} does not match")
