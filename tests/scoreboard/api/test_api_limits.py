"""How often one may come: the request that is one too many is refused, with Redis and without, and told when to come back."""

from pathlib import Path

import pytest

from tally.kit.clock import ManualClock
from tests.scoreboard.api.harness import (
    INTERNAL,
    Answer,
    Arena,
    Player,
    expect_refused,
    running,
    settings_of,
)
from tests.scoreboard.api.servers import Ground, mortal_redis

DEFAULTS = {
    "scoreboard_auth_limit": 10,
    "scoreboard_score_limit": 10,
    "scoreboard_me_limit": 30,
    "scoreboard_board_limit": 60,
    "scoreboard_action_limit": 1000,
}


def check_told(answer: Answer, limit: int, remaining: int, reset: int) -> None:
    told = [answer.headers[f"ratelimit-{name}"] for name in ("limit", "remaining", "reset")]
    assert told == [str(limit), str(remaining), str(reset)]


async def ask(arena: Arena, what: str, player: Player) -> Answer:
    if what == "score":
        return await arena.trade(player, "x", 1)
    if what == "me":
        return await arena.send("GET", "/scores/me", token=player.token)
    if what == "board":
        return await arena.send("GET", "/leaderboard")
    if what == "auth":
        return await arena.send("POST", "/auth/refresh", {"refresh_token": "x"})
    return await arena.send(
        "POST", "/internal/actions/complete", {}, headers={"X-Internal-API-Key": INTERNAL}
    )


async def check_limit(arena: Arena, what: str, limit: int) -> None:
    """The one too many is refused until the oldest of the others is a minute ago."""
    player = await arena.player()
    first = await ask(arena, what, player)
    check_told(first, limit, limit - 1, 60)
    arena.leap(20)
    answers = [await ask(arena, what, player) for _ in range(1, limit)]
    assert 429 not in {answer.status for answer in answers}
    check_told(answers[-1], limit, 0, 60)
    refused = await ask(arena, what, player)
    expect_refused(refused, 429, "RATE_LIMIT_EXCEEDED", limit=limit)
    check_told(refused, limit, 0, 60)
    assert refused.headers["retry-after"] == "40"
    arena.leap(39.5)
    assert (await ask(arena, what, player)).status == 429
    arena.leap(0.5)
    assert (await ask(arena, what, player)).status != 429
    assert (await ask(arena, what, player)).status == 429


@pytest.mark.parametrize(
    ("what", "limit"), [("score", 10), ("me", 30), ("board", 60), ("auth", 10)]
)
async def test_the_request_that_is_one_too_many_is_refused(
    ground: Ground, tmp_path: Path, what: str, limit: int
) -> None:
    async with running(
        settings_of(await ground.place(), tmp_path, **DEFAULTS), ManualClock()
    ) as arena:
        await check_limit(arena, what, limit)


async def test_game_servers_have_a_limit_too(ground: Ground, tmp_path: Path) -> None:
    settings = settings_of(
        await ground.place(), tmp_path, **(DEFAULTS | {"scoreboard_action_limit": 7})
    )
    async with running(settings, ManualClock()) as arena:
        await check_limit(arena, "action", 7)


async def test_without_redis_the_limits_are_the_same(ground: Ground, tmp_path: Path) -> None:
    dsn, _ = await ground.place()
    async with (
        mortal_redis(tmp_path) as redis,
        running(settings_of((dsn, redis.address), tmp_path, **DEFAULTS), ManualClock()) as arena,
    ):
        player = await arena.player()
        await redis.kill()
        for number in range(10):
            answer = await ask(arena, "score", player)
            assert answer.status == 400, (number, answer)
            check_told(answer, 10, 9 - number, 60)
        expect_refused(await ask(arena, "score", player), 429, "RATE_LIMIT_EXCEEDED")


async def test_nobody_starts_anew_when_redis_goes_away(ground: Ground, tmp_path: Path) -> None:
    """What was counted in Redis is known here as well."""
    dsn, _ = await ground.place()
    async with (
        mortal_redis(tmp_path) as redis,
        running(settings_of((dsn, redis.address), tmp_path, **DEFAULTS), ManualClock()) as arena,
    ):
        player = await arena.player()
        for _ in range(6):
            assert (await ask(arena, "score", player)).status == 400
        await redis.kill()
        for _ in range(4):
            assert (await ask(arena, "score", player)).status == 400
        expect_refused(await ask(arena, "score", player), 429, "RATE_LIMIT_EXCEEDED")


async def test_each_player_has_a_limit_of_their_own(ground: Ground, tmp_path: Path) -> None:
    async with running(
        settings_of(await ground.place(), tmp_path, **DEFAULTS), ManualClock()
    ) as arena:
        ana, ben = await arena.player(), await arena.player()
        answers = [await ask(arena, "score", ana) for _ in range(11)]
        expect_refused(answers[-1], 429, "RATE_LIMIT_EXCEEDED")
        assert (await ask(arena, "score", ben)).status == 400
