"""A fleet of virtual boards on a real socket, and the command that runs one."""

import asyncio
import json
import random
import re
import signal
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tally.cli import cli
from tally.errors import Invalid
from tally.kit.clock import SystemClock
from tally.kit.retry import RetryPolicy
from tally.settings import Secret
from tally.sim.boards.command import board_rows
from tally.sim.boards.devices_client import BoardStats
from tally.sim.boards.fleet import BoardBehaviour, BoardFleet
from tally.sim.command_line import stats_line
from tally.sim.fault_injection import InjectedFault
from tally.sim.http_client import backend_url
from tests.sim.greenhouse import Greenhouse, greenhouse
from tests.test_cli import TIMEOUT_SECONDS, read_until, started, tally

DATA = "/devices/data"
SOON = RetryPolicy(attempts=3, base=0.01, cap=0.05, deadline=5)
LIVELY = BoardBehaviour(
    interval=0.03,
    offline_probability=0.1,
    offline_windows=(1, 5),
    restart_probability=0.05,
    retry_policy=SOON,
    shutdown_seconds=30,
)


@pytest.fixture(scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Greenhouse]:
    async with greenhouse(
        tmp_path_factory.mktemp("greenhouse"), devices_rate_limit=1_000_000
    ) as house:
        yield house


def fleet_in(house: Greenhouse, behaviour: BoardBehaviour = LIVELY, **more: object) -> BoardFleet:
    """A fleet on real time: a fleet does not wait for a test's clock."""
    clock = SystemClock()
    return BoardFleet(house.uplink(clock=clock, **more), clock, random.Random(5), behaviour)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not condition():  # noqa: ASYNC110 - figures tell nobody that they changed
            await asyncio.sleep(0.01)


async def test_every_reading_of_a_fleet_is_stored_once(house: Greenhouse) -> None:
    """Though boards go offline, restart, and meet a server that drops, refuses and forgets to answer."""
    house.faults.clear()
    for fault in (
        InjectedFault(path=DATA, drop="after", times=5),
        InjectedFault(path=DATA, drop="before", times=5),
        InjectedFault(path="/devices/", status=503, times=10),
        InjectedFault(path=DATA, status=429, body="{}", times=3),
    ):
        house.faults.add(fault)
    fleet = fleet_in(house)
    async with fleet.running(15):
        await until(lambda: fleet.stats.acknowledged > 400 and not house.faults.pending)
    assert fleet.stats.duplicates > 0
    assert len({board.hardware_id for board in fleet.boards}) == 15
    for board in fleet.boards:
        stored = await house.stored(board)
        assert (
            len(stored)
            == len({reading.batch_id for reading in stored})
            >= board.measured_count - len(board.buffer)
        )
        waiting = {each.reading.batch_id for each in board.buffer}
        assert len(waiting | {reading.batch_id for reading in stored}) == board.measured_count
    assert fleet.measured_count > 400
    assert all(board.hardware_id in fleet.offline for board in fleet.boards if board.buffer)


async def test_a_backlog_goes_out_in_hundreds(house: Greenhouse) -> None:
    house.faults.clear()
    fleet = fleet_in(
        house,
        BoardBehaviour(
            interval=0.01,
            backlog=250,
            offline_probability=0,
            restart_probability=0,
            shutdown_seconds=30,
        ),
    )
    async with fleet.running(2):
        await until(lambda: fleet.stats.acknowledged >= 500)
    assert fleet.stats.requests <= 2 + fleet.measured_count - 500 + 6
    assert fleet.buffered_count == 0


async def test_measuring_goes_on_while_the_server_is_away(house: Greenhouse) -> None:
    house.faults.clear()
    house.faults.add(InjectedFault(status=503, times=None))
    fleet = fleet_in(house)
    async with fleet.running(5):
        await until(lambda: fleet.measured_count >= 50)
        assert fleet.buffered_count == fleet.measured_count
        assert fleet.stats.failures > 0
        house.faults.clear()
    assert fleet.stats.acknowledged > 0


async def test_a_fleet_whose_key_is_refused_says_so(house: Greenhouse) -> None:
    house.faults.clear()
    fleet = fleet_in(house, api_key=Secret("0" * 64))
    async with fleet.running(2):
        await asyncio.wait_for(fleet.rejected.wait(), TIMEOUT_SECONDS)
    assert "INVALID_API_KEY" in fleet.stats.last_error
    assert fleet.buffered_count == fleet.measured_count > 0


