"""Leaderboard reads: top, pages, around a player and ranks, the same from Redis and PostgreSQL."""

from pathlib import Path

import msgspec
import pytest
from starlette.responses import Response

from tally.scoreboard.api.page_cache import ENTRY_BYTES, PageCache, page_response
from tally.scoreboard.repository.leaderboard import CHANGED, LEADERBOARD, PLAYERS
from tests.api_response import expect_error
from tests.scoreboard.api.harness import (
    INTERNAL,
    Json,
    Player,
    ScoreboardHarness,
    run_scoreboard,
    server_settings,
)
from tests.scoreboard.api.servers import SharedServers


@pytest.fixture
async def players(fresh_harness: ScoreboardHarness) -> list[Player]:
    """Twelve players in groups of three with equal scores."""
    players = [await fresh_harness.player(f"player_{number:02}") for number in range(12)]
    for number, player in enumerate(players):
        await fresh_harness.score(player, 10 * (number // 3 + 1))
    return players


def usernames(leaderboard: Json) -> list[str]:
    return [entry["username"] for entry in leaderboard["items"]]


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
        leaderboard.append((await harness.send("GET", "/scores/me", token=player.token)).result)
    return leaderboard


async def test_ranks_are_unique_and_ordered(
    fresh_harness: ScoreboardHarness, players: list[Player]
) -> None:
    complete = await fresh_harness.leaderboard("?limit=100")
    assert usernames(complete) == expected_order(players)
    assert [entry["rank"] for entry in complete["items"]] == list(range(1, 13))
    assert complete["total_players"] == 12
    page = await fresh_harness.leaderboard("?limit=4&offset=5")
    assert page["items"] == complete["items"][5:9]
    assert (await fresh_harness.leaderboard("?offset=12"))["items"] == []


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
        own = (await fresh_harness.send("GET", "/scores/me", token=player.token)).result
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


async def test_a_page_shows_every_change_of_another_instance(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """An instance keeps encoded pages, and none is older than Redis at the time of the request."""
    addresses = await shared_servers.allocate()
    async with (
        run_scoreboard(server_settings(addresses, tmp_path / "a")) as reader,
        run_scoreboard(server_settings(addresses, tmp_path / "b")) as other,
    ):
        services, redis = other.scoreboard.services, other.scoreboard.redis.client
        scores = services.leaderboard.scores

        async def expect_current() -> None:
            """Read a page twice, so that it is cached for the next check."""
            for _ in range(2):
                expected = msgspec.json.decode(page_response(await scores.top(10)).body)
                assert await reader.leaderboard() == expected

        await expect_current()
        players = [await other.player() for _ in range(3)]
        await expect_current()
        await other.score(players[0], 10)
        await expect_current()
        await services.accounts.delete(players[1].user_id)
        await expect_current()

        async def swap_scores() -> None:
            """Change PostgreSQL only, so that times and numbers of players stay the same."""
            await other.scoreboard.database.value(
                "test", "UPDATE scores SET total_score = 10 - total_score"
            )

        await swap_scores()
        assert (await other.admin("POST", "/rebuild")).result == {"players": 2}
        await expect_current()
        await swap_scores()
        await services.cache_sync.check_drift(repair=True)
        await expect_current()
        await swap_scores()
        await redis.flushdb()
        await expect_current()
        await services.cache_sync.catch_up()
        await expect_current()
        await redis.delete(CHANGED)
        await expect_current()
        await services.cache_sync.catch_up()
        for key in (LEADERBOARD, PLAYERS):
            before, content = await reader.leaderboard(), await redis.dump(key)
            await redis.delete(key)
            assert await reader.leaderboard() != before, "the eviction of a key is visible"
            await redis.restore(key, 0, content)
            await expect_current()


def test_cached_pages_are_bounded_and_of_one_version() -> None:
    pages, (first, second, third) = (
        PageCache(max_bytes=2 * (ENTRY_BYTES + 5)),
        [Response(body) for body in (b"first", b"other", b"third")],
    )
    pages.store(10, 0, b"1", first)
    pages.store(10, 0, b"1", first)
    pages.store(10, 10, b"1", second)
    assert pages.find(10, 0) == (b"1", first)
    assert pages.find(10, 10) == (b"1", second)
    pages.store(10, 20, b"1", third)
    assert pages.find(10, 0) == (b"", None), "cleared when full"
    assert pages.find(10, 20) == (b"1", third)
    pages.store(10, 0, b"2", first)
    assert pages.find(10, 20) == (b"", None), "another version"
    pages.store(10, 30, b"", second)
    assert pages.find(10, 30) == (b"", None), "without a version"
    assert pages.find(10, 0) == (b"2", first)


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=101", "limit=x", "offset=-1", "around=you", "more=1", "limit=1&limit=2"],
)
async def test_an_invalid_query_is_rejected(harness: ScoreboardHarness, query: str) -> None:
    code = "unknown_field" if query == "more=1" else "invalid_field"
    expect_error(await harness.send("GET", f"/leaderboard?{query}"), 400, code)


async def test_around_me_requires_authentication(harness: ScoreboardHarness) -> None:
    expect_error(await harness.send("GET", "/leaderboard?around=me"), 401, "missing_token")


async def test_an_operator_can_detect_drift_and_rebuild(
    fresh_harness: ScoreboardHarness, players: list[Player]
) -> None:
    """Manual changes in Redis are reported, and a rebuild repairs them."""
    client = fresh_harness.scoreboard.redis.client
    assert (await fresh_harness.admin("GET", "/drift")).result == {
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
    report = (await fresh_harness.admin("GET", "/drift")).result
    assert (report["missing"], report["wrong"], report["strays"]) == (1, 1, 1)
    assert (await fresh_harness.admin("POST", "/rebuild")).result == {"players": 12}
    assert (await fresh_harness.admin("GET", "/drift")).result["found"] == 0
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
    assert (await fresh_harness.admin("GET", "/drift")).result["found"] == 0


@pytest.mark.parametrize(("method", "path"), [("GET", "/drift"), ("POST", "/rebuild")])
async def test_admin_routes_require_an_operator(
    harness: ScoreboardHarness, method: str, path: str
) -> None:
    player = await harness.player()
    expect_error(
        await harness.send(method, f"/admin/leaderboard{path}", token=player.token),
        401,
        "invalid_token",
    )
    headers = {"X-Internal-API-Key": INTERNAL}
    expect_error(
        await harness.send(method, f"/admin/leaderboard{path}", headers=headers),
        401,
        "missing_token",
    )
