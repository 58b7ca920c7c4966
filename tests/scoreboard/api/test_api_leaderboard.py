"""The board: its top, its pages, the stretch around a player, ranks; the same from Redis and from PostgreSQL."""

import pytest

from tests.scoreboard.api.harness import Json, Player, ScoreboardHarness, expect_error


@pytest.fixture
async def crowd(fresh_harness: ScoreboardHarness) -> list[Player]:
    """Twelve players, with a score of 10 for every three of them: the first to have it stands higher."""
    players = [await fresh_harness.player(f"player_{number:02}") for number in range(12)]
    for number, player in enumerate(players):
        await fresh_harness.score(player, 10 * (number // 3 + 1))
    return players


def names(board: Json) -> list[str]:
    return [place["username"] for place in board["leaderboard"]]


def in_order(players: list[Player]) -> list[str]:
    """Groups of three from the last to the first; within a group, the first stands first."""
    ranked = sorted(range(len(players)), key=lambda number: (-(number // 3), number))
    return [players[number].username for number in ranked]


async def everything(harness: ScoreboardHarness, crowd: list[Player]) -> list[Json]:
    """All that can be asked of the board."""
    shown = [
        await harness.leaderboard("?limit=100"),
        await harness.leaderboard("?limit=4&offset=5"),
        await harness.leaderboard("?offset=10"),
    ]
    shown.append(await harness.leaderboard("?offset=1000"))
    for player in (crowd[0], crowd[5], crowd[11]):
        shown.append(await harness.leaderboard("?around=me&limit=5", token=player.token))
        shown.append((await harness.send("GET", "/scores/me", token=player.token)).data)
    return shown


async def test_the_board_has_one_order_and_each_player_one_rank(
    fresh_harness: ScoreboardHarness, crowd: list[Player]
) -> None:
    whole = await fresh_harness.leaderboard("?limit=100")
    assert names(whole) == in_order(crowd)
    assert [place["rank"] for place in whole["leaderboard"]] == list(range(1, 13))
    assert whole["total_players"] == 12
    page = await fresh_harness.leaderboard("?limit=4&offset=5")
    assert page["leaderboard"] == whole["leaderboard"][5:9]
    assert (await fresh_harness.leaderboard("?offset=12"))["leaderboard"] == []


async def test_the_stretch_around_me_has_me_in_its_middle(
    fresh_harness: ScoreboardHarness, crowd: list[Player]
) -> None:
    """As far as the ends of the board allow."""
    order = in_order(crowd)
    for player in crowd:
        place = order.index(player.username)
        shown = await fresh_harness.leaderboard("?around=me&limit=5", token=player.token)
        start = max(0, min(place - 2, len(order) - 5))
        assert names(shown) == order[start : start + 5]
        mine = (await fresh_harness.send("GET", "/scores/me", token=player.token)).data
        assert (mine["rank"], mine["total_players"]) == (place + 1, 12)
        assert mine["percentile"] == round(100 * (11 - place) / 11, 2)


async def test_postgresql_shows_the_same_as_redis(
    fresh_harness: ScoreboardHarness, crowd: list[Player]
) -> None:
    """With the board gone from Redis, every answer is the same, byte for byte in its content."""
    with_redis = await everything(fresh_harness, crowd)
    await fresh_harness.scoreboard.redis.client.flushdb()
    assert await everything(fresh_harness, crowd) == with_redis
    await fresh_harness.scoreboard.services.cache_sync.catch_up()
    assert await everything(fresh_harness, crowd) == with_redis


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=101", "limit=x", "offset=-1", "around=you", "more=1", "limit=1&limit=2"],
)
async def test_a_wrong_question_is_refused(harness: ScoreboardHarness, query: str) -> None:
    expect_error(await harness.send("GET", f"/leaderboard?{query}"), 400, "VALIDATION_ERROR")


async def test_around_me_needs_a_me(harness: ScoreboardHarness) -> None:
    expect_error(await harness.send("GET", "/leaderboard?around=me"), 401, "UNAUTHORIZED")


async def test_an_operator_finds_drift_and_rebuilds(
    fresh_harness: ScoreboardHarness, crowd: list[Player]
) -> None:
    """What somebody did to Redis by hand is found, and a rebuild sets it right."""
    client = fresh_harness.scoreboard.redis.client
    assert (await fresh_harness.admin("GET", "/drift")).data == {
        "compared": 12,
        "found": 0,
        "missing": 0,
        "wrong": 0,
        "extra": 0,
        "strays": 0,
        "examples": [],
    }
    right = await fresh_harness.leaderboard("?limit=100")
    members = await client.zrevrange("leaderboard:global", 0, 1)
    await client.zrem("leaderboard:global", members[0])
    await client.zincrby("leaderboard:global", 5_000, members[1])
    await client.zadd("leaderboard:global", {b"9" * 16 + b"nobody": 99})
    found = (await fresh_harness.admin("GET", "/drift")).data
    assert (found["missing"], found["wrong"], found["strays"]) == (1, 1, 1)
    assert (await fresh_harness.admin("POST", "/rebuild")).data == {"players": 12}
    assert (await fresh_harness.admin("GET", "/drift")).data["found"] == 0
    assert await fresh_harness.leaderboard("?limit=100") == right


async def test_the_verifier_heals_what_has_drifted(
    fresh_harness: ScoreboardHarness, crowd: list[Player]
) -> None:
    right, client = (
        await fresh_harness.leaderboard("?limit=100"),
        fresh_harness.scoreboard.redis.client,
    )
    members = await client.zrevrange("leaderboard:global", 0, 9)
    await client.zrem("leaderboard:global", *members[:5])
    await client.hdel("leaderboard:global:players", *(member[16:] for member in members[5:]))
    await client.zadd("leaderboard:global", {b"9" * 16 + b"nobody": 99})
    assert await fresh_harness.leaderboard("?limit=100") != right
    await fresh_harness.scoreboard.services.cache_sync.verify()
    assert await fresh_harness.leaderboard("?limit=100") == right
    assert (await fresh_harness.admin("GET", "/drift")).data["found"] == 0


@pytest.mark.parametrize(("method", "path"), [("GET", "/drift"), ("POST", "/rebuild")])
async def test_only_operators_look_behind_the_board(
    harness: ScoreboardHarness, method: str, path: str
) -> None:
    player = await harness.player()
    expect_error(
        await harness.send(method, f"/admin/leaderboard{path}", token=player.token),
        401,
        "UNAUTHORIZED",
    )
    wrong = {"X-Admin-API-Key": "the-key-of-the-game-servers-0123456789"}
    expect_error(
        await harness.send(method, f"/admin/leaderboard{path}", headers=wrong), 401, "UNAUTHORIZED"
    )
