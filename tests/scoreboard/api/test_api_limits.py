"""How often one may come: the request that is one too many is refused, with Redis and without, and told when to come back."""

from pathlib import Path

import pytest

from tally.kit.clock import ManualClock
from tests.scoreboard.api.harness import (
    INTERNAL,
    ApiResponse,
    Player,
    ScoreboardHarness,
    expect_error,
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


def check_told(answer: ApiResponse, limit: int, remaining: int, reset: int) -> None:
    told = [answer.headers[f"ratelimit-{name}"] for name in ("limit", "remaining", "reset")]
    assert told == [str(limit), str(remaining), str(reset)]


async def ask(harness: ScoreboardHarness, what: str, player: Player) -> ApiResponse:
    if what == "score":
        return await harness.update_score(player, "x", 1)
    if what == "me":
        return await harness.send("GET", "/scores/me", token=player.token)
    if what == "board":
        return await harness.send("GET", "/leaderboard")
    if what == "auth":
        return await harness.send("POST", "/auth/refresh", {"refresh_token": "x"})
    return await harness.send(
        "POST", "/internal/actions/complete", {}, headers={"X-Internal-API-Key": INTERNAL}
    )


async def check_limit(harness: ScoreboardHarness, what: str, limit: int) -> None:
    """The one too many is refused until the oldest of the others is a minute ago."""
    player = await harness.player()
    first = await ask(harness, what, player)
    check_told(first, limit, limit - 1, 60)
    harness.skip_time(20)
    answers = [await ask(harness, what, player) for _ in range(1, limit)]
    assert 429 not in {answer.status for answer in answers}
    check_told(answers[-1], limit, 0, 60)
    refused = await ask(harness, what, player)
    expect_error(refused, 429, "RATE_LIMIT_EXCEEDED", limit=limit)
    check_told(refused, limit, 0, 60)
    assert refused.headers["retry-after"] == "40"
    harness.skip_time(39.5)
    assert (await ask(harness, what, player)).status == 429
    harness.skip_time(0.5)
    assert (await ask(harness, what, player)).status != 429
    assert (await ask(harness, what, player)).status == 429


@pytest.mark.parametrize(
    ("what", "limit"), [("score", 10), ("me", 30), ("board", 60), ("auth", 10)]
)
async def test_the_request_that_is_one_too_many_is_refused(
    shared_servers: SharedServers, tmp_path: Path, what: str, limit: int
) -> None:
    async with run_scoreboard(
        server_settings(await shared_servers.allocate(), tmp_path, **DEFAULTS), ManualClock()
    ) as harness:
        await check_limit(harness, what, limit)


async def test_game_servers_have_a_limit_too(shared_servers: SharedServers, tmp_path: Path) -> None:
    settings = server_settings(
        await shared_servers.allocate(), tmp_path, **(DEFAULTS | {"scoreboard_action_limit": 7})
    )
    async with run_scoreboard(settings, ManualClock()) as harness:
        await check_limit(harness, "action", 7)


async def test_without_redis_the_limits_are_the_same(
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
            answer = await ask(harness, "score", player)
            assert answer.status == 400, (number, answer)
            check_told(answer, 10, 9 - number, 60)
        expect_error(await ask(harness, "score", player), 429, "RATE_LIMIT_EXCEEDED")


async def test_nobody_starts_anew_when_redis_goes_away(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """What was counted in Redis is known here as well."""
    dsn, _ = await shared_servers.allocate()
    async with (
        restartable_redis(tmp_path) as redis,
        run_scoreboard(
            server_settings((dsn, redis.address), tmp_path, **DEFAULTS), ManualClock()
        ) as harness,
    ):
        player = await harness.player()
        for _ in range(6):
            assert (await ask(harness, "score", player)).status == 400
        await redis.kill()
        for _ in range(4):
            assert (await ask(harness, "score", player)).status == 400
        expect_error(await ask(harness, "score", player), 429, "RATE_LIMIT_EXCEEDED")


async def test_each_player_has_a_limit_of_their_own(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    async with run_scoreboard(
        server_settings(await shared_servers.allocate(), tmp_path, **DEFAULTS), ManualClock()
    ) as harness:
        ana, ben = await harness.player(), await harness.player()
        answers = [await ask(harness, "score", ana) for _ in range(11)]
        expect_error(answers[-1], 429, "RATE_LIMIT_EXCEEDED")
        assert (await ask(harness, "score", ben)).status == 400
