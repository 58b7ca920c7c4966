"""The board as it moves: server-sent events to everyone who watches, from every server, with Redis and without."""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from tally.kit.clock import ManualClock
from tally.scoreboard.service.broadcaster import (
    EVENT,
    TOPIC,
    LeaderboardUpdate,
    Place,
    changed_positions,
)
from tests.scoreboard.api.harness import (
    ACTION_KEY,
    ADMIN,
    INTERNAL,
    SESSION_KEY,
    Arena,
    Json,
    running,
    settings_of,
    until,
)
from tests.scoreboard.api.servers import Ground, mortal_redis
from tests.scoreboard.api.stream_client import Watcher, connect, watching

SECONDS = 30


async def test_a_watcher_gets_the_board_and_then_what_changes(fresh: Arena) -> None:
    """First as it is; then the new state with the ranks that changed, and those alone."""
    ana, ben, cem = [await fresh.player(name) for name in ("ana", "ben", "cem")]
    for player, score in ((ana, 30), (ben, 20), (cem, 10)):
        await fresh.score(player, score)
    async with watching(fresh.url) as watcher:
        first = await watcher.update()
        assert [
            (place["rank"], place["username"], place["score"]) for place in first["leaderboard"]
        ] == [
            (1, "ana", 30),
            (2, "ben", 20),
            (3, "cem", 10),
        ]
        assert (first["changed_positions"], first["total_players"]) == ([], 3)
        await fresh.score(cem, 15)
        second = await watcher.update()
        assert [(place["username"], place["score"]) for place in second["leaderboard"]] == [
            ("ana", 30),
            ("cem", 25),
            ("ben", 20),
        ]
        assert second["changed_positions"] == [2, 3]
        assert second["timestamp"].endswith("Z")


async def test_what_happens_below_the_top_ten_is_no_news(fresh: Arena) -> None:
    players = [await fresh.player() for _ in range(12)]
    for player in players[:10]:
        await fresh.score(player, 100)
    async with watching(fresh.url) as watcher:
        await watcher.update()
        await fresh.score(players[10], 5)
        await fresh.score(players[11], 7)
        await fresh.score(players[0], 1)
        update = await watcher.update()
        assert (update["leaderboard"][0]["score"], update["changed_positions"]) == (101, [1])


async def test_who_leaves_the_top_ten_for_good_is_news(fresh: Arena) -> None:
    ana, ben = await fresh.player("ana"), await fresh.player("ben")
    await fresh.score(ana, 2)
    await fresh.score(ben, 1)
    async with watching(fresh.url) as watcher:
        await watcher.update()
        assert (await fresh.send("DELETE", "/users/me", token=ana.token)).status == 204
        update = await watcher.update()
        assert [place["username"] for place in update["leaderboard"]] == ["ben"]
        assert update["changed_positions"] == [1, 2]


async def test_a_burst_is_told_in_few_updates_and_the_last_state_wins(fresh: Arena) -> None:
    """At most ten a second, however many changes there are."""
    players = [await fresh.player() for _ in range(4)]
    tokens = [(player, await fresh.vouch(player)) for player in players for _ in range(20)]
    async with watching(fresh.url) as watcher:
        await watcher.update()
        started = time.monotonic()
        answers = await asyncio.gather(*(fresh.trade(player, token, 5) for player, token in tokens))
        assert {answer.status for answer in answers} == {200}
        updates = [await watcher.update()]
        while [place["score"] for place in updates[-1]["leaderboard"]] != [100] * 4:
            updates.append(await watcher.update())
        most = 10 * (time.monotonic() - started) + 2
        assert len(updates) <= most, f"{len(updates)} updates for {len(tokens)} changes"
        assert updates[-1]["leaderboard"] == [
            {name: place[name] for name in ("rank", "user_id", "username", "score")}
            for place in (await fresh.board())["leaderboard"]
        ]


