"""Servers that die: without Redis everything still answers, correctly; without PostgreSQL the answer is 503, and quick."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.scoreboard.api.harness import (
    Player,
    ScoreboardHarness,
    expect_error,
    run_scoreboard,
    server_settings,
    wait_until,
)
from tests.scoreboard.api.servers import (
    RestartableServer,
    SharedServers,
    restartable_postgres,
    restartable_redis,
)


@asynccontextmanager
async def with_redis(
    shared_servers: SharedServers, folder: Path, **changes: Any
) -> AsyncIterator[tuple[ScoreboardHarness, RestartableServer]]:
    """A server with jobs, and a Redis that can be killed."""
    dsn, _ = await shared_servers.allocate()
    async with (
        restartable_redis(folder) as redis,
        run_scoreboard(
            server_settings((dsn, redis.address), folder, **changes), jobs=True
        ) as harness,
    ):
        yield harness, redis


async def is_caught_up(harness: ScoreboardHarness) -> bool:
    """Whether the board in Redis is whole and equal to PostgreSQL."""
    answer = await harness.admin("GET", "/drift")
    return (
        answer.status == 200
        and answer.data["found"] == 0
        and not harness.scoreboard.services.cache_sync.backlog.has_pending_changes()
    )


async def my_score(harness: ScoreboardHarness, player: Player) -> Any:
    return (await harness.send("GET", "/scores/me", token=player.token)).data["score"]


async def test_replays_add_once_with_redis_down_and_restarted_in_between(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """A hundred uses of a token at once, while it is down, when it is back, and with its memory lost again."""
    async with with_redis(shared_servers, tmp_path) as (harness, redis):
        player = await harness.player()
        first, second = await harness.complete_action(player), await harness.complete_action(player)
        answers: dict[str, set[bytes]] = {first: set(), second: set()}

        async def use(token: str) -> None:
            found = await asyncio.gather(
                *(harness.update_score(player, token, 5) for _ in range(100))
            )
            assert {answer.status for answer in found} == {200}
            answers[token] |= {answer.body for answer in found}

        await redis.kill()
        await use(first)
        await redis.start()
        await use(first)
        await use(second)
        await redis.restart()
        await use(second)
        assert [len(found) for found in answers.values()] == [1, 1]
        assert await my_score(harness, player) == 10


async def test_redis_dies_in_the_middle_of_a_hundred_replays(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    async with with_redis(shared_servers, tmp_path) as (harness, redis):
        player = await harness.player()
        token = await harness.complete_action(player)
        using = [asyncio.create_task(harness.update_score(player, token, 5)) for _ in range(50)]
        await asyncio.wait(using, return_when=asyncio.FIRST_COMPLETED)
        await redis.kill()
        using += [asyncio.create_task(harness.update_score(player, token, 5)) for _ in range(50)]
        found = await asyncio.gather(*using)
        assert {answer.status for answer in found} == {200}
        assert len({answer.body for answer in found}) == 1
        assert await my_score(harness, player) == 5


@pytest.mark.soak
async def test_redis_killed_under_load_fails_no_request_and_loses_no_score(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """Everyone goes on playing while it dies and comes back twice; seconds later the board equals PostgreSQL."""
    async with with_redis(shared_servers, tmp_path) as (harness, redis):
        players = [await harness.player() for _ in range(8)]
        added = dict.fromkeys((player.user_id for player in players), 0)
        is_over = asyncio.Event()

        async def play(player: Player) -> None:
            while not is_over.is_set():
                await harness.score(player, 3)
                added[player.user_id] += 3
                shown = await harness.leaderboard("?limit=100")
                [mine] = [
                    place for place in shown["leaderboard"] if place["user_id"] == player.user_id
                ]
                assert mine["score"] == added[player.user_id]

        playing = [asyncio.create_task(play(player)) for player in players]
        for _ in range(2):
            before = sum(added.values())
            await wait_until(lambda before=before: _async(sum(added.values()) > before + 60))  # type: ignore[misc]
            await redis.kill()
            before = sum(added.values())
            await wait_until(lambda before=before: _async(sum(added.values()) > before + 60))  # type: ignore[misc]
            await redis.start()
            took = await wait_until(lambda: is_caught_up(harness))
            assert took < 10, f"the board was behind for {took:.1f} s"
        is_over.set()
        await asyncio.gather(*playing)
        await wait_until(lambda: is_caught_up(harness))
        shown = await harness.leaderboard("?limit=100")
        assert {place["user_id"]: place["score"] for place in shown["leaderboard"]} == added
        assert [place["score"] for place in shown["leaderboard"]] == sorted(
            added.values(), reverse=True
        )


async def _async(holds: bool) -> bool:
    return holds


async def test_without_redis_everything_answers_correctly(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """From signing up to leaving, with the right ranks; and all of it is in Redis when it is back."""
    async with with_redis(shared_servers, tmp_path) as (harness, redis):
        ana, ben = await harness.player("ana"), await harness.player("ben")
        await harness.score(ana, 10)
        await redis.kill()
        assert (await harness.score(ben, 20))["rank"] == 1
        body = {"username": "cem", "email": "cem@example.com", "password": "long enough"}
        cem = (await harness.send("POST", "/auth/register", body)).data
        token = cem["tokens"]["access_token"]
        assert [place["username"] for place in (await harness.leaderboard())["leaderboard"]] == [
            "ben",
            "ana",
            "cem",
        ]
        assert (await harness.send("GET", "/scores/me", token=token)).data["rank"] == 3
        assert (await harness.send("DELETE", "/users/me", token=ana.token)).status == 204
        assert (await harness.send("POST", "/auth/logout", token=token)).status == 204
        expect_error(await harness.send("GET", "/scores/me", token=token), 401, "SESSION_REVOKED")
        expect_error(await harness.admin("GET", "/drift"), 503, "SERVICE_UNAVAILABLE")
        await redis.start()
        await wait_until(lambda: is_caught_up(harness))
        assert [place["username"] for place in (await harness.leaderboard())["leaderboard"]] == [
            "ben",
            "cem",
        ]


async def test_what_redis_missed_while_it_hung_is_made_up_for(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """It did not die, so it still believes what it believed: sessions that have ended, people who have left, old scores."""
    async with with_redis(shared_servers, tmp_path, scoreboard_redis_milliseconds=100) as (
        harness,
        redis,
    ):
        ana, ben, cem = (
            await harness.player("ana"),
            await harness.player("ben"),
            await harness.player("cem"),
        )
        for player, score in ((ana, 30), (ben, 20), (cem, 10)):
            await harness.score(player, score)
        redis.pause()
        started = time.monotonic()
        assert (await harness.score(cem, 50))["rank"] == 1
        assert (await harness.send("POST", "/auth/logout", token=ben.token)).status == 204
        assert (await harness.send("DELETE", "/users/me", token=ana.token)).status == 204
        assert time.monotonic() - started < 5, (
            "a Redis that hangs costs a moment, not a time-out for each request"
        )
        redis.resume()
        expect_error(
            await harness.send("GET", "/scores/me", token=ben.token), 401, "SESSION_REVOKED"
        )
        await wait_until(lambda: is_caught_up(harness))
        expect_error(
            await harness.send("GET", "/scores/me", token=ben.token), 401, "SESSION_REVOKED"
        )
        expect_error(
            await harness.send("GET", "/scores/me", token=ana.token), 401, "SESSION_REVOKED"
        )
        shown = (await harness.leaderboard())["leaderboard"]
        assert [(place["username"], place["score"]) for place in shown] == [
            ("cem", 60),
            ("ben", 20),
        ]


async def test_a_redis_that_is_away_costs_no_time_out_for_each_request(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """After a few failures it is not asked any more, except by one request now and then."""
    async with with_redis(shared_servers, tmp_path, scoreboard_redis_milliseconds=300) as (
        harness,
        redis,
    ):
        player = await harness.player()
        redis.pause()
        for _ in range(2):
            await harness.score(player, 1)
        started = time.monotonic()
        for _ in range(20):
            await harness.leaderboard()
        assert time.monotonic() - started < 4
        redis.resume()
        await wait_until(lambda: is_caught_up(harness))


async def readiness(harness: ScoreboardHarness) -> tuple[int, dict[str, str]]:
    response = await harness.client.get(f"{harness.url}/health/ready").build().send()
    return response.status, (await response.json())["checks"]


async def test_readiness_asks_for_postgresql_and_only_tells_of_redis(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    async with with_redis(shared_servers, tmp_path) as (harness, redis):
        assert await readiness(harness) == (200, {"store": "ok", "postgresql": "ok", "redis": "ok"})
        await redis.kill()
        assert await readiness(harness) == (
            200,
            {"store": "ok", "postgresql": "ok", "redis": "failed"},
        )


async def test_without_postgresql_the_answer_is_503_and_quick_and_it_recovers(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """Nothing that was answered is lost, what was not answered may be sent again, and no restart is needed."""
    _, redis_url = await shared_servers.allocate()
    async with (
        restartable_postgres(tmp_path) as postgres,
        run_scoreboard(
            server_settings((postgres.address, redis_url), tmp_path), jobs=True
        ) as harness,
    ):
        player = await harness.player()
        assert (await harness.score(player, 10))["new_score"] == 10
        token = await harness.complete_action(player)
        await postgres.kill()
        for _ in range(3):
            started = time.monotonic()
            answer = await harness.update_score(player, token, 5)
            assert time.monotonic() - started < 3, "quick, also on a busy machine"
            expect_error(answer, 503, "SERVICE_UNAVAILABLE")
            assert answer.headers["retry-after"] == "1"
        assert (await harness.leaderboard())["leaderboard"][0]["score"] == 10, (
            "what Redis knows is still shown"
        )
        status, checks = await readiness(harness)
        assert (status, checks["postgresql"]) == (503, "failed")
        await postgres.start()
        assert (await harness.update_score(player, token, 5)).data["new_score"] == 15
        assert (await readiness(harness))[0] == 200
        assert (await harness.admin("GET", "/drift")).data["found"] == 0


async def test_postgresql_killed_under_load_loses_nothing_that_was_answered(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """Players send what failed again, with the same token; each token counts once."""
    _, redis_url = await shared_servers.allocate()
    async with (
        restartable_postgres(tmp_path) as postgres,
        run_scoreboard(
            server_settings((postgres.address, redis_url), tmp_path), jobs=True
        ) as harness,
    ):
        players = [await harness.player() for _ in range(4)]
        tokens = {
            player.user_id: [await harness.complete_action(player) for _ in range(12)]
            for player in players
        }

        async def play(player: Player) -> None:
            for token in tokens[player.user_id]:
                while (answer := await harness.update_score(player, token, 5)).status != 200:
                    expect_error(answer, 503, "SERVICE_UNAVAILABLE")
                    await asyncio.sleep(0.05)

        playing = [asyncio.create_task(play(player)) for player in players]
        done, _ = await asyncio.wait(playing, timeout=0.1)
        assert not done
        await postgres.restart()
        await asyncio.gather(*playing)
        assert [await my_score(harness, player) for player in players] == [60, 60, 60, 60]
        await wait_until(lambda: is_caught_up(harness))
