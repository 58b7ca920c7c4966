"""The file of a back-up: a tar that begins with `manifest.json`, the list of its files with size, mode and SHA-256.

`manifest.sha256` follows it, the checksum of the list itself. So a back-up that was cut short or
damaged anywhere is known as such before anything is made of it, and the usual tools can look
inside.
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
MANIFEST_BYTES: Final = 64 * 1024 * 1024
CHUNK_BYTES: Final = 1024 * 1024
OWNER_BITS: Final = 0o700


class ArchiveEntry(msgspec.Struct, frozen=True):
    """One file: its name within the back-up, and what it must be when it is read again."""

    name: str
    size: int
    mode: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """What a back-up holds, made by which version and when."""

    format: int
    version: str
    created: str
    entries: tuple[ArchiveEntry, ...]

    def entry(self, name: str) -> ArchiveEntry | None:
        return next((entry for entry in self.entries if entry.name == name), None)


def describe(directory: Path) -> tuple[ArchiveEntry, ...]:
    """The entries of all files in the folder, in the order of their names."""
    files = sorted(
        path for path in directory.rglob("*") if path.is_file() and not path.is_symlink()
    )
    return tuple(_entry(directory, path) for path in files)


def _entry(directory: Path, path: Path) -> ArchiveEntry:
    found = path.stat()
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return ArchiveEntry(
        path.relative_to(directory).as_posix(), found.st_size, found.st_mode & OWNER_BITS, digest
    )


def write_archive(directory: Path, manifest: Manifest, target: Path) -> None:
    """Write the folder's files to `target`, for its owner alone, on disk when this returns."""
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
            listed = msgspec.json.format(msgspec.json.encode(manifest))
            _add(tar, MANIFEST, io.BytesIO(listed), len(listed), 0o600)
            checksum = (hashlib.sha256(listed).hexdigest() + "\n").encode()
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
    """Unpack the back-up into the folder, each file checked; BackupFailed says what is wrong with it."""
    try:
        with tarfile.open(source, mode="r:") as tar:
            manifest = _read_manifest(tar, source)
            for entry in manifest.entries:
                _unpack(tar, entry, directory, source)
    except (tarfile.TarError, EOFError) as error:
        raise BackupFailed(f"{source} is no back-up of Tally, or a damaged one: {error}") from error
    return manifest


def _read_manifest(tar: tarfile.TarFile, source: Path) -> Manifest:
    listed, checksum = _read_small(tar, MANIFEST, source), _read_small(tar, CHECKSUM, source)
    if hashlib.sha256(listed).hexdigest().encode() != checksum.strip():
        raise BackupFailed(
            f"{source} is damaged: the list of its files does not have the checksum that it should"
        )
    try:
        manifest = msgspec.json.decode(listed, type=Manifest)
    except msgspec.DecodeError as error:
        raise BackupFailed(f"{source} has a list of files that cannot be read: {error}") from error
    if manifest.format > FORMAT:
        raise BackupFailed(
            f"{source} was made by Tally {manifest.version} in format {manifest.format}; this one knows {FORMAT}"
        )
    return manifest


def _read_small(tar: tarfile.TarFile, name: str, source: Path) -> bytes:
    member = tar.next()
    content = (
        tar.extractfile(member)
        if member is not None and member.name == name and member.size <= MANIFEST_BYTES
        else None
    )
    if content is None:
        raise BackupFailed(
            f"{source} is no back-up of Tally: it does not begin with {MANIFEST} and {CHECKSUM}"
        )
    return content.read()


def _unpack(tar: tarfile.TarFile, entry: ArchiveEntry, directory: Path, source: Path) -> None:
    parts = PurePosixPath(entry.name).parts
    if not parts or entry.name.startswith("/") or ".." in parts:
        raise BackupFailed(f"{source} names a file outside of itself: {entry.name}")
    member = tar.next()
    content = tar.extractfile(member) if member is not None and member.name == entry.name else None
    if content is None:
        raise BackupFailed(f"{source} is cut short or damaged: {entry.name} is missing")
    target = directory / entry.name
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(
        target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, entry.mode & OWNER_BITS
    )
    with os.fdopen(descriptor, "w+b") as file:
        try:
            shutil.copyfileobj(content, file, CHUNK_BYTES)
        except tarfile.TarError as error:
            raise BackupFailed(f"{source} is cut short: {entry.name} is not whole") from error
        file.flush()
        os.fsync(file.fileno())
        file.seek(0)
        if hashlib.file_digest(file, "sha256").hexdigest() != entry.sha256:
            raise BackupFailed(
                f"{source} is damaged: {entry.name} does not have the checksum that it should"
            )
