"""Servers that are away: told at once, in the domain's words, and forgiven when they are back."""

import asyncio
from pathlib import Path

import pytest

from tally.errors import Unavailable
from tally.kit.clock import SystemClock
from tally.kit.metrics import Metrics
from tally.scoreboard.model import CacheUnavailable, Score
from tally.scoreboard.repository.database import PoolLimits, open_database_pool
from tally.scoreboard.repository.leaderboard import LeaderboardCache
from tally.scoreboard.repository.metrics import StorageMetrics
from tally.scoreboard.repository.migrations import migrate
from tally.scoreboard.repository.rate_limits import RateLimitRepository
from tally.scoreboard.repository.redis_client import open_redis
from tests.scoreboard.api.servers import restartable_postgres, restartable_redis
from tests.scoreboard.repository.conftest import Addresses
from tests.scoreboard.repository.harness import START, Repositories

NOWHERE = "postgresql://tally@/postgres?host=/nowhere"


async def test_a_redis_that_is_killed_is_away_at_once_and_back_as_soon_as_it_is(
    tmp_path: Path,
) -> None:
    """No call hangs, and none fails once Redis is there again."""
    clock, metrics = SystemClock(), StorageMetrics(Metrics())
    async with (
        restartable_redis(tmp_path) as redis,
        open_redis(redis.address, clock, metrics) as server,
    ):
        board, limits = LeaderboardCache(server), RateLimitRepository(server, clock)
        await asyncio.gather(*(server.ping() for _ in range(20)))
        await redis.kill()
        for call in (
            board.put(Score("u", "x", 1, START)),
            board.top(1),
            limits.hit("score", "u", 1, 60),
            server.ping(),
        ):
            with pytest.raises(CacheUnavailable):
                await call
        await redis.start()
        assert [
            each.is_allowed
            for each in await asyncio.gather(*(limits.hit("score", "u", 20, 60) for _ in range(20)))
        ] == [True] * 20


async def test_a_redis_that_hangs_is_away_after_its_time(tmp_path: Path) -> None:
    """A stopped process accepts connections and never answers."""
    clock, metrics = SystemClock(), StorageMetrics(Metrics())
    async with (
        restartable_redis(tmp_path) as redis,
        open_redis(redis.address, clock, metrics, seconds=0.1) as server,
    ):
        await server.ping()
        redis.pause()
        try:
            with pytest.raises(CacheUnavailable, match="Timeout"):
                await server.ping()
        finally:
            redis.resume()
        await server.ping()


async def test_a_postgres_that_is_killed_is_unavailable_and_has_everything_when_it_is_back(
    tmp_path: Path,
) -> None:
    """What was committed is there, and the pool mends itself."""
    clock, metrics = SystemClock(), StorageMetrics(Metrics())
    limits = PoolLimits(acquire_seconds=1, connect_seconds=1)
    async with (
        restartable_postgres(tmp_path) as postgres,
        open_database_pool(postgres.address, clock, metrics, limits) as database,
    ):
        await migrate(database)
        async with open_redis("unix:///nowhere", clock, metrics) as server:
            repositories = Repositories(database, server)
            player = await repositories.player()
            await repositories.add(player, 5)
            await postgres.kill()
            for call in (
                repositories.add(player, 1),
                repositories.scores.top(10),
                repositories.accounts.find(player.user_id),
                database.ping(),
            ):
                with pytest.raises(Unavailable) as refused:
                    await call
                assert refused.value.retry_after is not None
            await postgres.start()
            score = await repositories.scores.find(player.user_id)
            assert score is not None
            assert score.score == 5
            assert (await repositories.add(player, 1)).score_after == 6


async def test_a_statement_that_takes_too_long_is_given_up(addresses: Addresses) -> None:
    """By PostgreSQL itself, so that it costs nobody anything after that; the connection goes on."""
    limits = PoolLimits(max_connections=1, statement_seconds=0.05)
    async with open_database_pool(
        addresses.dsn, SystemClock(), StorageMetrics(Metrics()), limits
    ) as database:
        with pytest.raises(Unavailable):
            await database.value("slow", "SELECT pg_sleep(10)")
        await database.ping()


async def test_a_server_that_is_not_there_at_the_start_is_told(tmp_path: Path) -> None:
    metrics = StorageMetrics(Metrics())
    with pytest.raises(Unavailable):
        async with open_database_pool(
            NOWHERE, SystemClock(), metrics, PoolLimits(connect_seconds=1)
        ):
            pytest.fail("there is no such server")


async def test_calls_are_measured_by_name_and_outcome(tmp_path: Path) -> None:
    metrics, clock = Metrics(), SystemClock()
    async with open_redis("unix:///nowhere", clock, StorageMetrics(metrics)) as server:
        with pytest.raises(CacheUnavailable):
            await server.ping()
    assert (
        b'tally_scoreboard_storage_call_duration_seconds_count{call="ping",outcome="unavailable",server="redis"} 1.0'
        in metrics.render()
    )
