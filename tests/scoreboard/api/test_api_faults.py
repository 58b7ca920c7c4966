"""Server failures: without Redis responses stay correct, without PostgreSQL they are a fast 503."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.api_response import expect_error
from tests.scoreboard.api.harness import (
    API,
    TIMEOUT_SECONDS,
    Player,
    ScoreboardHarness,
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
async def run_with_restartable_redis(
    shared_servers: SharedServers, directory: Path, **changes: Any
) -> AsyncIterator[tuple[ScoreboardHarness, RestartableServer]]:
    """Run a server with jobs and a Redis that the test can kill."""
    dsn, _ = await shared_servers.allocate()
    async with (
        restartable_redis(directory) as redis,
        run_scoreboard(
            server_settings((dsn, redis.address), directory, **changes), jobs=True
        ) as harness,
    ):
        yield harness, redis


async def is_caught_up(harness: ScoreboardHarness) -> bool:
    """Return whether the leaderboard in Redis is complete and equals PostgreSQL."""
    response = await harness.admin("GET", "/drift")
    return (
        response.status == 200
        and response.result["found"] == 0
        and not harness.scoreboard.services.cache_sync.backlog.has_pending_changes()
    )


async def own_score(harness: ScoreboardHarness, player: Player) -> Any:
    return (await harness.send("GET", "/scores/me", token=player.token)).result["score"]


async def test_replays_add_once_across_redis_restarts(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """A hundred concurrent uses of a token while Redis is down, back, and empty again."""
    async with run_with_restartable_redis(shared_servers, tmp_path) as (harness, redis):
        player = await harness.player()
        first, second = await harness.complete_action(player), await harness.complete_action(player)
        responses: dict[str, set[bytes]] = {first: set(), second: set()}

        async def use(token: str) -> None:
            batch = await asyncio.gather(
                *(harness.update_score(player, token, 5) for _ in range(100))
            )
            assert {response.status for response in batch} == {200}
            responses[token] |= {response.body for response in batch}

        await redis.kill()
        await use(first)
        await redis.start()
        await use(first)
        await use(second)
        await redis.restart()
        await use(second)
        assert [len(bodies) for bodies in responses.values()] == [1, 1]
        assert await own_score(harness, player) == 10


async def test_replays_add_once_while_redis_is_killed(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    async with run_with_restartable_redis(shared_servers, tmp_path) as (harness, redis):
        player = await harness.player()
        token = await harness.complete_action(player)
        using = [asyncio.create_task(harness.update_score(player, token, 5)) for _ in range(20)]
        await asyncio.wait(using, return_when=asyncio.FIRST_COMPLETED)
        await redis.kill()
        using += [asyncio.create_task(harness.update_score(player, token, 5)) for _ in range(20)]
        batch = await asyncio.gather(*using)
        assert {response.status for response in batch} == {200}
        assert len({response.body for response in batch}) == 1
        assert await own_score(harness, player) == 5


@pytest.mark.soak
async def test_redis_killed_under_load_fails_no_request_and_loses_no_score(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """Redis is killed and restarted twice under load; within seconds it equals PostgreSQL."""
    async with run_with_restartable_redis(shared_servers, tmp_path) as (harness, redis):
        players = [await harness.player() for _ in range(8)]
        added = dict.fromkeys((player.user_id for player in players), 0)
        is_over = asyncio.Event()

        async def play(player: Player) -> None:
            while not is_over.is_set():
                await harness.score(player, 3)
                added[player.user_id] += 3
                leaderboard = await harness.leaderboard("?limit=100")
                [own] = [
                    entry for entry in leaderboard["items"] if entry["user_id"] == player.user_id
                ]
                assert own["score"] == added[player.user_id]

        playing = [asyncio.create_task(play(player)) for player in players]
        for _ in range(2):
            before = sum(added.values())
            await wait_until(lambda before=before: _as_coroutine(sum(added.values()) > before + 60))  # type: ignore[misc]
            await redis.kill()
            before = sum(added.values())
            await wait_until(lambda before=before: _as_coroutine(sum(added.values()) > before + 60))  # type: ignore[misc]
            await redis.start()
            took = await wait_until(lambda: is_caught_up(harness))
            assert took < 10, f"the leaderboard was stale for {took:.1f} s"
        is_over.set()
        await asyncio.gather(*playing)
        await wait_until(lambda: is_caught_up(harness))
        leaderboard = await harness.leaderboard("?limit=100")
        assert {entry["user_id"]: entry["score"] for entry in leaderboard["items"]} == added
        assert [entry["score"] for entry in leaderboard["items"]] == sorted(
            added.values(), reverse=True
        )


async def _as_coroutine(value: bool) -> bool:
    return value


async def test_all_requests_succeed_without_redis(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """From registration to deletion; Redis has the changes after its restart."""
    async with run_with_restartable_redis(shared_servers, tmp_path) as (harness, redis):
        ana, ben = await harness.player("ana"), await harness.player("ben")
        await harness.score(ana, 10)
        await redis.kill()
        assert (await harness.score(ben, 20))["rank"] == 1
        body = {"username": "cem", "email": "cem@example.com", "password": "long enough"}
        cem = (await harness.send("POST", "/auth/register", body)).result
        token = cem["tokens"]["access_token"]
        assert [entry["username"] for entry in (await harness.leaderboard())["items"]] == [
            "ben",
            "ana",
            "cem",
        ]
        assert (await harness.send("GET", "/scores/me", token=token)).result["rank"] == 3
        assert (await harness.send("DELETE", "/users/me", token=ana.token)).status == 204
        assert (await harness.send("POST", "/auth/logout", token=token)).status == 204
        expect_error(await harness.send("GET", "/scores/me", token=token), 401, "session_revoked")
        expect_error(await harness.admin("GET", "/drift"), 503, "unavailable")
        await redis.start()
        await wait_until(lambda: is_caught_up(harness))
        assert [entry["username"] for entry in (await harness.leaderboard())["items"]] == [
            "ben",
            "cem",
        ]


async def test_changes_that_redis_missed_while_paused_are_written_later(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """A paused Redis keeps stale data: revoked sessions, deleted players and old scores."""
    async with run_with_restartable_redis(
        shared_servers, tmp_path, scoreboard_redis_milliseconds=100
    ) as (
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
        assert time.monotonic() - started < TIMEOUT_SECONDS, "no request waits for Redis to resume"
        redis.resume()
        expect_error(
            await harness.send("GET", "/scores/me", token=ben.token), 401, "session_revoked"
        )
        await wait_until(lambda: is_caught_up(harness))
        expect_error(
            await harness.send("GET", "/scores/me", token=ben.token), 401, "session_revoked"
        )
        expect_error(
            await harness.send("GET", "/scores/me", token=ana.token), 401, "session_revoked"
        )
        leaderboard = (await harness.leaderboard())["items"]
        assert [(entry["username"], entry["score"]) for entry in leaderboard] == [
            ("cem", 60),
            ("ben", 20),
        ]


async def test_an_unavailable_redis_does_not_delay_every_request(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """After a few failures the circuit breaker opens, and only probes call Redis."""
    async with run_with_restartable_redis(
        shared_servers, tmp_path, scoreboard_redis_milliseconds=1_000
    ) as (
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
        assert time.monotonic() - started < 15, "twenty waits would take at least 20 s"
        redis.resume()
        await wait_until(lambda: is_caught_up(harness))


async def readiness(harness: ScoreboardHarness, prefix: str = "") -> tuple[int, dict[str, str]]:
    response = await harness.client.get(f"{harness.url}{prefix}/health/ready").build().send()
    checks = (await response.json())["checks"]
    return response.status, {name: check["status"] for name, check in checks.items()}


async def test_readiness_requires_postgresql_and_reports_redis(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    async with run_with_restartable_redis(shared_servers, tmp_path) as (harness, redis):
        expected = {"store": "ok", "clock": "ok", "postgresql": "ok", "redis": "ok"}
        assert await readiness(harness) == (200, expected)
        await redis.kill()
        await wait_for_readiness(harness, 200, **(expected | {"redis": "failed"}))
        assert await readiness(harness, API) == (200, {"postgresql": "ok", "redis": "failed"})


async def wait_for_readiness(harness: ScoreboardHarness, status: int, **checks: str) -> None:
    """Wait for a status and for results; the probes run once per second."""

    async def is_reported() -> bool:
        reported, results = await readiness(harness)
        return reported == status and checks.items() <= results.items()

    await wait_until(is_reported)


async def test_without_postgresql_the_response_is_a_fast_503_until_it_recovers(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """Acknowledged updates survive, failed ones can be retried, and no restart is needed."""
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
            response = await harness.update_score(player, token, 5)
            assert time.monotonic() - started < TIMEOUT_SECONDS, "no request waits for PostgreSQL"
            expect_error(response, 503, "unavailable")
            assert response.headers["retry-after"] == "1"
        assert (await harness.leaderboard())["items"][0]["score"] == 10, "cached reads continue"
        await wait_for_readiness(harness, 503, postgresql="failed")
        assert (await readiness(harness, API))[0] == 503
        await postgres.start()
        assert (await harness.update_score(player, token, 5)).result["new_score"] == 15
        await wait_for_readiness(harness, 200)
        assert (await harness.admin("GET", "/drift")).result["found"] == 0


async def test_postgresql_killed_under_load_loses_no_acknowledged_update(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """Players retry failed updates with the same token, and each token counts once."""
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

        is_under_load = asyncio.Event()

        async def play(player: Player) -> None:
            for token in tokens[player.user_id]:
                while (response := await harness.update_score(player, token, 5)).status != 200:
                    expect_error(response, 503, "unavailable")
                    await asyncio.sleep(0.05)
                is_under_load.set()

        playing = [asyncio.create_task(play(player)) for player in players]
        await is_under_load.wait()
        assert not any(task.done() for task in playing)
        await postgres.restart()
        await asyncio.gather(*playing)
        assert [await own_score(harness, player) for player in players] == [60, 60, 60, 60]
        await wait_until(lambda: is_caught_up(harness))
