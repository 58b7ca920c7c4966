"""The leaderboard stream: server-sent events from every instance, with and without Redis."""

import asyncio
import json
import time
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from tally.kit.clock import ManualClock
from tally.scoreboard.api.events import EVENT, TOPIC
from tally.scoreboard.service.broadcaster import changed_positions
from tally.scoreboard.service.ports import LeaderboardUpdate, RankedPlayer
from tests.api_response import expect_error
from tests.scoreboard.api.harness import (
    Json,
    ScoreboardHarness,
    run_scoreboard,
    server_settings,
    wait_until,
)
from tests.scoreboard.api.processes import server_process
from tests.scoreboard.api.servers import SharedServers, restartable_redis
from tests.scoreboard.api.stream_client import StreamClient, connect, open_stream

TIMEOUT_SECONDS = 30


async def test_a_subscriber_receives_a_snapshot_and_then_changes(
    fresh_harness: ScoreboardHarness,
) -> None:
    """Updates name the ranks that changed, and only those."""
    ana, ben, cem = [await fresh_harness.player(name) for name in ("ana", "ben", "cem")]
    for player, score in ((ana, 30), (ben, 20), (cem, 10)):
        await fresh_harness.score(player, score)
    async with open_stream(fresh_harness.url) as stream:
        first = await stream.update()
        assert [
            (entry["rank"], entry["username"], entry["score"]) for entry in first["leaderboard"]
        ] == [
            (1, "ana", 30),
            (2, "ben", 20),
            (3, "cem", 10),
        ]
        assert (first["changed_positions"], first["total_players"]) == ([], 3)
        await fresh_harness.score(cem, 15)
        second = await stream.update()
        assert [(entry["username"], entry["score"]) for entry in second["leaderboard"]] == [
            ("ana", 30),
            ("cem", 25),
            ("ben", 20),
        ]
        assert second["changed_positions"] == [2, 3]
        assert second["timestamp"].endswith("Z")


async def test_changes_below_the_top_ten_are_not_published(
    fresh_harness: ScoreboardHarness,
) -> None:
    players = [await fresh_harness.player() for _ in range(12)]
    for player in players[:10]:
        await fresh_harness.score(player, 100)
    async with open_stream(fresh_harness.url) as stream:
        await stream.update()
        await fresh_harness.score(players[10], 5)
        await fresh_harness.score(players[11], 7)
        await fresh_harness.score(players[0], 1)
        update = await stream.update()
        assert (update["leaderboard"][0]["score"], update["changed_positions"]) == (101, [1])


async def test_a_deletion_from_the_top_ten_is_published(fresh_harness: ScoreboardHarness) -> None:
    ana, ben = await fresh_harness.player("ana"), await fresh_harness.player("ben")
    await fresh_harness.score(ana, 2)
    await fresh_harness.score(ben, 1)
    async with open_stream(fresh_harness.url) as stream:
        await stream.update()
        assert (await fresh_harness.send("DELETE", "/users/me", token=ana.token)).status == 204
        update = await stream.update()
        assert [entry["username"] for entry in update["leaderboard"]] == ["ben"]
        assert update["changed_positions"] == [1, 2]


async def test_a_burst_is_coalesced_and_the_last_state_wins(
    fresh_harness: ScoreboardHarness,
) -> None:
    """At most ten updates a second, however many changes there are."""
    players = [await fresh_harness.player() for _ in range(4)]
    tokens = [
        (player, await fresh_harness.complete_action(player))
        for player in players
        for _ in range(10)
    ]
    async with open_stream(fresh_harness.url) as stream:
        await stream.update()
        started = time.monotonic()
        responses = await asyncio.gather(
            *(fresh_harness.update_score(player, token, 5) for player, token in tokens)
        )
        assert {response.status for response in responses} == {200}
        updates = [await stream.update()]
        while [entry["score"] for entry in updates[-1]["leaderboard"]] != [50] * 4:
            updates.append(await stream.update())
        most = 10 * (time.monotonic() - started) + 2
        assert len(updates) <= most, f"{len(updates)} updates for {len(tokens)} changes"
        assert updates[-1]["leaderboard"] == [
            {name: entry[name] for name in ("rank", "user_id", "username", "score", "avatar_url")}
            for entry in (await fresh_harness.leaderboard())["items"]
        ]


