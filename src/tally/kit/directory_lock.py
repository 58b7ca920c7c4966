"""Marks a data directory as in use with a lock that ends with the process.

    with shared_lock(data_dir): ...    # any number of processes
    if is_locked(data_dir): ...        # before the directory is moved or replaced
    with exclusive_lock(data_dir, "move.lock") as is_held: ...    # one process of a kind

The kernel releases the lock when the process ends, however it ends, so there are no stale locks.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tally.kit.durable_directory import create_directory

FILE_NAME: Final = "in-use.lock"


@contextmanager
def shared_lock(data_dir: Path) -> Iterator[None]:
    """Hold a shared lock inside the block; without a writable directory, do nothing."""
    if not data_dir.is_dir() or not os.access(data_dir, os.W_OK | os.X_OK):
        yield
        return
    descriptor = os.open(data_dir / FILE_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def exclusive_lock(data_dir: Path, name: str) -> Iterator[bool]:
    """Hold another lock of the directory inside the block; False if another process does."""
    create_directory(data_dir, 0o700)
    descriptor = os.open(data_dir / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield _try_lock(descriptor)
    finally:
        os.close(descriptor)


def is_locked(data_dir: Path, name: str = FILE_NAME) -> bool:
    """Return whether a process uses the directory, or holds another of its locks."""
    try:
        descriptor = os.open(data_dir / name, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        return not _try_lock(descriptor)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
