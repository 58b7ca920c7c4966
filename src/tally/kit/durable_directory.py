"""Creates directories, and makes the names in them survive a power failure.

A file's fsync covers its content, but not its name: the name is an entry of the directory.
"""

import os
from pathlib import Path


def create_directory(directory: Path, mode: int = 0o777) -> None:
    """Create the directory and its missing parents, and sync their names.

    Raises OSError, also if something else has one of the names. `mode` is not that of the parents.
    """
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.mkdir(mode, parents=True, exist_ok=True)
    for path in reversed(missing):
        sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Flush the directory's entries to disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
