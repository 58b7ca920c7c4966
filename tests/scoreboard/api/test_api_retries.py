"""Retries: an action scores once whichever token is used, and only the client's faults count."""

from dataclasses import replace
from pathlib import Path

from tally.kit.clock import ManualClock
from tally.kit.ids import new_uuid
from tests.api_response import ApiResponse, expect_error
from tests.scoreboard.api.boards import create
from tests.scoreboard.api.harness import (
    INTERNAL,
    Player,
    ScoreboardHarness,
    run_scoreboard,
    server_settings,
)
from tests.scoreboard.api.servers import SharedServers, restartable_postgres, restartable_redis


async def report(
    harness: ScoreboardHarness, player: Player, action_id: str, max_score: int = 100
) -> ApiResponse:
    """Report a completed action."""
    body = {"action_id": action_id, "user_id": player.user_id, "max_score": max_score}
    headers = {"X-Internal-API-Key": INTERNAL}
    return await harness.send("POST", "/internal/actions/complete", body, headers=headers)


async def test_an_action_scores_once_whichever_token_is_used(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """Also with a token from after an outage that was longer than the life of the first one."""
    settings = server_settings(
        await shared_servers.allocate(), tmp_path, scoreboard_access_seconds=86_400
    )
    async with run_scoreboard(settings, ManualClock()) as harness:
        player, action_id = await harness.player(), new_uuid()
        lost = (await report(harness, player, action_id)).result["action_token"]
        harness.skip_time(3600)
        expect_error(await harness.update_score(player, lost, 5), 400, "invalid_action_token")
        first = (await report(harness, player, action_id)).result["action_token"]
        harness.skip_time(1)
        second = (await report(harness, player, action_id)).result["action_token"]
        assert len({lost, first, second}) == 3
        scored = await harness.update_score(player, second, 5)
        assert scored.result["new_score"] == 5
        for token in (first, second, lost):
            replay = await harness.update_score(player, token, 7)
            assert (replay.status, replay.body) == (200, scored.body)
        harness.skip_time(8 * 3600)
        await harness.scoreboard.services.retention.run()
        latest = (await report(harness, player, action_id)).result["action_token"]
        replay = await harness.update_score(player, latest, 7)
        assert (replay.result["new_score"], replay.result["score_added"]) == (5, 5)


async def test_an_action_that_is_reported_again_keeps_its_boards(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """Also if its retention ends while the new token is valid."""
    settings = server_settings(await shared_servers.allocate(), tmp_path, scoreboard_events_days=1)
    async with run_scoreboard(settings, ManualClock()) as harness:
        await create(harness, "cup")
        player, action_id = await harness.player(), new_uuid()
        await harness.complete_action(player, action_id=action_id, boards=["cup"])
        harness.skip_time(86_400 - 60)
        refresh = {"refresh_token": player.refresh_token}
        tokens = (await harness.send("POST", "/auth/refresh", refresh)).result
        player = replace(player, token=tokens["access_token"])
        token = await harness.complete_action(player, action_id=action_id, boards=["cup"])
        harness.skip_time(61)
        await harness.scoreboard.services.retention.run()
        scored = (await harness.update_score(player, token, 5)).result
        assert (scored["new_score"], scored["boards"][0]["score"]) == (0, 5)
        harness.skip_time(2 * 86_400)
        await harness.scoreboard.services.retention.run()
        count = "SELECT count(*) FROM completed_actions"
        assert await harness.scoreboard.database.value("test", count) == 0


async def test_a_changed_report_of_an_action_is_a_conflict(harness: ScoreboardHarness) -> None:
    ana, ben, action_id = await harness.player(), await harness.player(), new_uuid()
    assert (await report(harness, ana, action_id)).status == 201
    assert (await report(harness, ana, action_id)).status == 201
    expect_error(await report(harness, ana, action_id, max_score=99), 409, "action_exists")
    expect_error(await report(harness, ben, action_id), 409, "action_exists")


async def test_replays_do_not_count_against_the_limit(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """With and without Redis; requests that the client got wrong do."""
    dsn, _ = await shared_servers.allocate()
    async with (
        restartable_redis(tmp_path) as redis,
        run_scoreboard(
            server_settings((dsn, redis.address), tmp_path, scoreboard_score_limit=3),
            ManualClock(),
        ) as harness,
    ):
        player = await harness.player()
        token = await harness.complete_action(player)
        assert (await harness.update_score(player, token, 5)).status == 200
        for _ in range(5):
            replay = await harness.update_score(player, token, 5)
            assert replay.status == 200
            assert replay.headers["ratelimit-remaining"] == "2"
        await redis.kill()
        for _ in range(5):
            replay = await harness.update_score(player, token, 5)
            assert replay.status == 200
            assert replay.headers["ratelimit-remaining"] == "2"
        for _ in range(2):
            assert (await harness.update_score(player, "x", 5)).status == 400
        expect_error(await harness.update_score(player, "x", 5), 429, "rate_limit_exceeded")


async def test_failures_of_the_server_do_not_count_against_the_limit(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """A player who retries during an outage can still score after it."""
    _, redis_url = await shared_servers.allocate()
    limits = {"scoreboard_score_limit": 2, "scoreboard_action_limit": 2}
    async with (
        restartable_postgres(tmp_path) as postgres,
        run_scoreboard(
            server_settings((postgres.address, redis_url), tmp_path, **limits)
        ) as harness,
    ):
        player, action_id = await harness.player(), new_uuid()
        await harness.score(player, 1)  # caches the session
        token = (await report(harness, player, action_id)).result["action_token"]
        await postgres.kill()
        for _ in range(5):
            failed = await harness.update_score(player, token, 5)
            expect_error(failed, 503, "unavailable")
            assert failed.headers["ratelimit-remaining"] == "1"
        await postgres.start()
        assert (await report(harness, player, action_id)).status == 429, "two actions were reported"
        assert (await harness.update_score(player, token, 5)).result["new_score"] == 6
