"""`tally up` as a user runs it: output, restarts after a stop or kill, and clean-up."""

import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tally import settings
from tests.test_cli import (
    PROGRAM,
    TIMEOUT_SECONDS,
    environment,
    free_port,
    read_until,
    started,
    tally,
)

BACKENDS = "devices,collect,scoreboard"
# Totals, and how many must have appeared before the test continues: some devices are offline at
# times.
BOARDS, ENOUGH_BOARDS = 40, 25
PLAYERS, ENOUGH_PLAYERS = 20, 15
ATHLETES = 12
GRACE_SECONDS = 10

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Demo:
    """A running `tally up` and its output until it was ready."""

    program: "subprocess.Popen[str]"
    url: str
    data: Path
    output: str

    def get(self, path: str, **headers: str) -> Any:
        request = urllib.request.Request(self.url + path, headers=headers)  # noqa: S310  (an address of this machine)
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310
            return json.load(response)

    def boards(self) -> set[str]:
        """Return the devices that the server knows."""
        token = (self.data / "operator.token").read_text(encoding="utf-8").strip()
        found = self.get("/devices/devices?limit=100", Authorization=f"Bearer {token}")
        return {device["hardware_id"] for device in found["items"]}

    def players(self) -> set[str]:
        return {
            row["user_id"] for row in self.get("/scoreboard/api/v1/leaderboard?limit=100")["items"]
        }

    def events(self) -> set[int]:
        """Return the numbers of the Strava events that the server has processed, from 0."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=TIMEOUT_SECONDS) as response:  # noqa: S310
            metrics = response.read().decode()
        count = re.search(r"^tally_collect_event_lag_seconds_count (\d+)", metrics, re.MULTILINE)
        return set(range(int(count[1]) if count else 0))

    def athletes(self) -> set[int]:
        """Return the athletes that the simulated Strava had at its last stop."""
        world = json.loads((self.data / "demo" / "strava.json").read_bytes())
        return {athlete["id"] for athlete in world["athletes"]}

    def stop(self, number: signal.Signals) -> None:
        """Stop the program; check that it ends in time without errors or leftover processes."""
        before = time.monotonic()
        self.program.send_signal(number)
        _, errors = self.program.communicate(timeout=TIMEOUT_SECONDS)
        assert (self.program.returncode, errors) == (0, "")
        assert time.monotonic() - before < GRACE_SECONDS + TIMEOUT_SECONDS / 2
        assert still_running(self.data) == []


def still_running(data: Path) -> list[str]:
    """Return the command lines that name the data directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = process.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # the process has ended
        if str(data) in line:
            found.append(line)
    return found


@contextmanager
def demo(folder: Path, *words: str, **variables: str) -> Iterator[Demo]:
    port = free_port()
    chosen = {
        "TALLY_BACKENDS": BACKENDS,
        "TALLY_LOG_LEVEL": "error",
        "TALLY_SCOREBOARD_BOARD_LIMIT": "1000000",
        **variables,
    }
    with started(folder, "up", "--port", str(port), *words, **chosen) as program:
        assert program.stdout is not None
        output = read_until(program.stdout, "Press Ctrl-C to stop")
        yield Demo(program, f"http://127.0.0.1:{port}", folder / "data", output)


def wait_for(read: Callable[[], set[Found]], count: int) -> set[Found]:
    """Poll until `count` elements exist; they appear one by one."""
    deadline = time.monotonic() + 2 * TIMEOUT_SECONDS
    while len(found := read()) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count}"
        time.sleep(0.1)  # leaves the CPU to the demo clients
    return found


def expect_the_same_data(later: Demo, boards: set[str], players: set[str]) -> None:
    """Check that all earlier devices and players exist, without duplicates."""
    assert boards <= later.boards()
    assert players <= wait_for(later.players, len(players))
    assert len(later.boards()) <= BOARDS
    assert len(later.players()) <= PLAYERS


