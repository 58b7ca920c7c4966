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

from tests.needs import need_program
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


def run_task(name: str, demo: Demo) -> list[str]:
    """Run a task's script to its end and return the lines that it prints."""
    need_program("curl", "curl")
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TALLY_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [need_program("bash", "bash"), EXAMPLES / "tasks" / name],
        cwd=demo.directory,
        env=ours | {"PATH": path, "TALLY": demo.url, "ISSUER": demo.issuer},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_first_reading_is_stored(demo: Demo) -> None:
    status, _, sensors = run_task("first_reading.sh", demo)
    assert (status, sensors) == ("registered", "{'bme280_temp_c': 22.5}")


def test_the_first_match_is_followed(demo: Demo) -> None:
    lock_screen, event = run_task("first_match.sh", demo)
    assert lock_screen
    assert event == "event: display"


def test_the_first_alert_opens(demo: Demo) -> None:
    assert run_task("first_alert.sh", demo) == ["open", "acknowledged"]


@pytest.mark.judge
def test_the_first_backup_is_restored(demo: Demo) -> None:
    lines = run_task("first_backup.sh", demo)
    assert lines[-2].endswith("store.db is intact.")
    assert lines[-1] == "The operator's token is the same."


@pytest.mark.judge
def test_the_first_season_has_final_standings(demo: Demo) -> None:
    """A season lasts a minute."""
    assert "'score': 60" in run_task("first_season.sh", demo)[-1]


def test_every_task_is_listed_and_tested() -> None:
    scripts = {path.name for path in EXAMPLES.glob("tasks/*.sh")}
    page = (EXAMPLES / "README.md").read_text("utf-8")
    assert scripts == set(re.findall(r"^\| \[(\w+\.sh)\]\(tasks/", page, re.MULTILINE))
    assert scripts <= set(re.findall(r'"(\w+\.sh)"', Path(__file__).read_text("utf-8")))


def test_every_example_is_listed_and_tested() -> None:
    programs = {path.name for path in EXAMPLES.glob("*.py")}
    listed = set(
        re.findall(r"^\| \[(\w+\.py)\]", (EXAMPLES / "README.md").read_text("utf-8"), re.MULTILINE)
    )
    tested = set(re.findall(r'"(\w+\.py)"', Path(__file__).read_text("utf-8")))
    assert programs == listed
    assert programs <= tested
