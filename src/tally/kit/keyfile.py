"""A random key in a file: made at first start, readable by its owner alone, the same ever after.

Several processes may start for the first time at once; all of them end up with the same key.
"""

import os
import secrets
from pathlib import Path

from tally.settings import Secret, SettingsError


def read_or_create(path: Path) -> Secret:
    """The key in `path`, made there if there is none; a SettingsError says what is in the way."""
    try:
        if not path.exists():
            _make(path)
        key = path.read_text().strip()
    except OSError as error:
        raise SettingsError(
            [f"TALLY_DATA_DIR: {path} cannot be made or read: {error.strerror}"]
        ) from error
    if len(key) < 32:
        raise SettingsError(
            [f"TALLY_DATA_DIR: {path} holds no key; remove the file to have a new one made"]
        )
    return Secret(key)


def _make(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written apart and linked into place, so that nobody ever reads half a key or overwrites
    # another's.
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError:
        return  # another process was first: its key stands
    finally:
        draft.unlink()
