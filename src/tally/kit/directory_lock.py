"""Marks a data directory as in use with a lock that ends with the process.

    with shared_lock(data_dir): ...    # any number of processes
    if is_locked(data_dir): ...        # before the directory is moved or replaced

The kernel releases the lock when the process ends, however it ends, so there are no stale locks.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

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


def is_locked(data_dir: Path) -> bool:
    """Return whether a process uses the directory."""
    try:
        descriptor = os.open(data_dir / FILE_NAME, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
