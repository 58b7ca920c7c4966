"""A fleet of virtual boards on a real socket, and `tally sim boards`."""

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
from tests.sim.devices_harness import DevicesHarness, run_devices_server
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
async def harness(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DevicesHarness]:
    async with run_devices_server(
        tmp_path_factory.mktemp("greenhouse"), devices_rate_limit=1_000_000
    ) as harness:
        yield harness


def build_fleet(
    harness: DevicesHarness, behaviour: BoardBehaviour = LIVELY, **more: object
) -> BoardFleet:
    """A fleet on the system clock."""
    clock = SystemClock()
    return BoardFleet(
        harness.devices_client(clock=clock, **more), clock, random.Random(5), behaviour
    )


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not condition():  # noqa: ASYNC110  statistics have no change event
            await asyncio.sleep(0.01)


async def test_every_reading_of_a_fleet_is_stored_once(harness: DevicesHarness) -> None:
    """Boards go offline and restart; the server drops, rejects and delays requests."""
    harness.faults.clear()
    for fault in (
        InjectedFault(path=DATA, drop="after", times=5),
        InjectedFault(path=DATA, drop="before", times=5),
        InjectedFault(path="/devices/", status=503, times=10),
        InjectedFault(path=DATA, status=429, body="{}", times=3),
    ):
        harness.faults.add(fault)
    fleet = build_fleet(harness)
    async with fleet.running(15):
        await wait_until(lambda: fleet.stats.acknowledged > 400 and not harness.faults.pending)
    assert fleet.stats.duplicates > 0
    assert len({board.hardware_id for board in fleet.boards}) == 15
    for board in fleet.boards:
        stored = await harness.stored(board)
        assert (
            len(stored)
            == len({reading.batch_id for reading in stored})
            >= board.measured_count - len(board.buffer)
        )
        waiting = {buffered.reading.batch_id for buffered in board.buffer}
        assert len(waiting | {reading.batch_id for reading in stored}) == board.measured_count
    assert fleet.measured_count > 400
    assert all(board.hardware_id in fleet.offline for board in fleet.boards if board.buffer)


async def test_backlog_is_sent_in_batches(harness: DevicesHarness) -> None:
    harness.faults.clear()
    fleet = build_fleet(
        harness,
        BoardBehaviour(
            interval=0.01,
            backlog=250,
            offline_probability=0,
            restart_probability=0,
            shutdown_seconds=30,
        ),
    )
    async with fleet.running(2):
        await wait_until(lambda: fleet.stats.acknowledged >= 500)
    assert fleet.stats.requests <= 2 + fleet.measured_count - 500 + 6
    assert fleet.buffered_count == 0


async def test_boards_keep_measuring_while_the_server_is_unavailable(
    harness: DevicesHarness,
) -> None:
    harness.faults.clear()
    harness.faults.add(InjectedFault(status=503, times=None))
    fleet = build_fleet(harness)
    async with fleet.running(5):
        await wait_until(lambda: fleet.measured_count >= 50)
        assert fleet.buffered_count == fleet.measured_count
        assert fleet.stats.failures > 0
        harness.faults.clear()
    assert fleet.stats.acknowledged > 0


async def test_rejected_key_stops_the_fleet(harness: DevicesHarness) -> None:
    harness.faults.clear()
    fleet = build_fleet(harness, api_key=Secret("0" * 64))
    async with fleet.running(2):
        await asyncio.wait_for(fleet.rejected.wait(), TIMEOUT_SECONDS)
    assert "invalid_api_key" in fleet.stats.last_error
    assert fleet.buffered_count == fleet.measured_count > 0


async def test_max_requests_is_respected(harness: DevicesHarness) -> None:
    harness.faults.clear()
    before = len(harness.faults.requests)
    fleet = build_fleet(harness, max_requests=25)
    async with fleet.running(5):
        await asyncio.wait_for(fleet.devices.exhausted.wait(), TIMEOUT_SECONDS)
    assert fleet.stats.requests == 25
    # Requests that were under way when the fleet stopped may not have come that far.
    assert 20 <= len(harness.faults.requests) - before <= 25


async def test_seed_determines_the_boards(harness: DevicesHarness) -> None:
    fleets = [build_fleet(harness) for _ in range(2)]
    first, second = ([fleet._new_board() for _ in range(3)] for fleet in fleets)
    assert [board.hardware_id for board in first] == [board.hardware_id for board in second]
    assert [board.boot_id for board in first] == [board.boot_id for board in second]


def test_display_shows_the_statistics(harness: DevicesHarness) -> None:
    fleet = build_fleet(harness)
    fleet.boards.append(harness.board())
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
    ("url", "expected"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/devices"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/devices"),
        ("https://tally.example/devices/", "https://tally.example/devices"),
        ("http://example.com/tally", "http://example.com/tally/devices"),
    ],
)
def test_backend_url_accepts_server_and_backend_urls(url: str, expected: str) -> None:
    assert backend_url(url, "devices") == expected


def test_invalid_server_url_is_rejected() -> None:
    with pytest.raises(Invalid, match="not a server URL"):
        backend_url("127.0.0.1:8080", "devices")


def test_command_requires_a_key_or_an_operator_token(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["sim", "boards"], env={"TALLY_SIM_API_KEY": ""})
    assert result.exit_code == 2
    assert "Boards need an API key" in result.stderr
    result = CliRunner().invoke(
        cli, ["sim", "boards", "--operator-token-file", str(tmp_path / "none")]
    )
    assert result.exit_code == 2
    assert "Cannot read" in result.stderr


def test_command_posts_readings_and_stops_at_ctrl_c(tmp_path: Path) -> None:
    """The API key is created with the admin token, as in `tally up`."""
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
        key = ("--operator-token-file", str(tmp_path / "data" / "operator.token"))
        done = tally(tmp_path, *words, *key, "--requests", "12")
        assert done.returncode == 0, done.stderr
        assert re.search(r"boards: 3 \(\d registered.* in 12 requests, 0 failed", done.stdout), (
            done.stdout
        )
        with started(tmp_path, *words, *key, TALLY_LOG_FORMAT="json") as boards:
            metrics = re.compile(
                r"tally_http_request_duration_seconds_count"
                r'\{method="POST",route="/devices/data",status="200"\} (\d+)\.0'
            )
            before = _request_count(url, metrics)
            while _request_count(url, metrics) < before + 5:
                assert boards.poll() is None
            boards.send_signal(signal.SIGINT)
            output, errors = boards.communicate(timeout=TIMEOUT_SECONDS)
        assert (boards.returncode, errors) == (0, "")
        assert "acknowledged: " in output


def _request_count(url: str, pattern: "re.Pattern[str]") -> int:
    with urllib.request.urlopen(f"{url}/metrics") as response:  # noqa: S310 - our own server
        found = pattern.search(response.read().decode())
    return int(found[1]) if found else 0
