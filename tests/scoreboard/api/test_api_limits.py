"""Rate limits, with and without Redis: requests above the limit get 429 and Retry-After."""

from pathlib import Path

import pytest

from tally.kit.clock import ManualClock
from tests.api_response import ApiResponse, expect_error
from tests.scoreboard.api.harness import (
    INTERNAL,
    Player,
    ScoreboardHarness,
    run_scoreboard,
    server_settings,
)
from tests.scoreboard.api.servers import SharedServers, restartable_redis

DEFAULTS = {
    "scoreboard_auth_limit": 10,
    "scoreboard_score_limit": 10,
    "scoreboard_me_limit": 30,
    "scoreboard_board_limit": 60,
    "scoreboard_action_limit": 1000,
}


def check_headers(response: ApiResponse, limit: int, remaining: int, reset: int) -> None:
    data = [response.headers[f"ratelimit-{name}"] for name in ("limit", "remaining", "reset")]
    assert data == [str(limit), str(remaining), str(reset)]


async def send_limited(harness: ScoreboardHarness, kind: str, player: Player) -> ApiResponse:
    if kind == "score":
        return await harness.update_score(player, "x", 1)
    if kind == "me":
        return await harness.send("GET", "/scores/me", token=player.token)
    if kind == "board":
        return await harness.send("GET", "/leaderboard")
    if kind == "auth":
        return await harness.send("POST", "/auth/refresh", {"refresh_token": "x"})
    return await harness.send(
        "POST", "/internal/actions/complete", {}, headers={"X-Internal-API-Key": INTERNAL}
    )


async def check_limit(harness: ScoreboardHarness, kind: str, limit: int) -> None:
    """Requests above the limit are rejected until the oldest one is a minute old."""
    player = await harness.player()
    first = await send_limited(harness, kind, player)
    check_headers(first, limit, limit - 1, 60)
    harness.skip_time(20)
    responses = [await send_limited(harness, kind, player) for _ in range(1, limit)]
    assert 429 not in {response.status for response in responses}
    check_headers(responses[-1], limit, 0, 60)
    rejected = await send_limited(harness, kind, player)
    expect_error(rejected, 429, "rate_limit_exceeded", limit=limit)
    check_headers(rejected, limit, 0, 60)
    assert rejected.headers["retry-after"] == "40"
    harness.skip_time(39.5)
    assert (await send_limited(harness, kind, player)).status == 429
    harness.skip_time(0.5)
    assert (await send_limited(harness, kind, player)).status != 429
    assert (await send_limited(harness, kind, player)).status == 429


@pytest.mark.parametrize(
    ("kind", "limit"), [("score", 10), ("me", 30), ("board", 60), ("auth", 10)]
)
async def test_requests_above_the_limit_are_rejected(
    shared_servers: SharedServers, tmp_path: Path, kind: str, limit: int
) -> None:
    async with run_scoreboard(
        server_settings(await shared_servers.allocate(), tmp_path, **DEFAULTS), ManualClock()
    ) as harness:
        await check_limit(harness, kind, limit)


async def test_completed_actions_are_limited(shared_servers: SharedServers, tmp_path: Path) -> None:
    settings = server_settings(
        await shared_servers.allocate(), tmp_path, **(DEFAULTS | {"scoreboard_action_limit": 7})
    )
    async with run_scoreboard(settings, ManualClock()) as harness:
        await check_limit(harness, "action", 7)


async def test_limits_are_the_same_without_redis(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    dsn, _ = await shared_servers.allocate()
    async with (
        restartable_redis(tmp_path) as redis,
        run_scoreboard(
            server_settings((dsn, redis.address), tmp_path, **DEFAULTS), ManualClock()
        ) as harness,
    ):
        player = await harness.player()
        await redis.kill()
        for number in range(10):
            response = await send_limited(harness, "score", player)
            assert response.status == 400, (number, response)
            check_headers(response, 10, 9 - number, 60)
        expect_error(await send_limited(harness, "score", player), 429, "rate_limit_exceeded")


async def test_windows_continue_when_redis_becomes_unavailable(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """Requests that Redis counted are also counted locally."""
    dsn, _ = await shared_servers.allocate()
    async with (
        restartable_redis(tmp_path) as redis,
        run_scoreboard(
            server_settings((dsn, redis.address), tmp_path, **DEFAULTS), ManualClock()
        ) as harness,
    ):
        player = await harness.player()
        for _ in range(6):
            assert (await send_limited(harness, "score", player)).status == 400
        await redis.kill()
        for _ in range(4):
            assert (await send_limited(harness, "score", player)).status == 400
        expect_error(await send_limited(harness, "score", player), 429, "rate_limit_exceeded")


async def test_limits_apply_per_player(shared_servers: SharedServers, tmp_path: Path) -> None:
    async with run_scoreboard(
        server_settings(await shared_servers.allocate(), tmp_path, **DEFAULTS), ManualClock()
    ) as harness:
        ana, ben = await harness.player(), await harness.player()
        responses = [await send_limited(harness, "score", ana) for _ in range(11)]
        expect_error(responses[-1], 429, "rate_limit_exceeded")
        assert (await send_limited(harness, "score", ben)).status == 400


async def test_invalid_requests_count_too(shared_servers: SharedServers, tmp_path: Path) -> None:
    """The rate limit decides before the content, and the session before both."""
    settings = server_settings(
        await shared_servers.allocate(),
        tmp_path,
        **(DEFAULTS | {"scoreboard_score_limit": 1, "scoreboard_board_limit": 1}),
    )
    async with run_scoreboard(settings, ManualClock()) as harness:
        player, other = await harness.player(), await harness.player()
        for status in (400, 429):
            response = await harness.send("PATCH", "/scores", {"more": 1}, player.token)
            assert response.status == status
            check_headers(response, 1, 0, 60)
            assert (await harness.send("GET", "/leaderboard?limit=0")).status == status
        assert (await harness.send("POST", "/auth/logout", token=other.token)).status == 204
        for body in ({"more": 1}, {"action_token": "x", "score_delta": 1}):
            response = await harness.send("PATCH", "/scores", body, other.token)
            expect_error(response, 401, "session_revoked")
            assert "ratelimit-limit" not in response.headers
