"""The backup file format: a tar archive that begins with a manifest, its checksum and signature.

`manifest.json` lists all files with size, mode and SHA-256, `manifest.sha256` is its checksum, and
`manifest.signature` its HMAC-SHA256 with the backup key of the installation. Format 1 has no
signature. `open_archive` checks the whole list of members before anything is extracted: an archive
contains known regular files and nothing else. Standard tools can read the archive.
"""

import hashlib
import hmac
import io
import os
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import msgspec

from tally.backup.errors import BackupFailed
from tally.backup.members import max_member_bytes
from tally.settings import Secret

FORMAT: Final = 2
UNSIGNED_FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
CHECKSUM: Final = "manifest.sha256"
SIGNATURE: Final = "manifest.signature"
MAX_MANIFEST_BYTES: Final = 16 * 1024 * 1024
CHUNK_BYTES: Final = 1024 * 1024
PRIVATE_MODE: Final = 0o600


class ArchiveEntry(msgspec.Struct, frozen=True):
    """A file in the archive: its relative path, and what it must be when restored."""

    name: str
    size: int
    mode: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """The content of an archive, and the version and time of its creation.

    `schema_version` is the last migration of PostgreSQL; 0 if the archive has no tables of it.
    """

    format: int
    version: str
    created: str
    entries: tuple[ArchiveEntry, ...]
    schema_version: int = 0

    def entry(self, name: str) -> ArchiveEntry | None:
        return next((entry for entry in self.entries if entry.name == name), None)


def describe(directory: Path) -> tuple[ArchiveEntry, ...]:
    """Return the entries of all files in the directory, sorted by name."""
    files = sorted(
        path for path in directory.rglob("*") if path.is_file() and not path.is_symlink()
    )
    return tuple(_entry(directory, path) for path in files)


def _entry(directory: Path, path: Path) -> ArchiveEntry:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    name = path.relative_to(directory).as_posix()
    return ArchiveEntry(name, path.stat().st_size, PRIVATE_MODE, digest)


def write_archive(directory: Path, manifest: Manifest, target: Path, key: Secret) -> None:
    """Write the directory's files to `target`, signed, private and flushed to disk."""
    encoded = msgspec.json.format(msgspec.json.encode(manifest))
    headers = {MANIFEST: encoded, CHECKSUM: hashlib.sha256(encoded).hexdigest().encode() + b"\n"}
    if manifest.format != UNSIGNED_FORMAT:
        headers[SIGNATURE] = _sign(encoded, key) + b"\n"
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_MODE)
    with os.fdopen(descriptor, "wb") as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for name, header in headers.items():
                _add(tar, name, io.BytesIO(header), len(header))
            for entry in manifest.entries:
                with (directory / entry.name).open("rb") as content:
                    _add(tar, entry.name, content, entry.size)
        file.flush()
        os.fsync(file.fileno())


def _sign(manifest: bytes, key: Secret) -> bytes:
    return hmac.new(key.reveal().encode(), manifest, hashlib.sha256).hexdigest().encode()


def _add(tar: tarfile.TarFile, name: str, content: IO[bytes], size: int) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, PRIVATE_MODE
    tar.addfile(member, content)


@dataclass(frozen=True, slots=True)
class Archive:
    """An open archive whose list of members is valid."""

    source: Path
    tar: tarfile.TarFile
    manifest: Manifest
    encoded_manifest: bytes
    signature: bytes | None
    members: tuple[tarfile.TarInfo, ...]

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.manifest.entries)

    def is_signed_with(self, key: Secret) -> bool:
        return self.signature is not None and hmac.compare_digest(
            self.signature, _sign(self.encoded_manifest, key)
        )

    def extract(self, directory: Path) -> None:
        """Write the files into an empty directory and verify each; raises BackupFailed."""
        with explained_damage(self.source):
            for entry, member in zip(self.manifest.entries, self.members, strict=True):
                self._extract(entry, member, directory / entry.name)

    def _extract(self, entry: ArchiveEntry, member: tarfile.TarInfo, target: Path) -> None:
        content = self.tar.extractfile(member)
        assert content is not None, "the member is a regular file"  # noqa: S101
        target.parent.mkdir(mode=0o700, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(target, flags, PRIVATE_MODE), "w+b") as file:
            shutil.copyfileobj(content, file, CHUNK_BYTES)
            file.flush()
            os.fsync(file.fileno())
            file.seek(0)
            if hashlib.file_digest(file, "sha256").hexdigest() != entry.sha256:
                raise BackupFailed(
                    f"{self.source} is damaged: the checksum of {entry.name} does not match"
                )


