"""Whether a data directory is in use is known for as long as a program runs on it, and not longer."""

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


def test_any_number_of_users_and_nobody_afterwards(tmp_path: Path) -> None:
    with shared_lock(tmp_path):
        with shared_lock(tmp_path):
            assert is_locked(tmp_path)
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)


def test_a_killed_program_is_no_user(tmp_path: Path) -> None:
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


def test_where_nothing_is_nobody_is(tmp_path: Path) -> None:
    """No directory, and a file in its place."""
    (tmp_path / "file").write_text("")
    with shared_lock(tmp_path / "none"):
        assert not is_locked(tmp_path / "none")
    assert not is_locked(tmp_path / "file")
    assert not (tmp_path / "none").exists()
