"""A server's private directory, with its lock file, socket and log."""

import fcntl
import hashlib
import importlib.util
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from tally.errors import Unavailable
from tally.kit.durable_directory import create_directory

# The limit of a Unix socket address without its terminating zero: 107 bytes on Linux, 103 on macOS.
MAX_SOCKET_PATH_BYTES: Final = 103
MAX_LOG_BYTES: Final = 1_000_000
LAST_LINES: Final = 10


class EmbeddedServerError(Unavailable):
    """An embedded server cannot run; the message says why and what to do."""

    default_code = "server_failed"


def find_in_wheel(package: str, pattern: str) -> list[Path]:
    """Return the files of an installed package that match, without importing the package."""
    spec = importlib.util.find_spec(package)
    return sorted(Path(spec.origin).parent.glob(pattern)) if spec and spec.origin else []


def private_directory(path: Path) -> Path:
    """Create the directory if needed, accessible to its owner only, and return its real path."""
    try:
        create_directory(path, 0o700)
        path.chmod(0o700)
    except OSError as error:
        raise EmbeddedServerError(f"Cannot create {path}: {error.strerror}") from error
    return path.resolve()


def socket_directory(directory: Path, file_name: str) -> Path:
    """Return `directory`, or a short substitute if the socket's path would be too long."""
    if len(os.fsencode(directory / file_name)) <= MAX_SOCKET_PATH_BYTES:
        return directory
    digest = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    # Independent of TMPDIR, so that all programs on one data directory agree.
    short = Path("/tmp") / f"tally-{digest}"  # noqa: S108  (checked below)
    short.mkdir(exist_ok=True, mode=0o700)
    status = short.lstat()
    if (
        not stat.S_ISDIR(status.st_mode)
        or status.st_uid not in {os.geteuid(), directory.stat().st_uid}
        or status.st_mode & 0o077
    ):
        raise EmbeddedServerError(
            f"Cannot create a socket in {short}: other users own or can access it; remove it"
        )
    return short


def remove_socket_directory(directory: Path, sockets: Path) -> None:
    """Remove the short substitute, if there is one and it is empty."""
    if sockets != directory:
        with suppress(OSError):
            sockets.rmdir()


class DirectoryLock:
    """A file lock shared by the program and the server it starts.

    The server inherits the open file, so the lock is free only after both have ended. Whoever
    acquires it knows that no embedded server is left in the directory, not even one that is still
    shutting down after its program was killed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    @property
    def descriptor(self) -> int:
        assert self._descriptor is not None, "the lock is not acquired"  # noqa: S101
        return self._descriptor

    @property
    def is_acquired(self) -> bool:
        return self._descriptor is not None

    def try_acquire(self) -> bool:
        """Return whether this process has the lock now."""
        if self.is_acquired:
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
    """A server's log: a file of bounded size, its predecessor, and the last lines in memory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._previous = path.with_name(path.name + ".1")
        self.last_lines: list[str] = []

    def write(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip()
        self.last_lines = [*self.last_lines[1 - LAST_LINES :], text]
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, line)
            size = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        if size > MAX_LOG_BYTES:
            self._path.replace(self._previous)