@pytest.mark.judge
def test_a_restart_continues_after_a_stop_and_after_a_kill(tmp_path: Path) -> None:
    """Devices, players and athletes are the same, and no process is left behind."""
    with demo(tmp_path) as first:
        steps = re.findall(r"^(.+): \d+\.\d s$", first.output, re.MULTILINE)
        assert steps == [
            "Simulated external services",
            "Stores and servers for devices, collect, scoreboard",
        ]
        for words in (
            "Tally is up",
            "/console/",
            f"{first.url}/console/login?code=",
            "Strava (simulated)",
            "operator.token",
            str(first.data),
        ):
            assert words in first.output
        boards, players = (
            wait_for(first.boards, ENOUGH_BOARDS),
            wait_for(first.players, ENOUGH_PLAYERS),
        )
        wait_for(first.events, 1)
        first.stop(signal.SIGTERM)
    athletes = first.athletes()
    assert athletes
    with demo(tmp_path) as second:
        expect_the_same_data(second, boards, players)
        second.program.kill()
        second.program.communicate()
    with demo(tmp_path) as third:
        expect_the_same_data(third, boards, players)
        third.stop(signal.SIGINT)
    assert athletes <= third.athletes()
    assert len(third.athletes()) <= ATHLETES


def backends_of(demo: Demo) -> set[str]:
    first_parts = {path.split("/")[1] for path in demo.get("/openapi.json")["paths"]}
    return first_parts & set(settings.BACKENDS)


def test_fresh_archives_the_old_data(tmp_path: Path) -> None:
    """The old data is in a directory next to it, with its key; without simulators, it is empty."""
    with demo(tmp_path, "--no-sim", "--only", "devices,cricket") as first:
        assert "simulated" not in first.output
        assert first.boards() == set()
        assert not (first.data / "demo").exists()
        assert backends_of(first) == {"devices", "cricket"}
        first.stop(signal.SIGINT)
        key = (first.data / "operator.token").read_text(encoding="utf-8")
    with demo(tmp_path, "--no-sim", "--only", "devices", "--fresh") as second:
        [archive] = tmp_path.glob("data-*")
        assert f"to {archive}." in second.output
        assert (archive / "operator.token").read_text(encoding="utf-8") == key
        assert (second.data / "operator.token").read_text(encoding="utf-8") != key
        second.stop(signal.SIGTERM)


def test_only_the_named_backends_are_started(tmp_path: Path) -> None:
    """The option may be repeated; servers of other backends are not created."""
    with demo(tmp_path, "--only", "devices", "--only", "cricket") as some:
        assert backends_of(some) == {"devices", "cricket"}
        assert not (some.data / "postgres").exists()
        assert "SportMonks (simulated)" in some.output
        assert "Strava (simulated)" not in some.output
        some.stop(signal.SIGTERM)


def test_on_a_public_address_no_link_signs_in_to_the_console(
    tmp_path: Path,
) -> None:
    """As in a container, where it listens on all interfaces and others read the output."""
    with demo(tmp_path, "--host", "0.0.0.0", "--only", "collect") as shared:  # noqa: S104
        assert "Strava (simulated)" in shared.output
        assert "/console/login?code=" not in shared.output
        shared.stop(signal.SIGTERM)


def test_an_unknown_backend_is_reported(tmp_path: Path) -> None:
    done = tally(tmp_path, "up", "--only", "devices,chess")
    assert done.returncode == 2
    assert "TALLY_BACKENDS must be a comma-separated list of" in done.stderr


def test_on_a_terminal_the_logs_are_in_a_file_below_a_status_line(tmp_path: Path) -> None:
    """The table of URLs stays readable; the test uses a pseudo-terminal."""
    ours, theirs = os.openpty()
    words = ("up", "--no-sim", "--only", "devices", "--port", str(free_port()))
    program = subprocess.Popen(
        [*PROGRAM, *words],
        env=environment(tmp_path, TERM="xterm", TALLY_BACKENDS="devices"),
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    log, output = tmp_path / "data" / "tally.log", b""
    try:
        while b"requests; logs: " not in output:
            output += os.read(ours, 65_536)
    finally:
        program.send_signal(signal.SIGINT)
        with suppress(OSError):  # the program closed the terminal
            while chunk := os.read(ours, 65_536):
                output += chunk
        os.close(ours)
    assert program.wait(TIMEOUT_SECONDS) == 0
    assert "Tally is up" in output.decode()
    assert log.stat().st_mode & 0o777 == 0o600
    assert '"action":' not in output.decode()
