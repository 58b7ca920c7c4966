"""Keeps a data directory private to the user that runs Tally.

Directories are 0700 and files 0600. The command line sets the umask, so that libraries create
private files too; `secure_data_directory` repairs what older versions or other programs created.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tally.kit import logs
from tally.settings import SettingsError

_log = logs.logger()

# The one directory that another user may own: if root cannot create user namespaces, PostgreSQL
# runs as nobody, who needs to pass through the data directory.
POSTGRES_DIRECTORY: Final = "postgres"


def secure_data_directory(data_dir: Path) -> None:
    """Repair the modes in the directory, if it exists; raises SettingsError.

    Another user who owns the directory, or a file in it, could read or replace keys.
    """
    if not data_dir.is_dir():
        return
    try:
        repaired = sum(_secure(path, data_dir) for path in _walk(data_dir))
    except OSError as error:
        raise SettingsError(
            [f"TALLY_DATA_DIR: cannot make {error.filename} private: {error.strerror}"]
        ) from error
    if repaired:
        _log.warning(
            "Data directory permissions repaired",
            action="data_directory_repaired",
            directory=str(data_dir),
            files=repaired,
        )


def _walk(data_dir: Path) -> Iterator[Path]:
    """Yield the directory, then its content; each directory before what it contains."""
    yield data_dir
    for directory, directories, files in os.walk(data_dir, onerror=_raise_unless_missing):
        yield from (Path(directory, name) for name in (*directories, *files))


def _raise_unless_missing(error: OSError) -> None:
    """Ignore what a running instance has just deleted."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def _secure(path: Path, data_dir: Path) -> bool:
    """Return whether the mode had to be repaired."""
    try:
        status = path.stat() if path == data_dir else path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    _check_owner(path, status, data_dir)
    if stat.S_ISLNK(status.st_mode):
        return False
    mode = _expected_mode(path, status, data_dir)
    if stat.S_IMODE(status.st_mode) == mode:
        return False
    try:
        path.chmod(mode)
    except FileNotFoundError:
        return False
    return True


def _expected_mode(path: Path, status: os.stat_result, data_dir: Path) -> int:
    if not stat.S_ISDIR(status.st_mode):
        return 0o600
    postgres = path / POSTGRES_DIRECTORY
    if path == data_dir and postgres.is_dir() and postgres.stat().st_uid != status.st_uid:
        return 0o711
    return 0o700


def _check_owner(path: Path, status: os.stat_result, data_dir: Path) -> None:
    user = os.geteuid()
    is_postgres = path.relative_to(data_dir).parts[:1] == (POSTGRES_DIRECTORY,)
    if status.st_uid == user or (user == 0 and is_postgres):
        return
    problem = (
        f"TALLY_DATA_DIR: {path} belongs to another user ({status.st_uid}); run Tally as that"
        f" user (sudo -u '#{status.st_uid}' tally …), or change the owner with chown"
    )
    raise SettingsError([problem])
