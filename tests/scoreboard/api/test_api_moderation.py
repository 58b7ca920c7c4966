"""Moderation: adjustments are events, bans hide players, and Redis and the stream follow."""

from pathlib import Path
from typing import Any

from tally.kit.ids import new_uuid
from tests.api_response import ApiResponse, expect_error
from tests.scoreboard.api.harness import (
    ADMIN,
    Player,
    ScoreboardHarness,
    run_scoreboard,
    server_settings,
)
from tests.scoreboard.api.servers import SharedServers, restartable_redis
from tests.scoreboard.api.stream_client import open_stream


async def moderate(
    harness: ScoreboardHarness, player_id: str, verb: str, **body: Any
) -> ApiResponse:
    path = f"/admin/players/{player_id}/{verb}"
    return await harness.send("POST", path, body or None, token=ADMIN)


async def names(harness: ScoreboardHarness) -> list[str]:
    return [entry["username"] for entry in (await harness.leaderboard())["items"]]


async def start_game(harness: ScoreboardHarness) -> tuple[Player, Player]:
    ana, ben = await harness.player("ana"), await harness.player("ben")
    await harness.score(ana, 50)
    await harness.score(ben, 20)
    return ana, ben


async def test_an_adjustment_is_an_event_and_applies_once(
    fresh_harness: ScoreboardHarness,
) -> None:
    """The score may decrease; the history keeps every event."""
    ana, _ = await start_game(fresh_harness)
    body = {"score_delta": -40, "reason": "Points from a bug", "adjustment_id": "case-17"}
    async with open_stream(fresh_harness.url) as stream:
        await stream.update()
        adjusted = await moderate(fresh_harness, ana.user_id, "adjust", **body)
        assert adjusted.result == {
            "user_id": ana.user_id,
            "adjustment_id": "case-17",
            "score_delta": -40,
            "new_score": 10,
            "rank": 2,
        }
        top = (await stream.update())["leaderboard"]
        assert [(entry["username"], entry["score"]) for entry in top] == [("ben", 20), ("ana", 10)]
    again = await moderate(fresh_harness, ana.user_id, "adjust", **body)
    assert again.result == adjusted.result
    for change in ({"score_delta": -30}, {"board": "weekly"}):
        other = await moderate(fresh_harness, ana.user_id, "adjust", **body | change)
        expect_error(other, 409, "action_exists", field="adjustment_id")
    events = (await fresh_harness.send("GET", "/users/me/events", token=ana.token)).result["items"]
    assert [event["score_delta"] for event in events] == [-40, 50]
    assert events[0]["metadata"] == {"reason": "Points from a bug"}
    assert (await fresh_harness.score(ana, 15))["new_score"] == 25
    assert await names(fresh_harness) == ["ana", "ben"]
    assert (await fresh_harness.admin("GET", "/drift")).result["found"] == 0


async def test_an_invalid_adjustment_changes_nothing(harness: ScoreboardHarness) -> None:
    player = await harness.player()
    await harness.score(player, 5)

    async def adjust(user_id: str = player.user_id, **body: Any) -> ApiResponse:
        return await moderate(harness, user_id, "adjust", **body)

    expect_error(await adjust(score_delta=5), 400, "missing_field", field="reason")
    expect_error(await adjust(score_delta=0, reason="x"), 400, "invalid_field", "must not be 0")
    for reason in ("", " \n\u3000"):
        blank = await adjust(score_delta=5, reason=reason)
        expect_error(blank, 400, "invalid_field", field="reason")
    too_much = await adjust(score_delta=-6, reason="x")
    expect_error(too_much, 409, "score_too_small", "The score is 5")
    unknown = await adjust(new_uuid(), score_delta=1, reason="x")
    expect_error(unknown, 404, "user_not_found")
    expect_error(
        await adjust("me", score_delta=1, reason="x"), 400, "invalid_field", field="user_id"
    )
    path = f"/admin/players/{player.user_id}/ban"
    expect_error(await harness.send("POST", path, token=player.token), 401, "invalid_token")
    own = await harness.send("GET", "/scores/me", token=player.token)
    assert own.result["score"] == 5


async def test_a_banned_player_disappears_and_returns_with_the_same_score(
    fresh_harness: ScoreboardHarness,
) -> None:
    ana, ben = await start_game(fresh_harness)
    token = await fresh_harness.complete_action(ana)
    async with open_stream(fresh_harness.url) as stream:
        await stream.update()
        for _ in range(2):
            assert (await moderate(fresh_harness, ana.user_id, "ban")).status == 204
        update = await stream.update()
        assert [entry["username"] for entry in update["leaderboard"]] == ["ben"]
        assert update["total_players"] == 1
        expect_error(await fresh_harness.update_score(ana, token, 5), 403, "player_banned")
        own = await fresh_harness.send("GET", "/scores/me", token=ana.token)
        expect_error(own, 403, "player_banned")
        adjusted = await moderate(fresh_harness, ana.user_id, "adjust", score_delta=1, reason="x")
        expect_error(adjusted, 403, "player_banned")
        assert (await fresh_harness.score(ben, 1))["rank"] == 1
        assert (await fresh_harness.admin("GET", "/drift")).result["found"] == 0
        for _ in range(2):
            assert (await moderate(fresh_harness, ana.user_id, "unban")).status == 204
        assert await names(fresh_harness) == ["ana", "ben"]
    assert (await fresh_harness.update_score(ana, token, 5)).result["new_score"] == 55
    assert (await fresh_harness.admin("GET", "/drift")).result["found"] == 0
    expect_error(await moderate(fresh_harness, new_uuid(), "ban"), 404, "user_not_found")
    assert (await moderate(fresh_harness, ana.user_id, "ban")).status == 204
    assert (await fresh_harness.send("DELETE", "/users/me", token=ana.token)).status == 204
    expect_error(await moderate(fresh_harness, ana.user_id, "unban"), 404, "user_not_found")


async def test_bans_without_redis_are_written_later(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """A paused Redis keeps what it had; a ban and its end reach it when it responds again."""
    dsn, _ = await shared_servers.allocate()
    async with (
        restartable_redis(tmp_path) as redis,
        run_scoreboard(
            server_settings((dsn, redis.address), tmp_path, scoreboard_redis_milliseconds=100)
        ) as harness,
    ):
        ana, ben = await start_game(harness)
        redis.pause()
        assert (await moderate(harness, ana.user_id, "ban")).status == 204
        assert (await moderate(harness, ben.user_id, "ban")).status == 204
        assert (await moderate(harness, ben.user_id, "unban")).status == 204
        assert await names(harness) == ["ben"]
        redis.resume()
        cache_sync = harness.scoreboard.services.cache_sync
        while cache_sync.backlog.has_pending_changes():
            await cache_sync.catch_up()
        assert await names(harness) == ["ben"]
        assert (await moderate(harness, ana.user_id, "unban")).status == 204
        assert await names(harness) == ["ana", "ben"]
        assert (await harness.admin("GET", "/drift")).result["found"] == 0
