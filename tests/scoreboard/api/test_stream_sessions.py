"""The stream of a player ends with the player's session, on whichever instance it ended."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tally.kit.clock import ManualClock
from tests.scoreboard.api.harness import (
    PLAYER_PASSWORD,
    Player,
    ScoreboardHarness,
    run_scoreboard,
    server_settings,
)
from tests.scoreboard.api.servers import SharedServers
from tests.scoreboard.api.stream_client import StreamClient, open_stream
from tests.scoreboard.api.test_api_passwords import NEW_PASSWORD

TIMEOUT_SECONDS = 30
End = Callable[[ScoreboardHarness, Player], Awaitable[None]]


@pytest.fixture
async def instances(
    shared_servers: SharedServers, tmp_path: Path
) -> AsyncIterator[tuple[ScoreboardHarness, ScoreboardHarness]]:
    """Two instances with their jobs, on one database and one store."""
    settings = server_settings(await shared_servers.allocate(), tmp_path)
    async with (
        run_scoreboard(settings, jobs=True) as one,
        run_scoreboard(settings, jobs=True) as two,
    ):
        yield one, two


async def expect_end(stream: StreamClient) -> None:
    """The last event says that the session has ended; then the response ends."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while (event := await stream.event())["event"] == "leaderboard":
            pass
        assert event == {"event": "session_ended", "data": "{}"}
        assert await stream.reader.readline() == b"0\r\n"


async def log_out(harness: ScoreboardHarness, player: Player) -> None:
    assert (await harness.send("POST", "/auth/logout", token=player.token)).status == 204


async def log_out_everywhere(harness: ScoreboardHarness, player: Player) -> None:
    assert (await harness.send("DELETE", "/auth/sessions", token=player.token)).status == 204


async def delete_account(harness: ScoreboardHarness, player: Player) -> None:
    assert (await harness.send("DELETE", "/users/me", token=player.token)).status == 204


async def other_session(harness: ScoreboardHarness, player: Player) -> str:
    """Return an access token of a second session of the player."""
    body = {"login": player.username, "password": PLAYER_PASSWORD}
    tokens = (await harness.send("POST", "/auth/login", body)).result["tokens"]
    return str(tokens["access_token"])


async def revoke_from_another_session(harness: ScoreboardHarness, player: Player) -> None:
    token = await other_session(harness, player)
    listed = (await harness.send("GET", "/auth/sessions", token=token)).result["items"]
    [session_id] = [entry["session_id"] for entry in listed if not entry["is_current"]]
    path = f"/auth/sessions/{session_id}"
    assert (await harness.send("DELETE", path, token=token)).status == 204


async def change_password_in_another_session(harness: ScoreboardHarness, player: Player) -> None:
    token = await other_session(harness, player)
    body = {"current_password": PLAYER_PASSWORD, "new_password": NEW_PASSWORD}
    assert (await harness.send("POST", "/auth/password", body, token=token)).status == 204


@pytest.mark.parametrize(
    "end",
    [
        log_out,
        log_out_everywhere,
        delete_account,
        revoke_from_another_session,
        change_password_in_another_session,
    ],
)
async def test_streams_end_with_their_session_on_every_instance(
    instances: tuple[ScoreboardHarness, ScoreboardHarness], end: End
) -> None:
    """Those of other players and of anonymous clients stay open."""
    one, two = instances
    player, other = await one.player(), await one.player()
    async with (
        open_stream(one.url, player.token) as here,
        open_stream(two.url, player.token) as there,
        open_stream(two.url, other.token) as others,
        open_stream(two.url) as anonymous,
    ):
        await end(one, player)
        await asyncio.gather(expect_end(here), expect_end(there))
        await one.score(other, 5)
        for stream in (others, anonymous):
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await stream.update_with_score(other.user_id, 5)


async def test_a_stream_outlives_its_access_token_and_ends_with_its_session(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    settings = server_settings(await shared_servers.allocate(), tmp_path)
    async with run_scoreboard(settings, ManualClock()) as harness:
        player = await harness.player()
        body = {"refresh_token": player.refresh_token}
        async with open_stream(harness.url, player.token) as stream:
            assert (await harness.send("POST", "/auth/refresh", body)).status == 200
            harness.skip_time(29 * 86_400)
            await harness.application.streams.maintain()
            metrics = harness.application.metrics.registry
            assert metrics.get_sample_value("tally_stream_clients") == 1
            harness.skip_time(86_400)
            await harness.application.streams.maintain()
            await expect_end(stream)