async def test_who_comes_back_gets_what_was_missed(fresh: Arena) -> None:
    """With `Last-Event-ID`, the updates since; with one that nobody knows, the board as it is."""
    ana = await fresh.player("ana")
    async with watching(fresh.url) as other, watching(fresh.url) as watcher:
        await watcher.update()
        await fresh.score(ana, 5)
        event = await watcher.event()
        watcher.writer.transport.abort()
        await fresh.score(ana, 5)
        await other.until_score(ana.user_id, 10)
        async with watching(fresh.url, last_event_id=event["id"]) as again:
            update = await again.update()
            assert (update["leaderboard"][0]["score"], update["changed_positions"]) == (10, [1])
        async with watching(fresh.url, last_event_id="unheard-of-7") as stranger:
            update = await stranger.update()
            assert (update["leaderboard"][0]["score"], update["changed_positions"]) == (10, [])


async def test_a_silent_stream_is_pinged_every_30_seconds(ground: Ground, tmp_path: Path) -> None:
    clock = ManualClock()
    async with (
        running(settings_of(await ground.place(), tmp_path), clock) as arena,
        watching(arena.url) as watcher,
    ):
        await watcher.update()
        waiting = asyncio.create_task(watcher.piece())
        await clock.advance(29)
        await asyncio.wait({waiting}, timeout=0.05)
        assert not waiting.done()
        await clock.advance(1)
        assert await waiting == ": ping"


async def test_one_stream_too_many_is_refused_until_another_ends(
    ground: Ground, tmp_path: Path
) -> None:
    """The sixth of a player, the eleventh of an address."""
    limits = {"scoreboard_streams_per_user": 5, "scoreboard_streams_per_address": 10}
    async with (
        running(settings_of(await ground.place(), tmp_path, **limits)) as arena,
        AsyncExitStack() as stack,
    ):
        player = await arena.player()
        own = [await stack.enter_async_context(watching(arena.url, player.token)) for _ in range(5)]
        status, refused = await connect(arena.url, player.token)
        assert status == 429
        assert (
            json.loads(await refused.reader.read(10_000))["error"]["code"] == "RATE_LIMIT_EXCEEDED"
        )
        refused.writer.transport.abort()
        for _ in range(5):
            await stack.enter_async_context(watching(arena.url))
        status, eleventh = await connect(arena.url)
        assert status == 429
        eleventh.writer.transport.abort()
        own[0].writer.transport.abort()

        async def is_let_in() -> bool:
            status, watcher = await connect(arena.url, player.token)
            watcher.writer.transport.abort()
            return status == 200

        assert await until(is_let_in) < SECONDS


@pytest.mark.parametrize(("token", "code"), [("x", "UNAUTHORIZED"), ("", "UNAUTHORIZED")])
async def test_a_token_that_does_not_hold_opens_no_stream(
    arena: Arena, token: str, code: str
) -> None:
    answer = await arena.send(
        "GET", "/leaderboard/stream", headers={"Authorization": f"Bearer {token}"}
    )
    assert (answer.status, answer.json["error"]["code"]) == (401, code)


async def test_who_does_not_read_is_dropped_and_costs_nobody_anything(fresh: Arena) -> None:
    """The others go on, and the server keeps nothing for the one that hangs."""
    figure = fresh.parts.metrics.registry.get_sample_value
    places = tuple(Place(rank, f"{rank:036}", "x" * 50, 10**15 - rank) for rank in range(1, 101))
    async with watching(fresh.url) as stalled, watching(fresh.url) as reading:
        await reading.update()
        stalled.writer.transport.pause_reading()  # type: ignore[attr-defined]
        number = 0
        while figure("tally_stream_clients") == 2:
            number += 1
            fresh.parts.hub.publish(
                TOPIC, EVENT, LeaderboardUpdate(places, (1,), number, "2026-01-01T00:00:00Z")
            )
            assert (await reading.update())["total_players"] == number
        assert figure("tally_stream_clients_dropped_total") == 1
        stalled.writer.transport.resume_reading()  # type: ignore[attr-defined]
        with suppress(ConnectionResetError):
            await stalled.reader.read()  # until the end, which the server made


