"""Every example runs to its end and prints what its docstring promises."""

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.test_cli import free_port, read_until, started

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
TIMEOUT_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Demo:
    """A running `tally up`: its URLs, and the directory that it was started in."""

    url: str
    issuer: str
    directory: Path


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    directory = tmp_path_factory.mktemp("demo")
    # Its log is not read, so it must stay short.
    settings = {"TALLY_BACKENDS": "cricket,devices,scoreboard", "TALLY_LOG_LEVEL": "error"}
    with started(directory, "up", "--port", "0", **settings) as program:
        assert program.stdout is not None
        output = read_until(program.stdout, "Press Ctrl-C")
        [url] = re.findall(r"(http://\S+)/health ", output)
        [issuer] = re.findall(r"Sign-in for cricket.*?(http://[\d.:]+)", output)
        yield Demo(url, issuer, directory)
        program.send_signal(signal.SIGTERM)
        assert program.wait(TIMEOUT_SECONDS) == 0


def run_example(name: str, *words: str, directory: Path) -> str:
    """Run an example to its end and return its output."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TALLY_")}
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *words],
        cwd=directory,
        env=ours,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_store_basics_continues_with_stored_data(tmp_path: Path) -> None:
    """Each run transfers 30 until the balance is too low; nothing is lost in between."""
    outputs = [run_example("store_basics.py", directory=tmp_path) for _ in range(4)]
    assert "'balance': 70" in outputs[0]
    assert "'balance': 130" in outputs[0]
    assert "ana has an account already" in outputs[1]
    assert "balance is too low" in outputs[3]
    assert "'balance': 190" in outputs[3]


def test_new_backend_serves_its_two_access_patterns(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with subprocess.Popen(
        [sys.executable, EXAMPLES / "new_backend.py", url, "data"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stderr is not None
            read_until(server.stderr, "Uvicorn running")
            for _ in range(2):
                visit = urllib.request.Request(f"{url}/visits/home", method="POST")  # noqa: S310  (the server of this test)
                with urllib.request.urlopen(visit) as response:  # noqa: S310
                    assert response.status == 201
            with urllib.request.urlopen(f"{url}/visits/home") as response:  # noqa: S310
                assert b'"total":2' in response.read()
        finally:
            server.terminate()


def test_device_client_stores_each_reading_once(demo: Demo) -> None:
    output = run_example("device_client.py", demo.url, directory=demo.directory)
    assert "registration: registered" in output
    assert "stored: 10" in output
    assert "duplicates: 10" in output


def test_leaderboard_client_earns_points(demo: Demo) -> None:
    output = run_example("leaderboard_client.py", demo.url, directory=demo.directory)
    assert "'score': 140" in output
    assert re.search(r"^ +1  \w+ +\d+$", output, re.MULTILINE)


def test_match_follower_shows_updates(demo: Demo) -> None:
    output = run_example("match_follower.py", demo.url, demo.issuer, "2", directory=demo.directory)
    following, *updates = output.splitlines()
    assert following.startswith("following ")
    assert len(updates) == 2


def test_every_example_is_listed_and_tested() -> None:
    programs = {path.name for path in EXAMPLES.glob("*.py")}
    listed = set(
        re.findall(r"^\| \[(\w+\.py)\]", (EXAMPLES / "README.md").read_text("utf-8"), re.MULTILINE)
    )
    tested = set(re.findall(r'"(\w+\.py)"', Path(__file__).read_text("utf-8")))
    assert programs == listed
    assert programs <= tested
