"""The board: its top, its pages, the stretch around a player, ranks; the same from Redis and from PostgreSQL."""

import pytest

from tests.scoreboard.api.harness import Arena, Json, Player, expect_refused


@pytest.fixture
async def crowd(fresh: Arena) -> list[Player]:
    """Twelve players, with a score of 10 for every three of them: the first to have it stands higher."""
    players = [await fresh.player(f"player_{number:02}") for number in range(12)]
    for number, player in enumerate(players):
        await fresh.score(player, 10 * (number // 3 + 1))
    return players


def names(board: Json) -> list[str]:
    return [place["username"] for place in board["leaderboard"]]


def in_order(players: list[Player]) -> list[str]:
    """Groups of three from the last to the first; within a group, the first stands first."""
    ranked = sorted(range(len(players)), key=lambda number: (-(number // 3), number))
    return [players[number].username for number in ranked]


async def everything(arena: Arena, crowd: list[Player]) -> list[Json]:
    """All that can be asked of the board."""
    shown = [
        await arena.board("?limit=100"),
        await arena.board("?limit=4&offset=5"),
        await arena.board("?offset=10"),
    ]
    shown.append(await arena.board("?offset=1000"))
    for player in (crowd[0], crowd[5], crowd[11]):
        shown.append(await arena.board("?around=me&limit=5", token=player.token))
        shown.append((await arena.send("GET", "/scores/me", token=player.token)).data)
    return shown


async def test_the_board_has_one_order_and_each_player_one_rank(
    fresh: Arena, crowd: list[Player]
) -> None:
    whole = await fresh.board("?limit=100")
    assert names(whole) == in_order(crowd)
    assert [place["rank"] for place in whole["leaderboard"]] == list(range(1, 13))
    assert whole["total_players"] == 12
    page = await fresh.board("?limit=4&offset=5")
    assert page["leaderboard"] == whole["leaderboard"][5:9]
    assert (await fresh.board("?offset=12"))["leaderboard"] == []


async def test_the_stretch_around_me_has_me_in_its_middle(
    fresh: Arena, crowd: list[Player]
) -> None:
    """As far as the ends of the board allow."""
    order = in_order(crowd)
    for player in crowd:
        place = order.index(player.username)
        shown = await fresh.board("?around=me&limit=5", token=player.token)
        start = max(0, min(place - 2, len(order) - 5))
        assert names(shown) == order[start : start + 5]
        mine = (await fresh.send("GET", "/scores/me", token=player.token)).data
        assert (mine["rank"], mine["total_players"]) == (place + 1, 12)
        assert mine["percentile"] == round(100 * (11 - place) / 11, 2)


async def test_postgresql_shows_the_same_as_redis(fresh: Arena, crowd: list[Player]) -> None:
    """With the board gone from Redis, every answer is the same, byte for byte in its content."""
    with_redis = await everything(fresh, crowd)
    await fresh.scoreboard.redis.client.flushdb()
    assert await everything(fresh, crowd) == with_redis
    await fresh.scoreboard.catch_up.run()
    assert await everything(fresh, crowd) == with_redis


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=101", "limit=x", "offset=-1", "around=you", "more=1", "limit=1&limit=2"],
)
async def test_a_wrong_question_is_refused(arena: Arena, query: str) -> None:
    expect_refused(await arena.send("GET", f"/leaderboard?{query}"), 400, "VALIDATION_ERROR")


async def test_around_me_needs_a_me(arena: Arena) -> None:
    expect_refused(await arena.send("GET", "/leaderboard?around=me"), 401, "UNAUTHORIZED")


async def test_an_operator_finds_drift_and_rebuilds(fresh: Arena, crowd: list[Player]) -> None:
    """What somebody did to Redis by hand is found, and a rebuild sets it right."""
    client = fresh.scoreboard.redis.client
    assert (await fresh.admin("GET", "/drift")).data == {
        "compared": 12,
        "found": 0,
        "missing": 0,
        "wrong": 0,
        "extra": 0,
        "strays": 0,
        "examples": [],
    }
    right = await fresh.board("?limit=100")
    members = await client.zrevrange("leaderboard:global", 0, 1)
    await client.zrem("leaderboard:global", members[0])
    await client.zincrby("leaderboard:global", 5_000, members[1])
    await client.zadd("leaderboard:global", {b"9" * 16 + b"nobody": 99})
    found = (await fresh.admin("GET", "/drift")).data
    assert (found["missing"], found["wrong"], found["strays"]) == (1, 1, 1)
    assert (await fresh.admin("POST", "/rebuild")).data == {"players": 12}
    assert (await fresh.admin("GET", "/drift")).data["found"] == 0
    assert await fresh.board("?limit=100") == right


async def test_the_verifier_heals_what_has_drifted(fresh: Arena, crowd: list[Player]) -> None:
    right, client = await fresh.board("?limit=100"), fresh.scoreboard.redis.client
    members = await client.zrevrange("leaderboard:global", 0, 9)
    await client.zrem("leaderboard:global", *members[:5])
    await client.hdel("leaderboard:global:players", *(member[16:] for member in members[5:]))
    await client.zadd("leaderboard:global", {b"9" * 16 + b"nobody": 99})
    assert await fresh.board("?limit=100") != right
    await fresh.scoreboard.catch_up.verify()
    assert await fresh.board("?limit=100") == right
    assert (await fresh.admin("GET", "/drift")).data["found"] == 0


@pytest.mark.parametrize(("method", "path"), [("GET", "/drift"), ("POST", "/rebuild")])
async def test_only_operators_look_behind_the_board(arena: Arena, method: str, path: str) -> None:
    player = await arena.player()
    expect_refused(
        await arena.send(method, f"/admin/leaderboard{path}", token=player.token),
        401,
        "UNAUTHORIZED",
    )
    wrong = {"X-Admin-API-Key": "the-key-of-the-game-servers-0123456789"}
    expect_refused(
        await arena.send(method, f"/admin/leaderboard{path}", headers=wrong), 401, "UNAUTHORIZED"
    )
