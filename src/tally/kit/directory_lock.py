"""Who uses a data directory: every program that runs on it says so, with a lock that ends with the program.

    with shared_lock(data_dir): ...          # any number of programs at once
    if is_locked(data_dir): ...         # asked by whoever wants to move or replace the directory

The kernel lets go of the lock when its program ends, however it ends, so nothing stale is ever
found.
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
    """The directory counts as used while the block runs; where there is none, there is nothing to tell."""
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
    """Whether a program runs on the directory now."""
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