class _BoundedFile(io.FileIO):
    """Refuses large reads: tarfile reads the headers of a hostile archive into memory."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= MAX_MANIFEST_BYTES:
            raise tarfile.ReadError("invalid size of a header")
        return super().read(size)


@contextmanager
def explained_damage(source: Path) -> Iterator[None]:
    """Raise BackupFailed for every error that a damaged or hostile archive causes."""
    try:
        yield
    except (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError) as error:
        raise BackupFailed(
            f"{source} is not a Tally backup, or is truncated or damaged: {error}"
        ) from error


@contextmanager
def open_archive(source: Path) -> Iterator[Archive]:
    """Open an archive and check its manifest and its list of members; raises BackupFailed."""
    with _BoundedFile(source) as file:
        with explained_damage(source):
            tar = tarfile.open(fileobj=file, mode="r:")  # noqa: SIM115  (closed below)
        with tar:
            with explained_damage(source):
                archive = _read_headers(tar, source)
            yield archive


def _read_headers(tar: tarfile.TarFile, source: Path) -> Archive:
    encoded, checksum = _read_small(tar, MANIFEST, source), _read_small(tar, CHECKSUM, source)
    if hashlib.sha256(encoded).hexdigest().encode() != checksum.strip():
        raise BackupFailed(f"{source} is damaged: the checksum of {MANIFEST} does not match")
    manifest = _decode_manifest(encoded, source)
    signature = None
    if manifest.format != UNSIGNED_FORMAT:
        signature = _read_small(tar, SIGNATURE, source).strip()
    members = tuple(_next_member(tar, entry, source) for entry in manifest.entries)
    if (extra := tar.next()) is not None:
        raise BackupFailed(
            f"{source} contains a file that its manifest does not list: {extra.name}"
        )
    return Archive(source, tar, manifest, encoded, signature, members)


def _decode_manifest(encoded: bytes, source: Path) -> Manifest:
    try:
        manifest = msgspec.json.decode(encoded, type=Manifest)
    except msgspec.DecodeError as error:
        raise BackupFailed(f"{source} has an invalid {MANIFEST}: {error}") from error
    if not UNSIGNED_FORMAT <= manifest.format <= FORMAT:
        raise BackupFailed(
            f"{source} was created by Tally {manifest.version} in format {manifest.format};"
            f" this version supports format {UNSIGNED_FORMAT} to {FORMAT}"
        )
    names = [entry.name for entry in manifest.entries]
    if len(set(names)) != len(names):
        raise BackupFailed(f"{source} contains a file twice")
    for entry in manifest.entries:
        limit = max_member_bytes(entry.name)
        if limit is None:
            raise BackupFailed(
                f"{source} contains a file that is not part of a backup: {entry.name}"
            )
        if not 0 <= entry.size <= limit:
            raise BackupFailed(f"{source}: {entry.name} must have at most {limit} bytes")
    return manifest


def _next_member(tar: tarfile.TarFile, entry: ArchiveEntry, source: Path) -> tarfile.TarInfo:
    member = tar.next()
    if member is None or member.name != entry.name:
        raise BackupFailed(f"{source} is truncated or damaged: {entry.name} is missing")
    if not _is_plain(member):
        raise BackupFailed(f"{source}: {entry.name} is not a regular file")
    if member.size != entry.size:
        raise BackupFailed(f"{source} is damaged: the size of {entry.name} does not match")
    return member


def _is_plain(member: tarfile.TarInfo) -> bool:
    return member.type in {tarfile.REGTYPE, tarfile.AREGTYPE} and not member.issparse()


def _read_small(tar: tarfile.TarFile, name: str, source: Path) -> bytes:
    member = tar.next()
    if (
        member is None
        or member.name != name
        or not _is_plain(member)
        or not 0 <= member.size <= MAX_MANIFEST_BYTES
        or (content := tar.extractfile(member)) is None
    ):
        raise BackupFailed(f"{source} is not a Tally backup or is damaged: {name} is missing")
    return content.read()
