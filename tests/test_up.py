"""`tally up`, as a person starts it: what it tells, how it goes on after a stop and a kill, and that it leaves nothing behind."""

import json
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.test_cli import LONG_ENOUGH, free_port, read_until, started, tally

PEOPLE = "devices,collect,scoreboard"
# How many there are, and how many must have been heard of before it goes on: some boards are off
# for a while.
BOARDS, ENOUGH_BOARDS = 40, 25
PLAYERS, ENOUGH_PLAYERS = 20, 15
ATHLETES = 12
GRACE_SECONDS = 10

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Demo:
    """A running `tally up`, and what it printed until it was up."""

    program: "subprocess.Popen[str]"
    url: str
    data: Path
    told: str

    def ask(self, path: str, **headers: str) -> Any:
        request = urllib.request.Request(self.url + path, headers=headers)  # noqa: S310  (an address of this machine)
        with urllib.request.urlopen(request, timeout=LONG_ENOUGH) as answer:  # noqa: S310
            return json.load(answer)

    def boards(self) -> set[str]:
        """The boards that the server has heard of."""
        token = (self.data / "devices-admin.key").read_text(encoding="utf-8").strip()
        found = self.ask("/devices/devices?limit=100", Authorization=f"Bearer {token}")
        return {device["hardware_id"] for device in found["devices"]}

    def players(self) -> set[str]:
        return {
            row["user_id"]
            for row in self.ask("/scoreboard/api/v1/leaderboard?limit=100")["data"]["leaderboard"]
        }

    def athletes(self) -> set[int]:
        """Those whom the Strava of the demo knew when it was last stopped."""
        world = json.loads((self.data / "demo" / "strava.json").read_bytes())
        return {athlete["id"] for athlete in world["athletes"]}

    def stop(self, number: signal.Signals) -> None:
        """Ask it to stop, which it does by itself, in time, and without a word of trouble."""
        before = time.monotonic()
        self.program.send_signal(number)
        _, errors = self.program.communicate(timeout=LONG_ENOUGH)
        assert (self.program.returncode, errors) == (0, "")
        assert time.monotonic() - before < GRACE_SECONDS + LONG_ENOUGH / 2
        assert still_running(self.data) == []


def still_running(data: Path) -> list[str]:
    """The command lines that name the data directory: servers that were left behind."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = process.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it ended meanwhile
        if str(data) in line:
            found.append(line)
    return found


@contextmanager
def demo(folder: Path, *words: str, **variables: str) -> Iterator[Demo]:
    port = free_port()
    chosen = {
        "TALLY_BACKENDS": PEOPLE,
        "TALLY_LOG_LEVEL": "error",
        "TALLY_SCOREBOARD_BOARD_LIMIT": "1000000",
        **variables,
    }
    with started(folder, "up", "--port", str(port), *words, **chosen) as program:
        assert program.stdout is not None
        told = read_until(program.stdout, "Press Ctrl-C to stop")
        yield Demo(program, f"http://127.0.0.1:{port}", folder / "data", told)


def wait_for(look: Callable[[], set[Found]], count: int) -> set[Found]:
    """Look again until so many are there: they come one by one, and tell nobody."""
    deadline = time.monotonic() + LONG_ENOUGH
    while len(found := look()) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count}"
        time.sleep(
            0.1
        )  # the condition is the loop's; this keeps it from taking the processor that the people need
    return found


def expect_the_same_town(later: Demo, boards: set[str], players: set[str]) -> None:
    """Whoever was there is there, and nobody has come twice."""
    assert boards <= later.boards()
    assert players <= wait_for(later.players, len(players))
    assert len(later.boards()) <= BOARDS
    assert len(later.players()) <= PLAYERS


def test_a_second_start_goes_on_where_the_first_stopped_also_after_a_kill(tmp_path: Path) -> None:
    """The same boards, players and athletes, none twice; and each stop leaves nothing running."""
    with demo(tmp_path) as first:
        steps = re.findall(r"^(.+): \d+\.\d s$", first.told, re.MULTILINE)
        assert steps == [
            "Simulated external services",
            "Stores and servers for devices, collect, scoreboard",
        ]
        for words in (
            "Tally is up",
            "/console/",
            "Strava (simulated)",
            "devices-admin.key",
            str(first.data),
        ):
            assert words in first.told
        boards, players = (
            wait_for(first.boards, ENOUGH_BOARDS),
            wait_for(first.players, ENOUGH_PLAYERS),
        )
        first.stop(signal.SIGTERM)
    athletes = first.athletes()
    assert athletes
    with demo(tmp_path) as second:
        expect_the_same_town(second, boards, players)
        second.program.kill()
        second.program.communicate()
    with demo(tmp_path) as third:
        expect_the_same_town(third, boards, players)
        third.stop(signal.SIGINT)
    assert athletes <= third.athletes()
    assert len(third.athletes()) <= ATHLETES


def test_fresh_sets_the_old_data_aside(tmp_path: Path) -> None:
    """Nothing is lost: what was there is in a folder beside it, with its key."""
    with demo(tmp_path, "--no-sim", "--only", "devices") as first:
        first.stop(signal.SIGTERM)
        key = (first.data / "devices-admin.key").read_text(encoding="utf-8")
    with demo(tmp_path, "--no-sim", "--only", "devices", "--fresh") as second:
        [aside] = tmp_path.glob("data-*")
        assert f"to {aside}." in second.told
        assert (aside / "devices-admin.key").read_text(encoding="utf-8") == key
        assert (second.data / "devices-admin.key").read_text(encoding="utf-8") != key
        second.stop(signal.SIGTERM)


def test_without_simulators_there_is_the_server_alone(tmp_path: Path) -> None:
    with demo(tmp_path, "--no-sim", "--only", "devices") as alone:
        assert "simulated" not in alone.told
        assert alone.boards() == set()
        assert not (alone.data / "demo").exists()
        alone.stop(signal.SIGINT)


@pytest.mark.parametrize(
    "words", [("--only", "devices,cricket"), ("--only", "devices", "--only", "cricket")]
)
def test_only_the_backends_that_are_named_are_started(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    """Separated by commas, or one by one; the servers of others are not even made."""
    with demo(tmp_path, *words) as some:
        checks = some.ask("/openapi.json")["paths"]
        assert {path.split("/")[1] for path in checks} >= {"devices", "cricket"}
        assert not {path.split("/")[1] for path in checks} & {"collect", "scoreboard"}
        assert not (some.data / "postgres").exists()
        assert "SportMonks (simulated)" in some.told
        assert "Strava (simulated)" not in some.told
        some.stop(signal.SIGTERM)


def test_for_other_machines_too_the_demo_starts_with_a_password_before_its_console(
    tmp_path: Path,
) -> None:
    """As in a container, where it listens on every network."""
    with demo(tmp_path, "--host", "0.0.0.0", "--only", "collect") as shared:  # noqa: S104
        assert "Strava (simulated)" in shared.told
        assert (shared.data / "console.key").exists()
        shared.stop(signal.SIGTERM)


def test_a_backend_that_is_none_is_named(tmp_path: Path) -> None:
    done = tally(tmp_path, "up", "--only", "devices,chess")
    assert done.returncode == 2
    assert "TALLY_BACKENDS must be a comma-separated list of" in done.stderr
