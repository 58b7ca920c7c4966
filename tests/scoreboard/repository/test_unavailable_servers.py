"""Unavailable servers raise domain errors promptly, and calls succeed once they are back."""

import asyncio
from pathlib import Path

import pytest

from tally.errors import Unavailable
from tally.kit.clock import SystemClock
from tally.kit.metrics import Metrics
from tally.scoreboard.model.accounts import SlidingWindow
from tally.scoreboard.model.errors import CacheUnavailable
from tally.scoreboard.model.scores import Score
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


async def test_calls_fail_immediately_while_redis_is_down_and_succeed_after_its_restart(
    tmp_path: Path,
) -> None:
    """No call hangs."""
    clock, metrics = SystemClock(), StorageMetrics(Metrics())
    async with (
        restartable_redis(tmp_path) as redis,
        open_redis(redis.address, clock, metrics) as client,
    ):
        leaderboard, limits = LeaderboardCache(client), RateLimitRepository(client, clock)
        await asyncio.gather(*(client.ping() for _ in range(20)))
        await redis.kill()
        for call in (
            leaderboard.put(Score("u", "x", 1, START)),
            leaderboard.top(1),
            limits.hit(SlidingWindow("score", "u", 1)),
            client.ping(),
        ):
            with pytest.raises(CacheUnavailable):
                await call
        await redis.start()
        assert [
            status.is_allowed
            for status in await asyncio.gather(
                *(limits.hit(SlidingWindow("score", "u", 20)) for _ in range(20))
            )
        ] == [True] * 20


async def test_calls_to_a_paused_redis_time_out(tmp_path: Path) -> None:
    """A paused process accepts connections and does not respond."""
    clock, metrics = SystemClock(), StorageMetrics(Metrics())
    async with (
        restartable_redis(tmp_path) as redis,
        open_redis(redis.address, clock, metrics, seconds=0.1) as client,
    ):
        await client.ping()
        redis.pause()
        try:
            with pytest.raises(CacheUnavailable, match="Timeout"):
                await client.ping()
        finally:
            redis.resume()
        await client.ping()


async def test_a_killed_postgres_is_unavailable_and_keeps_committed_data(
    tmp_path: Path,
) -> None:
    """The pool reconnects by itself."""
    clock, metrics = SystemClock(), StorageMetrics(Metrics())
    limits = PoolLimits(acquire_seconds=1, connect_seconds=1)
    async with (
        restartable_postgres(tmp_path) as postgres,
        open_database_pool(postgres.address, clock, metrics, limits) as database,
    ):
        await migrate(database)
        async with open_redis("unix:///nowhere", clock, metrics) as client:
            repositories = Repositories(database, client)
            player = await repositories.player()
            await repositories.add(player, 5)
            await postgres.kill()
            for call in (
                repositories.add(player, 1),
                repositories.scores.top(10),
                repositories.accounts.find(player.user_id),
                database.ping(),
            ):
                with pytest.raises(Unavailable) as raised:
                    await call
                assert raised.value.retry_after is not None
            await postgres.start()
            score = await repositories.scores.find(player.user_id)
            assert score is not None
            assert score.score == 5
            assert (await repositories.add(player, 1)).score_after == 6


async def test_a_slow_statement_times_out(addresses: Addresses) -> None:
    """PostgreSQL cancels it, and the connection stays usable."""
    limits = PoolLimits(max_connections=1, statement_seconds=0.05)
    async with open_database_pool(
        addresses.dsn, SystemClock(), StorageMetrics(Metrics()), limits
    ) as database:
        with pytest.raises(Unavailable):
            await database.value("slow", "SELECT pg_sleep(10)")
        await database.ping()


async def test_a_missing_server_is_reported_at_startup(tmp_path: Path) -> None:
    metrics = StorageMetrics(Metrics())
    with pytest.raises(Unavailable):
        async with open_database_pool(
            NOWHERE, SystemClock(), metrics, PoolLimits(connect_seconds=1)
        ):
            pytest.fail("the server does not exist")


async def test_calls_are_measured_by_name_and_outcome(tmp_path: Path) -> None:
    metrics, clock = Metrics(), SystemClock()
    async with open_redis("unix:///nowhere", clock, StorageMetrics(metrics)) as client:
        with pytest.raises(CacheUnavailable):
            await client.ping()
    assert (
        b"tally_scoreboard_storage_call_duration_seconds_count"
        b'{call="ping",outcome="unavailable",server="redis"} 1.0' in metrics.render()
    )


def test_an_outage_is_logged_once() -> None:
    """It may last for hours; the next one is logged again."""
    metrics = StorageMetrics(Metrics())
    assert metrics.should_log("redis", now=0.0)
    assert not any(metrics.should_log("redis", now=seconds) for seconds in (1.0, 60.0, 3_600.0))
    assert metrics.should_log("postgresql", now=60.0)
    metrics.observe("redis", "ping", "ok", 0.001)
    assert metrics.should_log("redis", now=7_200.0)
