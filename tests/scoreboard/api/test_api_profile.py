"""`GET` and `PATCH /users/me`: the leaderboard in Redis and PostgreSQL, and its stream, follow."""

from pathlib import Path

from tests.api_response import ApiResponse, expect_error
from tests.scoreboard.api.harness import (
    PLAYER_PASSWORD,
    ScoreboardHarness,
    run_scoreboard,
    server_settings,
)
from tests.scoreboard.api.servers import SharedServers, restartable_redis
from tests.scoreboard.api.stream_client import open_stream

AVATAR = "https://example.com/ana.png"


async def test_a_changed_profile_is_shown_everywhere(fresh_harness: ScoreboardHarness) -> None:
    ana = await fresh_harness.player("ana")
    await fresh_harness.score(ana, 5)
    async with open_stream(fresh_harness.url) as stream:
        await stream.update()
        body = {"username": "anna", "avatar_url": AVATAR}
        changed = (await fresh_harness.send("PATCH", "/users/me", body, ana.token)).result
        assert (changed["username"], changed["email"]) == ("anna", "ana@example.com")
        assert (await fresh_harness.send("GET", "/users/me", token=ana.token)).result == changed
        [entry] = (await stream.update())["leaderboard"]
        assert (entry["username"], entry["avatar_url"]) == ("anna", AVATAR)
    own = (await fresh_harness.send("GET", "/scores/me", token=ana.token)).result
    [cached] = (await fresh_harness.leaderboard())["items"]
    stored = (await fresh_harness.scoreboard.services.leaderboard.scores.top(1)).standings[0]
    for avatar_url in (own["avatar_url"], cached["avatar_url"], stored.avatar_url):
        assert avatar_url == AVATAR
    assert (await fresh_harness.admin("GET", "/drift")).result["found"] == 0
    removed = {
        "avatar_url": None,
        "email": "anna@example.com",
        "current_password": PLAYER_PASSWORD,
    }
    changed = (await fresh_harness.send("PATCH", "/users/me", removed, ana.token)).result
    assert (changed["avatar_url"], changed["email"]) == (None, "anna@example.com")
    assert (await fresh_harness.leaderboard())["items"][0]["avatar_url"] is None
    assert (await fresh_harness.score(ana, 5))["new_score"] == 10


async def test_an_invalid_profile_changes_nothing(harness: ScoreboardHarness) -> None:
    ana, ben = await harness.player(), await harness.player()

    async def change(**body: object) -> ApiResponse:
        return await harness.send("PATCH", "/users/me", body, ana.token)

    before = (await harness.send("GET", "/users/me", token=ana.token)).result
    expect_error(await change(), 400, "missing_field", "username, email or avatar_url")
    taken = await change(username=ben.username.upper())
    expect_error(taken, 409, "username_taken", field="username")
    email = f"{ben.username}@example.com"
    taken = await change(email=email, username="free_name", current_password=PLAYER_PASSWORD)
    expect_error(taken, 409, "email_taken", field="email")
    expect_error(await change(username=None), 400, "invalid_field", field="username")
    invalid = await change(avatar_url="ftp://example.com/a")
    expect_error(invalid, 400, "invalid_field", field="avatar_url")
    assert (await harness.send("GET", "/users/me", token=ana.token)).result == before
    expect_error(await harness.send("PATCH", "/users/me", {}), 401, "missing_token")


async def test_an_access_token_alone_does_not_change_the_email(harness: ScoreboardHarness) -> None:
    """A password reset is sent to it, so a copied token would take over the account."""
    ana = await harness.player()

    async def change(**body: object) -> ApiResponse:
        body |= {"email": "attacker@example.org", "username": "attacker"}
        return await harness.send("PATCH", "/users/me", body, ana.token)

    before = (await harness.send("GET", "/users/me", token=ana.token)).result
    expect_error(await change(), 400, "missing_field", field="current_password")
    for _ in range(5):
        wrong = await change(current_password="a wrong password")
        expect_error(wrong, 403, "wrong_password", field="current_password")
    expect_error(await change(current_password=PLAYER_PASSWORD), 429, "too_many_sign_ins")
    assert (await harness.send("GET", "/users/me", token=ana.token)).result == before


async def test_a_profile_changed_without_redis_is_written_later(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    dsn, _ = await shared_servers.allocate()
    async with (
        restartable_redis(tmp_path) as redis,
        run_scoreboard(server_settings((dsn, redis.address), tmp_path)) as harness,
    ):
        ana = await harness.player("ana")
        await redis.restart()
        await harness.scoreboard.services.cache_sync.catch_up()
        await redis.kill()
        body = {"avatar_url": AVATAR}
        assert (await harness.send("PATCH", "/users/me", body, ana.token)).status == 200
        assert (await harness.leaderboard())["items"][0]["avatar_url"] == AVATAR
