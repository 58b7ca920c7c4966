"""The end of a season: repeated adjustments, and copies in Redis that belong to another season."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tally.kit.clock import ManualClock
from tests.scoreboard.api.boards import (
    ACCESS_SECONDS,
    DAILY,
    HOURS,
    NOON,
    create,
    moderate,
    play,
    standings,
)
from tests.scoreboard.api.harness import ScoreboardHarness, run_scoreboard, server_settings
from tests.scoreboard.api.servers import SharedServers


@pytest.fixture
async def server(shared_servers: SharedServers, tmp_path: Path) -> AsyncIterator[ScoreboardHarness]:
    """A server whose clock tests move, without jobs."""
    addresses = await shared_servers.allocate()
    settings = server_settings(addresses, tmp_path, scoreboard_access_seconds=ACCESS_SECONDS)
    async with run_scoreboard(settings, ManualClock(NOON)) as harness:
        yield harness


async def test_an_adjustment_can_be_repeated_after_its_season(server: ScoreboardHarness) -> None:
    """It returns the outcome of the first request, with the rank in the season of both."""
    await create(server, "daily", reset=DAILY)
    ana, ben = await server.player("ana"), await server.player("ben")
    await play(server, ben, 10, "daily")
    body = {"score_delta": 5, "reason": "a bug", "board": "daily", "adjustment_id": "case-1"}
    first = await moderate(server, ana, "adjust", **body)
    assert (first["new_score"], first["rank"]) == (5, 2)
    server.skip_time(12 * HOURS)
    assert await moderate(server, ana, "adjust", **body) == first
    assert await standings(server, "daily") == []
    assert (await server.send("DELETE", "/users/me", token=ben.token)).status == 204
    assert await moderate(server, ana, "adjust", **body) == first


async def test_a_new_season_does_not_show_a_copy_that_redis_has_already(
    server: ScoreboardHarness,
) -> None:
    """As after the restore of a backup, or of another installation: Redis has the same names."""
    client, services = server.scoreboard.redis.client, server.scoreboard.services
    await create(server, "other")
    await play(server, await server.player("stranger"), 99, "other")
    await services.board_maintenance.catch_up()
    copies = [
        (key, key.decode().removeprefix("leaderboard:other:1")) for key in await client.keys()
    ]
    for name in ("leaderboard:cup:1", "leaderboard:daily:1", "leaderboard:daily:2"):
        for key, suffix in copies:
            if key.startswith(b"leaderboard:other:1"):
                await client.copy(key, name + suffix)
    await create(server, "cup")
    await create(server, "daily", reset=DAILY)
    ana = await server.player("ana")
    for _ in range(2):
        assert await standings(server, "cup") == []
        assert await standings(server, "daily") == []
        await services.board_maintenance.catch_up()
    update = await play(server, ana, 10, "daily")
    assert update["boards"][0]["rank"] == 1
    server.skip_time(12 * HOURS)
    for _ in range(2):
        assert await standings(server, "daily") == []
        await services.board_maintenance.catch_up()
    season = await services.boards.seasons.current("daily")
    assert await season.sync.cache.is_built()
    assert season.leaderboard.is_served_by_redis()