async def test_the_stream_has_the_current_number_of_players(
    fresh_harness: ScoreboardHarness,
) -> None:
    """A registration and a deletion below the top ten change nothing else."""
    for number in range(11):
        await fresh_harness.score(await fresh_harness.player(), 100 - number)
    async with open_stream(fresh_harness.url) as stream:
        assert (await stream.update())["total_players"] == 11
        body = {"username": "newcomer", "email": "n@example.com", "password": "a long password"}
        registered = (await fresh_harness.send("POST", "/auth/register", body)).result
        update = await stream.update()
        assert (update["total_players"], update["changed_positions"]) == (12, [])
        token = registered["tokens"]["access_token"]
        assert (await fresh_harness.send("DELETE", "/users/me", token=token)).status == 204
        assert (await stream.update())["total_players"] == 11


async def test_every_connection_begins_with_the_current_leaderboard(
    fresh_harness: ScoreboardHarness,
) -> None:
    """States have no ids, and a `Last-Event-ID` changes nothing."""
    ana = await fresh_harness.player("ana")
    async with open_stream(fresh_harness.url) as stream:
        await stream.update()
        await fresh_harness.score(ana, 5)
        assert "id" not in await stream.event()
    await fresh_harness.score(ana, 5)
    for last_event_id in ("", "unknown-7"):
        async with open_stream(fresh_harness.url, last_event_id=last_event_id) as reconnected:
            update = await reconnected.update()
            assert (update["leaderboard"][0]["score"], update["changed_positions"]) == (10, [])