async def test_without_redis_a_server_tells_its_own_watchers_and_looks_for_what_others_did(
    ground: Ground, tmp_path: Path
) -> None:
    """Its own changes at once; those of another server as soon as it has looked into PostgreSQL."""
    dsn, _ = await ground.place()
    async with mortal_redis(tmp_path) as redis:
        settings = settings_of((dsn, redis.address), tmp_path)
        async with (
            running(settings, jobs=True) as one,
            running(settings, jobs=True) as two,
            watching(one.url) as of_one,
            watching(two.url) as of_two,
        ):
            player = await one.player()
            await redis.kill()
            await one.score(player, 5)
            updates = await asyncio.wait_for(all_see([of_one, of_two], player.user_id, 5), SECONDS)
            assert [update["leaderboard"][0]["score"] for update in updates] == [5, 5]
            await redis.start()
            await two.score(player, 5)
            updates = await asyncio.wait_for(all_see([of_one, of_two], player.user_id, 10), SECONDS)
            assert [update["leaderboard"][0]["score"] for update in updates] == [10, 10]


@asynccontextmanager
async def server_process(place: tuple[str, str], folder: Path) -> AsyncIterator[str]:
    """`tally serve scoreboard` in a process of its own."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("TALLY_")
    } | {
        "TALLY_DATA_DIR": str(folder),
        "TALLY_PORT": "0",
        "TALLY_LOG_FORMAT": "json",
        "TALLY_SCOREBOARD_DATABASE_URL": place[0],
        "TALLY_SCOREBOARD_REDIS_URL": place[1],
        "TALLY_SCOREBOARD_ACTION_KEYS": ACTION_KEY.reveal(),
        "TALLY_SCOREBOARD_SESSION_KEYS": SESSION_KEY.reveal(),
        "TALLY_SCOREBOARD_INTERNAL_KEY": INTERNAL,
        "TALLY_SCOREBOARD_ADMIN_KEY": ADMIN,
        "TALLY_SCOREBOARD_STREAMS_PER_ADDRESS": "1000",
    }
    words = (sys.executable, "-m", "tally.cli", "serve", "scoreboard")
    process = await asyncio.create_subprocess_exec(
        *words, env=environment, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    draining = None
    try:
        url = ""
        while not url:
            line = await process.stderr.readline()
            assert line, "it did not start"
            told = json.loads(line)
            url = told["data"]["url"] if told["action"] == "listening" else ""
        draining = asyncio.create_task(process.stderr.read())
        yield url
    finally:
        process.terminate()
        await process.wait()
        if draining is not None:
            await draining


async def test_watchers_of_two_server_processes_all_see_every_change(
    ground: Ground, tmp_path: Path
) -> None:
    """Whichever process made it; and at the end they show what PostgreSQL has."""
    place = await ground.place()
    async with AsyncExitStack() as stack:
        arena = await stack.enter_async_context(running(settings_of(place, tmp_path / "here")))
        servers = [server_process(place, tmp_path / name) for name in ("one", "two")]
        urls = await asyncio.gather(*(stack.enter_async_context(server) for server in servers))
        watchers = [
            await stack.enter_async_context(watching(url)) for url in urls for _ in range(40)
        ]
        player = await arena.player()
        for score, url in enumerate((*urls, arena.url), start=1):
            body = {"action_token": await arena.vouch(player), "score_delta": 1}
            elsewhere = Arena(url, arena.parts, arena.clock, arena.client)
            assert (await elsewhere.send("PATCH", "/scores", body, player.token)).data[
                "new_score"
            ] == score
            updates = await asyncio.wait_for(all_see(watchers, player.user_id, score), SECONDS)
            assert [update["leaderboard"][0]["score"] for update in updates] == [score] * 80


async def all_see(watchers: list[Watcher], user_id: str, score: int) -> list[Json]:
    return await asyncio.gather(*(watcher.until_score(user_id, score) for watcher in watchers))


def test_changed_positions_are_those_that_differ() -> None:
    one, two, three = (Place(rank, str(rank), f"p{rank}", 10 - rank) for rank in (1, 2, 3))
    assert changed_positions([], []) == ()
    assert changed_positions([one, two], [one, two]) == ()
    assert changed_positions([], [one, two]) == (1, 2)
    assert changed_positions([one, two, three], [one]) == (2, 3)
    assert changed_positions([one, two], [one, Place(2, "2", "p2", 99), three]) == (2, 3)
