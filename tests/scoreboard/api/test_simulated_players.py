"""Simulated players on a real scoreboard, which verify every response."""

import asyncio
import random
from datetime import timedelta
from pathlib import Path

import pytest
from pyreqwest.client import Client, ClientBuilder
from typer.testing import CliRunner

from tally.cli import cli
from tally.errors import Invalid
from tally.kit.clock import SystemClock
from tally.kit.retry import RetryPolicy
from tally.settings import Secret
from tally.sim.command_line import stats_line
from tally.sim.players.command import api_url, player_rows
from tally.sim.players.fleet import PlayerFleet
from tally.sim.players.player import PlayerBehaviour
from tally.sim.players.scoreboard_client import ScoreboardClient
from tests.scoreboard.api.harness import (
    API,
    INTERNAL,
    ScoreboardHarness,
    run_scoreboard,
    server_settings,
    wait_until,
)
from tests.scoreboard.api.servers import SharedServers, restartable_redis

ACTIVE_PLAYERS = PlayerBehaviour(
    interval=0.02,
    replay_probability=0.5,
    cheat_probability=0.5,
    retry_policy=RetryPolicy(attempts=20, base=0.01, cap=0.1, deadline=20),
)


def new_fleet(harness: ScoreboardHarness, client: Client, key: str = INTERNAL) -> PlayerFleet:
    clock = SystemClock()
    server = ScoreboardClient(client, f"{harness.url}{API}", Secret(key), clock)
    return PlayerFleet(server, clock, random.Random(11), ACTIVE_PLAYERS)


async def test_simulated_players_find_no_violation_while_redis_is_killed(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """Acknowledged points are on the leaderboard, replays count once, and cheats are rejected."""
    dsn, _ = await shared_servers.allocate()
    async with (
        restartable_redis(tmp_path) as redis,
        run_scoreboard(server_settings((dsn, redis.address), tmp_path), jobs=True) as harness,
        ClientBuilder().no_proxy().timeout(timedelta(seconds=30)).build() as client,
    ):
        fleet = new_fleet(harness, client)
        stats = fleet.scoreboard.stats
        async with fleet.running(6):
            await wait_until(lambda: _as_coroutine(stats.games > 30))
            await redis.kill()
            await wait_until(
                lambda: _as_coroutine(stats.games > 60 and stats.cheats > 10 and stats.replays > 10)
            )
            await redis.start()
            await wait_until(lambda: _as_coroutine(stats.games > 90))
        assert stats.violations == 0
        leaderboard = {
            entry["user_id"]: entry["score"]
            for entry in (await harness.leaderboard("?limit=100"))["items"]
        }
        for player in fleet.players:
            assert player.account is not None
            assert leaderboard[player.account.user_id] >= player.score > 0
        assert "violations: 0" in stats_line(player_rows(fleet, 1.0), 1.0)
        second = new_fleet(harness, client)
        async with second.running(2):
            await wait_until(lambda: _as_coroutine(second.registered_count == 2))
        assert (await harness.leaderboard())["total_players"] == 6, (
            "the same seed creates the same players, who log in again"
        )


async def _as_coroutine(value: bool) -> bool:
    return value


async def test_a_wrong_key_stops_the_simulation(harness: ScoreboardHarness) -> None:
    async with ClientBuilder().no_proxy().build() as client:
        fleet = new_fleet(harness, client, "not-the-key-of-the-game-servers-01")
        async with fleet.running(2):
            await asyncio.wait_for(fleet.rejected.wait(), 30)
    assert "401 invalid_api_key" in fleet.scoreboard.stats.last_error


@pytest.mark.parametrize(
    "url",
    [
        "http://host:1",
        "http://host:1/",
        "http://host:1/scoreboard",
        "http://host:1/scoreboard/api/v1/",
    ],
)
def test_a_server_is_found_by_any_of_its_urls(url: str) -> None:
    assert api_url(url) == "http://host:1/scoreboard/api/v1"


def test_an_invalid_url_or_key_file_is_rejected() -> None:
    with pytest.raises(Invalid, match="is not a server URL"):
        api_url("host:1")
    done = CliRunner().invoke(cli, ["sim", "players", "--internal-key-file", "nowhere/x.key"])
    assert done.exit_code == 2
    assert "Cannot read" in done.output