async def test_no_more_requests_than_wanted_are_sent(house: Greenhouse) -> None:
    house.faults.clear()
    before = len(house.faults.requests)
    fleet = fleet_in(house, max_requests=25)
    async with fleet.running(5):
        await asyncio.wait_for(fleet.devices.exhausted.wait(), TIMEOUT_SECONDS)
    assert fleet.stats.requests == 25
    # Requests that were under way when the fleet stopped may not have come that far.
    assert 20 <= len(house.faults.requests) - before <= 25


async def test_the_same_seed_makes_the_same_boards(house: Greenhouse) -> None:
    fleets = [fleet_in(house) for _ in range(2)]
    first, second = ([fleet._new_board() for _ in range(3)] for fleet in fleets)
    assert [board.hardware_id for board in first] == [board.hardware_id for board in second]
    assert [board.boot_id for board in first] == [board.boot_id for board in second]


def test_the_display_has_the_figures(house: Greenhouse) -> None:
    fleet = fleet_in(house)
    fleet.boards.append(house.board())
    fleet.boards[0].measure()
    stats = fleet.stats
    stats.sent, stats.requests, stats.acknowledged, stats.duplicates = 4000, 41, 3000, 7
    stats.latencies.extend(number / 1000 for number in range(1, 101))
    rows = dict(board_rows(fleet, 10))
    assert rows["Acknowledged"] == "3,000 (300.0 per second)"
    assert rows["Sent"].startswith("4,000 in 41 requests")
    assert (rows["Duplicates"], rows["Buffered"], rows["Readings measured"]) == ("7", "1", "1")
    assert rows["Latency"] == "p50 50.5 ms, p99 99.0 ms"
    assert "acknowledged: 3,000" in stats_line(board_rows(fleet, 10), 10)
    assert BoardStats().quantile(0.99) == 0


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/devices"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/devices"),
        ("https://tally.example/devices/", "https://tally.example/devices"),
        ("http://example.com/tally", "http://example.com/tally/devices"),
    ],
)
def test_a_server_may_be_named_with_or_without_its_backend(given: str, meant: str) -> None:
    assert backend_url(given, "devices") == meant


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(Invalid, match="not a server URL"):
        backend_url("127.0.0.1:8080", "devices")


def test_the_command_wants_a_key_or_a_way_to_make_one(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["sim", "boards"], env={"TALLY_SIM_API_KEY": ""})
    assert result.exit_code == 2
    assert "Boards need an API key" in result.stderr
    result = CliRunner().invoke(
        cli, ["sim", "boards", "--admin-token-file", str(tmp_path / "none")]
    )
    assert result.exit_code == 2
    assert "Cannot read" in result.stderr


def test_boards_post_to_a_server_and_ctrl_c_ends_them_cleanly(tmp_path: Path) -> None:
    """With a key that is made by the operator's token, as on the machine of `tally up`."""
    with started(tmp_path, "serve", "--port", "0", TALLY_LOG_FORMAT="json") as server:
        assert server.stderr is not None
        url = json.loads(read_until(server.stderr, "listening"))["data"]["url"]
        words = (
            "sim",
            "boards",
            "--count",
            "3",
            "--interval",
            "0.05",
            "--backlog",
            "20",
            "--url",
            url,
        )
        key = ("--admin-token-file", str(tmp_path / "data" / "devices-admin.key"))
        done = tally(tmp_path, *words, *key, "--requests", "12")
        assert done.returncode == 0, done.stderr
        assert re.search(r"boards: 3 \(\d registered.* in 12 requests, 0 failed", done.stdout), (
            done.stdout
        )
        with started(tmp_path, *words, *key, TALLY_LOG_FORMAT="json") as boards:
            metrics = re.compile(
                r'tally_http_request_duration_seconds_count\{method="POST",route="/devices/data",status="200"\} (\d+)\.0'
            )
            before = _count(url, metrics)
            while _count(url, metrics) < before + 5:
                assert boards.poll() is None
            boards.send_signal(signal.SIGINT)
            output, errors = boards.communicate(timeout=TIMEOUT_SECONDS)
        assert (boards.returncode, errors) == (0, "")
        assert "acknowledged: " in output


def _count(url: str, pattern: "re.Pattern[str]") -> int:
    with urllib.request.urlopen(f"{url}/metrics") as response:  # noqa: S310 - our own server
        found = pattern.search(response.read().decode())
    return int(found[1]) if found else 0
