"""Reads a random key from a file, which is created on first use and readable by its owner only.

Processes that start concurrently for the first time all get the same key.
"""

import os
import secrets
from pathlib import Path

from tally.kit.durable_directory import create_directory, sync_directory
from tally.settings import Secret, SettingsError


def read_or_create(path: Path, prefix: str = "") -> Secret:
    """Return the key in `path`, creating it if missing; raise SettingsError if that fails.

    The key starts with `prefix`.
    """
    try:
        if not path.exists():
            _create(path, prefix)
        key = path.read_text().strip()
    except OSError as error:
        raise SettingsError(
            [f"TALLY_DATA_DIR: cannot create or read {path}: {error.strerror}"]
        ) from error
    if len(key) < 32 or not key.startswith(prefix):
        raise SettingsError(
            [f"TALLY_DATA_DIR: {path} does not contain a key; delete the file to create a new one"]
        )
    return Secret(key)


def _create(path: Path, prefix: str) -> None:
    create_directory(path.parent, 0o700)
    # Linking a complete file into place is atomic and never overwrites an existing key.
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(prefix + secrets.token_hex(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
        sync_directory(path.parent)
    except FileExistsError:
        return  # another process created the key first
    finally:
        draft.unlink()
