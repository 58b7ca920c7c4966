"""Deleting an account: completely or not at all, whatever happens at the same time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tally.kit.clock import ManualClock
from tally.kit.ids import new_uuid
from tally.scoreboard.repository.database import Connection
from tests.api_response import ApiResponse, expect_error
from tests.scoreboard.api.harness import (
    ADMIN,
    INTERNAL,
    Player,
    ScoreboardHarness,
    run_scoreboard,
    server_settings,
    wait_until,
)
from tests.scoreboard.api.servers import SharedServers

LOCK_ACCOUNT = "SELECT FROM users WHERE id = $1 FOR UPDATE"
WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


async def delete(harness: ScoreboardHarness, player: Player) -> ApiResponse:
    return await harness.send("DELETE", "/users/me", token=player.token)


@asynccontextmanager
async def locked_account(harness: ScoreboardHarness, player: Player) -> AsyncIterator[Connection]:
    """Let every change of an account wait."""
    async with harness.scoreboard.database.use("test") as connection, connection.transaction():
        await connection.execute(LOCK_ACCOUNT, player.user_id)
        yield connection


async def test_a_deletion_that_failed_can_be_repeated(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """The player stays signed in until the account is gone."""
    settings = server_settings(
        await shared_servers.allocate(), tmp_path, scoreboard_database_seconds=1
    )
    async with run_scoreboard(settings) as harness:
        player = await harness.player()
        async with locked_account(harness, player):
            expect_error(await delete(harness, player), 503, "unavailable")
        assert (await harness.send("GET", "/users/me", token=player.token)).status == 200
        assert (await delete(harness, player)).status == 204
        again = await harness.send("GET", "/users/me", token=player.token)
        expect_error(again, 401, "session_revoked")


async def test_a_banned_player_is_deleted_once(harness: ScoreboardHarness) -> None:
    """Requests that come at the same time succeed or find no account."""
    for _ in range(3):
        player = await harness.player()
        ban = f"/admin/players/{player.user_id}/ban"
        assert (await harness.send("POST", ban, token=ADMIN)).status == 204
        responses = await asyncio.gather(*(delete(harness, player) for _ in range(4)))
        statuses = sorted(response.status for response in responses)
        assert statuses[0] == 204
        assert set(statuses[1:]) <= {401, 404}, statuses


async def test_an_action_reported_during_a_deletion_is_deleted_too(
    harness: ScoreboardHarness,
) -> None:
    player, database = await harness.player(), harness.scoreboard.database
    body = {"action_id": new_uuid(), "user_id": player.user_id, "max_score": 5}
    headers = {"X-Internal-API-Key": INTERNAL}
    async with asyncio.TaskGroup() as group, locked_account(harness, player):
        deletion = group.create_task(delete(harness, player))

        async def is_waiting() -> bool:
            return int(await database.value("test", WAITING)) == 1

        await wait_until(is_waiting)
        report = group.create_task(
            harness.send("POST", "/internal/actions/complete", body, headers=headers)
        )

        async def is_reported() -> bool:
            return report.done() or int(await database.value("test", WAITING)) == 2

        await wait_until(is_reported)
    assert deletion.result().status == 204
    assert report.result().status in {201, 404}
    left = "SELECT count(*) FROM completed_actions WHERE user_id = $1"
    assert await database.value("test", left, player.user_id) == 0


async def test_no_value_in_redis_leads_back_to_a_deleted_player(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """A response to a score update has the points and the time, which an event keeps."""
    settings = server_settings(await shared_servers.allocate(), tmp_path)
    async with run_scoreboard(settings, ManualClock()) as harness:
        player, action_id = await harness.player("ana"), new_uuid()
        tokens = []
        for _ in range(2):
            tokens.append(await harness.complete_action(player, action_id=action_id))
            harness.skip_time(1)
        for token in (*tokens, tokens[0]):
            assert (await harness.update_score(player, token, 5)).status == 200
        assert (await delete(harness, player)).status == 204
        client = harness.scoreboard.redis.client
        for key in await client.keys("*"):
            value = {
                b"string": client.get,
                b"hash": client.hgetall,
                b"set": client.smembers,
                b"zset": lambda name: client.zrange(name, 0, -1),
            }[await client.type(key)]
            assert player.user_id not in str(await value(key)), key
