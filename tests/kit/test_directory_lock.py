"""A data directory is locked while a process uses it, and no longer."""

import subprocess
import sys
from pathlib import Path

from tally.kit.directory_lock import is_locked, shared_lock

PROGRAM = """
import pathlib, sys
from tally.kit.directory_lock import shared_lock
with shared_lock(pathlib.Path(sys.argv[1])):
    print("in", flush=True)
    sys.stdin.read()
"""


def test_the_lock_is_shared_and_released(tmp_path: Path) -> None:
    with shared_lock(tmp_path):
        with shared_lock(tmp_path):
            assert is_locked(tmp_path)
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)


def test_a_killed_process_releases_the_lock(tmp_path: Path) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == b"in\n"
    assert is_locked(tmp_path)
    program.kill()
    program.communicate()
    assert not is_locked(tmp_path)


def test_a_missing_directory_is_not_locked(tmp_path: Path) -> None:
    """Neither is a file in its place."""
    (tmp_path / "file").write_text("")
    with shared_lock(tmp_path / "none"):
        assert not is_locked(tmp_path / "none")
    assert not is_locked(tmp_path / "file")
    assert not (tmp_path / "none").exists()
