"""Builds archives that `tally backup` would not write, with valid manifests and checksums."""

import hashlib
import io
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tally.backup.archive import CHECKSUM, MANIFEST, SIGNATURE, ArchiveEntry, Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgedMember:
    """A tar member, and what the manifest says about it; without `listed`, nothing."""

    name: str
    content: bytes = b"content"
    kind: bytes = tarfile.REGTYPE
    target: str = ""
    listed: bool = True

    def tar_info(self) -> tarfile.TarInfo:
        info = tarfile.TarInfo(self.name)
        info.type, info.linkname = self.kind, self.target
        info.size = len(self.content) if self.kind == tarfile.REGTYPE else 0
        return info

    def entry(self) -> ArchiveEntry:
        digest = hashlib.sha256(self.content).hexdigest()
        return ArchiveEntry(self.name, self.tar_info().size, 0o777, digest)


def forge(
    path: Path, members: Iterable[ForgedMember], *, version: int = 2, schema_version: int = 0
) -> Path:
    """Write an archive of the members, in order; from format 2 on, with an invalid signature."""
    members = tuple(members)
    entries = tuple(member.entry() for member in members if member.listed)
    forge_manifest(
        path, Manifest(version, "0.1.0", "2026-01-01T00:00:00+00:00", entries, schema_version)
    )
    with tarfile.open(path, "a") as tar:
        for member in members:
            tar.addfile(member.tar_info(), io.BytesIO(member.content))
    return path


def forge_manifest(path: Path, manifest: Manifest) -> None:
    """Write an archive that contains only a manifest, its checksum and an invalid signature."""
    encoded = msgspec.json.encode(manifest)
    with tarfile.open(path, "w") as tar:
        headers = {MANIFEST: encoded, CHECKSUM: hashlib.sha256(encoded).hexdigest().encode()}
        if manifest.format != 1:
            headers[SIGNATURE] = b"0" * 64
        for name, content in headers.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def append_raw(path: Path, *blocks: bytes) -> Path:
    """Replace the end of the archive with raw blocks."""
    with tarfile.open(path) as tar:
        end = max(info.offset_data + (info.size + 511) // 512 * 512 for info in tar.getmembers())
    path.write_bytes(path.read_bytes()[:end] + b"".join(blocks))
    return path


def raw_header(name: str, size: bytes, kind: bytes) -> bytes:
    """Return a tar header with any bytes as its size."""
    info = tarfile.TarInfo(name)
    info.type = kind
    header = bytearray(info.tobuf(tarfile.USTAR_FORMAT))
    header[124:136] = size.ljust(12, b"\0")
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    return bytes(header)
