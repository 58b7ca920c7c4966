"""Leaderboard reads: top, pages, around a player and ranks, the same from Redis and PostgreSQL."""

import pytest

from tests.scoreboard.api.harness import Json, Player, ScoreboardHarness, expect_error


@pytest.fixture
async def players(fresh_harness: ScoreboardHarness) -> list[Player]:
    """Twelve players in groups of three with equal scores."""
    players = [await fresh_harness.player(f"player_{number:02}") for number in range(12)]
    for number, player in enumerate(players):
        await fresh_harness.score(player, 10 * (number // 3 + 1))
    return players


def usernames(leaderboard: Json) -> list[str]:
    return [entry["username"] for entry in leaderboard["leaderboard"]]


def expected_order(players: list[Player]) -> list[str]:
    """Groups of three from the last to the first; within a group, the first player first."""
    ranked = sorted(range(len(players)), key=lambda number: (-(number // 3), number))
    return [players[number].username for number in ranked]


async def read_all(harness: ScoreboardHarness, players: list[Player]) -> list[Json]:
    """Return all kinds of leaderboard reads."""
    leaderboard = [
        await harness.leaderboard("?limit=100"),
        await harness.leaderboard("?limit=4&offset=5"),
        await harness.leaderboard("?offset=10"),
    ]
    leaderboard.append(await harness.leaderboard("?offset=1000"))
    for player in (players[0], players[5], players[11]):
        leaderboard.append(await harness.leaderboard("?around=me&limit=5", token=player.token))
        leaderboard.append((await harness.send("GET", "/scores/me", token=player.token)).data)
    return leaderboard


async def test_ranks_are_unique_and_ordered(
    fresh_harness: ScoreboardHarness, players: list[Player]
) -> None:
    complete = await fresh_harness.leaderboard("?limit=100")
    assert usernames(complete) == expected_order(players)
    assert [entry["rank"] for entry in complete["leaderboard"]] == list(range(1, 13))
    assert complete["total_players"] == 12
    page = await fresh_harness.leaderboard("?limit=4&offset=5")
    assert page["leaderboard"] == complete["leaderboard"][5:9]
    assert (await fresh_harness.leaderboard("?offset=12"))["leaderboard"] == []


async def test_around_me_is_centred_on_the_player(
    fresh_harness: ScoreboardHarness, players: list[Player]
) -> None:
    """As far as the ends of the leaderboard allow."""
    order = expected_order(players)
    for player in players:
        index = order.index(player.username)
        leaderboard = await fresh_harness.leaderboard("?around=me&limit=5", token=player.token)
        start = max(0, min(index - 2, len(order) - 5))
        assert usernames(leaderboard) == order[start : start + 5]
        own = (await fresh_harness.send("GET", "/scores/me", token=player.token)).data
        assert (own["rank"], own["total_players"]) == (index + 1, 12)
        assert own["percentile"] == round(100 * (11 - index) / 11, 2)


async def test_postgresql_and_redis_return_the_same(
    fresh_harness: ScoreboardHarness, players: list[Player]
) -> None:
    """All responses stay the same after the leaderboard disappears from Redis."""
    with_redis = await read_all(fresh_harness, players)
    await fresh_harness.scoreboard.redis.client.flushdb()
    assert await read_all(fresh_harness, players) == with_redis
    await fresh_harness.scoreboard.services.cache_sync.catch_up()
    assert await read_all(fresh_harness, players) == with_redis


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=101", "limit=x", "offset=-1", "around=you", "more=1", "limit=1&limit=2"],
)
async def test_an_invalid_query_is_rejected(harness: ScoreboardHarness, query: str) -> None:
    expect_error(await harness.send("GET", f"/leaderboard?{query}"), 400, "VALIDATION_ERROR")


async def test_around_me_requires_authentication(harness: ScoreboardHarness) -> None:
    expect_error(await harness.send("GET", "/leaderboard?around=me"), 401, "UNAUTHORIZED")


async def test_an_operator_can_detect_drift_and_rebuild(
    fresh_harness: ScoreboardHarness, players: list[Player]
) -> None:
    """Manual changes in Redis are reported, and a rebuild repairs them."""
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
    expected = await fresh_harness.leaderboard("?limit=100")
    members = await client.zrevrange("leaderboard:global", 0, 1)
    await client.zrem("leaderboard:global", members[0])
    await client.zincrby("leaderboard:global", 5_000, members[1])
    await client.zadd("leaderboard:global", {b"9" * 16 + b"nobody": 99})
    report = (await fresh_harness.admin("GET", "/drift")).data
    assert (report["missing"], report["wrong"], report["strays"]) == (1, 1, 1)
    assert (await fresh_harness.admin("POST", "/rebuild")).data == {"players": 12}
    assert (await fresh_harness.admin("GET", "/drift")).data["found"] == 0
    assert await fresh_harness.leaderboard("?limit=100") == expected


async def test_verification_repairs_drift(
    fresh_harness: ScoreboardHarness, players: list[Player]
) -> None:
    expected, client = (
        await fresh_harness.leaderboard("?limit=100"),
        fresh_harness.scoreboard.redis.client,
    )
    members = await client.zrevrange("leaderboard:global", 0, 9)
    await client.zrem("leaderboard:global", *members[:5])
    await client.hdel("leaderboard:global:players", *(member[16:] for member in members[5:]))
    await client.zadd("leaderboard:global", {b"9" * 16 + b"nobody": 99})
    assert await fresh_harness.leaderboard("?limit=100") != expected
    await fresh_harness.scoreboard.services.cache_sync.verify()
    assert await fresh_harness.leaderboard("?limit=100") == expected
    assert (await fresh_harness.admin("GET", "/drift")).data["found"] == 0


@pytest.mark.parametrize(("method", "path"), [("GET", "/drift"), ("POST", "/rebuild")])
async def test_admin_routes_require_the_operator_key(
    harness: ScoreboardHarness, method: str, path: str
) -> None:
    player = await harness.player()
    expect_error(
        await harness.send(method, f"/admin/leaderboard{path}", token=player.token),
        401,
        "UNAUTHORIZED",
    )
    headers = {"X-Admin-API-Key": "the-key-of-the-game-servers-0123456789"}
    expect_error(
        await harness.send(method, f"/admin/leaderboard{path}", headers=headers),
        401,
        "UNAUTHORIZED",
    )
