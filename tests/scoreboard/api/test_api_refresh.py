"""Token refresh: a repeated refresh keeps the session, a copied refresh token revokes it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tally.kit.clock import ManualClock
from tally.scoreboard.service.action_tokens import hash_token
from tally.settings import Secret
from tests.api_response import ApiResponse, expect_error
from tests.scoreboard.api.harness import (
    SESSION_KEY,
    Json,
    ScoreboardHarness,
    run_scoreboard,
    server_settings,
)
from tests.scoreboard.api.servers import SharedServers


@pytest.fixture
async def refresh_harness(
    shared_servers: SharedServers, tmp_path: Path
) -> AsyncIterator[ScoreboardHarness]:
    """A server with a manual clock."""
    settings = server_settings(await shared_servers.allocate(), tmp_path)
    async with run_scoreboard(settings, ManualClock()) as harness:
        yield harness


async def refresh(harness: ScoreboardHarness, token: str) -> ApiResponse:
    return await harness.send("POST", "/auth/refresh", {"refresh_token": token})


async def is_signed_in(harness: ScoreboardHarness, tokens: Json) -> bool:
    response = await harness.send("GET", "/scores/me", token=tokens["access_token"])
    return response.status == 200


async def test_tabs_that_refresh_at_once_keep_the_session(harness: ScoreboardHarness) -> None:
    """All of them receive the same tokens, so the session does not fork."""
    player = await harness.player()
    responses = await asyncio.gather(*(refresh(harness, player.refresh_token) for _ in range(20)))
    first, *others = [response.result for response in responses]
    assert others == [first] * 19
    assert await is_signed_in(harness, first)
    assert (await refresh(harness, first["refresh_token"])).status == 200


async def test_a_retry_after_a_lost_response_returns_the_same_tokens(
    refresh_harness: ScoreboardHarness,
) -> None:
    player = await refresh_harness.player()
    lost = (await refresh(refresh_harness, player.refresh_token)).result
    refresh_harness.skip_time(29.9)
    assert (await refresh(refresh_harness, player.refresh_token)).result == lost
    assert await is_signed_in(refresh_harness, lost)


async def test_a_retry_on_another_instance_returns_the_same_tokens(
    refresh_harness: ScoreboardHarness,
) -> None:
    player = await refresh_harness.player()
    first = (await refresh(refresh_harness, player.refresh_token)).result
    settings = refresh_harness.application.settings
    async with run_scoreboard(settings, refresh_harness.clock) as other:
        assert (await refresh(other, player.refresh_token)).result == first
        assert await is_signed_in(other, first)


async def test_a_retry_on_an_instance_with_another_signing_key_keeps_the_session(
    refresh_harness: ScoreboardHarness,
) -> None:
    """It returns the tokens after the next ones, and the next ones are still within the grace."""
    player = await refresh_harness.player()
    first = (await refresh(refresh_harness, player.refresh_token)).result
    keys = (Secret("the next key that signs access tokens"), SESSION_KEY)
    settings = refresh_harness.application.settings
    async with run_scoreboard(
        settings.__class__(**(vars(settings) | {"scoreboard_session_keys": keys})),
        refresh_harness.clock,
    ) as other:
        second = (await refresh(other, player.refresh_token)).result
        assert second["refresh_token"] != first["refresh_token"]
        assert await is_signed_in(other, second)
        assert (await refresh(other, first["refresh_token"])).result == second


async def test_reuse_after_the_grace_revokes_the_session(
    refresh_harness: ScoreboardHarness,
) -> None:
    """Either holder may be the thief, so neither keeps the session."""
    player = await refresh_harness.player()
    tokens = (await refresh(refresh_harness, player.refresh_token)).result
    refresh_harness.skip_time(30)
    expect_error(await refresh(refresh_harness, player.refresh_token), 401, "invalid_token")
    assert not await is_signed_in(refresh_harness, tokens)
    expect_error(await refresh(refresh_harness, tokens["refresh_token"]), 401, "invalid_token")


async def test_reuse_of_any_earlier_token_revokes_the_session(
    refresh_harness: ScoreboardHarness,
) -> None:
    """Also of one that was used several refreshes ago: its owner was just offline."""
    player = await refresh_harness.player()
    token, tokens = player.refresh_token, Json()
    for _ in range(5):
        refresh_harness.skip_time(900)
        tokens = (await refresh(refresh_harness, token)).result
        token = tokens["refresh_token"]
    expect_error(await refresh(refresh_harness, player.refresh_token), 401, "invalid_token")
    assert not await is_signed_in(refresh_harness, tokens)


async def test_a_forged_refresh_token_does_not_revoke_the_session(
    harness: ScoreboardHarness,
) -> None:
    """The id of a session is not secret, so it alone must not end the session."""
    player = await harness.player()
    session_id = player.refresh_token.partition(".")[0]
    other = (await harness.player()).refresh_token
    for forged in (
        f"{session_id}.{other.partition('.')[2]}",
        f"{session_id}.",
        session_id,
        f"{player.refresh_token}.x",
        player.refresh_token.upper(),
        "x",
        ".",
        "é\x00",
    ):
        expect_error(await refresh(harness, forged), 401, "invalid_token")
    assert (await refresh(harness, player.refresh_token)).status == 200


async def test_a_refresh_token_of_an_earlier_version_still_works(
    harness: ScoreboardHarness,
) -> None:
    """It had no session id; its successor has one."""
    player = await harness.player()
    await harness.scoreboard.database.value(
        "test",
        "UPDATE sessions SET refresh_hash = $2 WHERE user_id = $1",
        player.user_id,
        hash_token("a-random-token-of-an-earlier-version"),
    )
    tokens = (await refresh(harness, "a-random-token-of-an-earlier-version")).result
    assert await is_signed_in(harness, tokens)
    assert (await refresh(harness, tokens["refresh_token"])).status == 200