async def test_an_idle_stream_sends_a_ping_every_30_seconds(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    clock = ManualClock()
    async with (
        run_scoreboard(
            server_settings(await shared_servers.allocate(), tmp_path), clock
        ) as harness,
        open_stream(harness.url) as stream,
    ):
        await stream.update()
        waiting = asyncio.create_task(stream.block())
        await clock.advance(29)
        await asyncio.wait({waiting}, timeout=0.05)
        assert not waiting.done()
        await clock.advance(1)
        assert await waiting == ": ping"


async def test_streams_above_the_limit_are_rejected_until_one_closes(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """The sixth of a player, and the eleventh of an address."""
    limits = {"streams_per_person": 5, "streams_per_address": 10}
    async with (
        run_scoreboard(
            server_settings(await shared_servers.allocate(), tmp_path, **limits)
        ) as harness,
        AsyncExitStack() as stack,
    ):
        player = await harness.player()
        own = [
            await stack.enter_async_context(open_stream(harness.url, player.token))
            for _ in range(5)
        ]
        status, rejected = await connect(harness.url, player.token)
        assert status == 429
        assert json.loads(await rejected.reader.read(10_000))["code"] == "too_many_streams"
        rejected.writer.transport.abort()
        for _ in range(5):
            await stack.enter_async_context(open_stream(harness.url))
        status, eleventh = await connect(harness.url)
        assert status == 429
        eleventh.writer.transport.abort()
        own[0].writer.transport.abort()

        async def is_accepted() -> bool:
            status, stream = await connect(harness.url, player.token)
            stream.writer.transport.abort()
            return status == 200

        assert await wait_until(is_accepted) < TIMEOUT_SECONDS


@pytest.mark.parametrize(("token", "code"), [("x", "invalid_token"), ("", "missing_token")])
async def test_an_invalid_token_opens_no_stream(
    harness: ScoreboardHarness, token: str, code: str
) -> None:
    response = await harness.send(
        "GET", "/leaderboard/stream", headers={"Authorization": f"Bearer {token}"}
    )
    expect_error(response, 401, code)


async def test_a_subscriber_that_does_not_read_is_dropped(
    fresh_harness: ScoreboardHarness,
) -> None:
    """Other subscribers continue, and the server frees the connection."""
    sample_value = fresh_harness.application.metrics.registry.get_sample_value
    players = tuple(
        RankedPlayer(rank, f"{rank:036}", "x" * 50, 10**15 - rank) for rank in range(1, 101)
    )
    async with open_stream(fresh_harness.url) as stalled, open_stream(fresh_harness.url) as reading:
        await reading.update()
        stalled.writer.transport.pause_reading()  # type: ignore[attr-defined]
        number = 0
        while sample_value("tally_stream_clients") == 2:
            number += 1
            fresh_harness.application.hub.publish_state(
                TOPIC, EVENT, LeaderboardUpdate(players, (1,), number, "2026-01-01T00:00:00Z")
            )
            assert (await reading.update())["total_players"] == number
        assert sample_value("tally_stream_clients_dropped_total") == 1
        stalled.writer.transport.resume_reading()  # type: ignore[attr-defined]
        with suppress(ConnectionResetError):
            await stalled.reader.read()  # until the server closes the connection


async def test_without_redis_servers_publish_their_changes_and_poll_for_others(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """Its own changes immediately, those of another server after polling PostgreSQL."""
    dsn, _ = await shared_servers.allocate()
    async with restartable_redis(tmp_path) as redis:
        settings = server_settings((dsn, redis.address), tmp_path)
        async with (
            run_scoreboard(settings, jobs=True) as one,
            run_scoreboard(settings, jobs=True) as two,
            open_stream(one.url) as first_stream,
            open_stream(two.url) as second_stream,
        ):
            player = await one.player()
            await redis.kill()
            await one.score(player, 5)
            updates = await asyncio.wait_for(
                wait_for_score([first_stream, second_stream], player.user_id, 5), TIMEOUT_SECONDS
            )
            assert [update["leaderboard"][0]["score"] for update in updates] == [5, 5]
            await redis.start()
            await two.score(player, 5)
            updates = await asyncio.wait_for(
                wait_for_score([first_stream, second_stream], player.user_id, 10), TIMEOUT_SECONDS
            )
            assert [update["leaderboard"][0]["score"] for update in updates] == [10, 10]


async def test_subscribers_of_all_processes_receive_every_change(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """Whichever process made the change."""
    addresses = await shared_servers.allocate()
    async with AsyncExitStack() as stack:
        harness = await stack.enter_async_context(
            run_scoreboard(server_settings(addresses, tmp_path / "here"))
        )
        servers = [
            server_process(addresses, tmp_path / name, {"TALLY_STREAMS_PER_ADDRESS": "1000"})
            for name in ("one", "two")
        ]
        processes = await asyncio.gather(*(stack.enter_async_context(server) for server in servers))
        urls = [process.url for process in processes]
        streams = [
            await stack.enter_async_context(open_stream(url)) for url in urls for _ in range(40)
        ]
        player = await harness.player()
        for score, url in enumerate((*urls, harness.url), start=1):
            body = {"action_token": await harness.complete_action(player), "score_delta": 1}
            elsewhere = ScoreboardHarness(url, harness.application, harness.clock, harness.client)
            assert (await elsewhere.send("PATCH", "/scores", body, player.token)).result[
                "new_score"
            ] == score
            updates = await asyncio.wait_for(
                wait_for_score(streams, player.user_id, score), TIMEOUT_SECONDS
            )
            assert [update["leaderboard"][0]["score"] for update in updates] == [score] * 80


async def wait_for_score(streams: list[StreamClient], user_id: str, score: int) -> list[Json]:
    return await asyncio.gather(*(stream.update_with_score(user_id, score) for stream in streams))


def test_changed_positions_are_the_ranks_that_differ() -> None:
    one, two, three = (RankedPlayer(rank, str(rank), f"p{rank}", 10 - rank) for rank in (1, 2, 3))
    assert changed_positions([], []) == ()
    assert changed_positions([one, two], [one, two]) == ()
    assert changed_positions([], [one, two]) == (1, 2)
    assert changed_positions([one, two, three], [one]) == (2, 3)
    assert changed_positions([one, two], [one, RankedPlayer(2, "2", "p2", 99), three]) == (2, 3)
