"""Where a server lives: its folder, which is its owner's alone; the lock that says who runs it; its socket; and its log."""

import fcntl
import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from tally.errors import Unavailable

# What fits into the address of a Unix socket, with the zero at its end: 108 bytes on Linux, 104 on
# macOS.
MAX_SOCKET_PATH_BYTES: Final = 103
LOG_BYTES: Final = 1_000_000


class EmbeddedServerError(Unavailable):
    """A server that comes with Tally does not run; the message says why, and what to do."""

    default_code = "server_failed"


def private_directory(path: Path) -> Path:
    """The folder, made if need be, for its owner alone."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.chmod(0o700)
    except OSError as error:
        raise EmbeddedServerError(f"{path} cannot be made: {error.strerror}") from error
    return path.resolve()


def socket_directory(directory: Path, file_name: str) -> Path:
    """The folder for a socket called `file_name`: `folder`, or a short one in its stead if its name is too long for a socket."""
    if len(os.fsencode(directory / file_name)) <= MAX_SOCKET_PATH_BYTES:
        return directory
    digest = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    # Always the same place, whatever TMPDIR says, so that two programs on one data directory find
    # it.
    short = Path("/tmp") / f"tally-{digest}"  # noqa: S108  (it is made for us alone, and not used if somebody else made it)
    short.mkdir(exist_ok=True, mode=0o700)
    found, wanted = short.lstat(), directory.stat()
    if (
        not stat.S_ISDIR(found.st_mode)
        or found.st_uid not in {os.geteuid(), wanted.st_uid}
        or found.st_mode & 0o077
    ):
        raise EmbeddedServerError(f"{short} is needed for a socket, and belongs to somebody else")
    return short


def remove_socket_directory(directory: Path, sockets: Path) -> None:
    """Remove the short folder, if there was one and nobody else has a socket in it."""
    if sockets != directory:
        with suppress(OSError):
            sockets.rmdir()


class DirectoryLock:
    """A lock on a file, held by the program and by the server that it started, until both are gone.

    The server inherits the open file. So whoever gets the lock knows that no server of ours is left
    in the folder, be it one whose program was killed a moment ago and that is still writing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    @property
    def descriptor(self) -> int:
        assert self._descriptor is not None, "the lock is not held"  # noqa: S101
        return self._descriptor

    @property
    def is_held(self) -> bool:
        return self._descriptor is not None

    def take(self) -> bool:
        """Whether the lock is ours now."""
        if self.is_held:
            return True
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class RotatingLog:
    """What a server says, in a file of bounded size and one older than it; the last lines are also kept at hand."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._older = path.with_name(path.name + ".1")
        self.last_lines: list[str] = []

    def write(self, line: bytes) -> None:
        self.last_lines = [*self.last_lines[-9:], line.decode(errors="replace").rstrip()]
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, line)
            size = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        if size > LOG_BYTES:
            self._path.replace(self._older)
