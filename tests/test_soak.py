"""`make soak` repeats the marked tests for the configured time, and no others."""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
SUITE = """
import pathlib
import hypothesis
import pytest

log = pathlib.Path(__file__).with_name("calls.txt")


def record(name):
    with log.open("a") as calls:
        calls.write(name + "\\n")


@pytest.mark.soak
def test_plain():
    record("plain")


@pytest.mark.soak
async def test_coroutine():
    record("coroutine")


@pytest.mark.soak
@hypothesis.given(hypothesis.strategies.integers())
@hypothesis.settings(max_examples=3)
def test_property(number):
    record("property")


def test_unmarked():
    record("unmarked")
"""


def run_suite(folder: Path, seconds: str) -> list[str]:
    """Run the suite with the project's conftest; return the name of each test called."""
    (folder / "test_suite.py").write_text(SUITE)
    options = ["-p", "tests.conftest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder)]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-p", "no:cacheprovider", folder],
        cwd=ROOT,
        env=os.environ | {"TALLY_SOAK_SECONDS": seconds},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "4 passed" in result.stdout, result.stdout + result.stderr
    return (folder / "calls.txt").read_text().split()


def test_a_marked_test_is_repeated_for_its_share_of_the_time(tmp_path: Path) -> None:
    """This applies to functions, coroutines and properties; an unmarked test runs once."""
    start = time.monotonic()
    calls = run_suite(tmp_path, "1.5")
    assert time.monotonic() - start >= 1.5
    assert calls.count("unmarked") == 1
    assert calls.count("plain") > 1
    assert calls.count("coroutine") > 1
    assert calls.count("property") > 3


def test_without_a_soak_every_test_runs_once(tmp_path: Path) -> None:
    calls = run_suite(tmp_path, "0")
    assert [calls.count(name) for name in ("plain", "coroutine", "unmarked")] == [1, 1, 1]
