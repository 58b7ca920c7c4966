"""The end of a season: repeated adjustments, and copies in Redis that belong to another season."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from tally.kit.clock import ManualClock
from tests.scoreboard.api.boards import (
    DAILY,
    HOURS,
    NOON,
    create,
    moderate,
    play,
    run_board_server,
    standings,
)
from tests.scoreboard.api.harness import ScoreboardHarness, run_scoreboard, server_settings
from tests.scoreboard.api.servers import SharedServers


@pytest.fixture
async def server(shared_servers: SharedServers, tmp_path: Path) -> AsyncIterator[ScoreboardHarness]:
    async with run_board_server(shared_servers, tmp_path) as harness:
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


async def test_no_instance_leaves_the_copy_of_a_closed_season(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """Also one that is busy with its boards while another one closes their seasons."""
    addresses = await shared_servers.allocate()
    midnight = NOON + timedelta(hours=12)
    async with (
        run_scoreboard(server_settings(addresses, tmp_path / "1"), ManualClock(NOON)) as busy,
        run_scoreboard(server_settings(addresses, tmp_path / "2"), ManualClock(midnight)) as other,
    ):
        await create(busy, "daily", reset=DAILY)
        await play(busy, await busy.player("ana"), 10, "daily")
        maintenance = busy.scoreboard.services.board_maintenance
        await maintenance.catch_up()
        [closed] = maintenance.seasons.known()
        await other.scoreboard.services.board_maintenance.catch_up()
        client = busy.scoreboard.redis.client
        assert await client.keys("leaderboard:daily:1*") == []
        # The jobs of the first instance had read their list of seasons before.
        await closed.sync.catch_up()
        assert await client.keys("leaderboard:daily:1*") != []
        await maintenance.catch_up()
        assert await client.keys("leaderboard:daily:1*") == []
        for _ in range(2):
            await maintenance.verify()
            assert await client.keys("leaderboard:daily:1*") == []


async def test_the_comparison_of_a_board_builds_no_copy(server: ScoreboardHarness) -> None:
    """The other job does, which also drops the copies of closed seasons."""
    maintenance, client = (
        server.scoreboard.services.board_maintenance,
        server.scoreboard.redis.client,
    )
    await create(server, "cup")
    await play(server, await server.player("ana"), 10, "cup")
    await maintenance.verify()
    assert await client.keys("leaderboard:cup:1*") == []
    await maintenance.catch_up()
    assert await client.zcard("leaderboard:cup:1") == 1
    await client.zadd("leaderboard:cup:1", {"a stray": 5})
    await maintenance.verify()
    assert await client.zcard("leaderboard:cup:1") == 1


async def test_a_repeated_ban_writes_to_redis_what_a_dead_process_committed(
    server: ScoreboardHarness,
) -> None:
    """And so does the repeated end of a ban, on boards and on the global leaderboard."""
    services, now = server.scoreboard.services, server.clock.now()
    await create(server, "cup")
    ana = await server.player("ana")
    await play(server, ana, 10, "cup", "global")
    await services.board_maintenance.catch_up()

    async def shown() -> list[list[str]]:
        pages = [await server.leaderboard(), (await server.send("GET", "/boards/cup")).result]
        return [[row["username"] for row in page["items"]] for page in pages]

    await services.moderation.players.ban(ana.user_id, now)
    assert await shown() == [["ana"], ["ana"]]
    await moderate(server, ana, "ban")
    assert await shown() == [[], []]
    await services.moderation.players.unban(ana.user_id, now)
    assert await shown() == [[], []]
    await moderate(server, ana, "unban")
    assert await shown() == [["ana"], ["ana"]]
