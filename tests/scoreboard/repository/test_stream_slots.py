"""Streams are limited over all processes together, and nobody pays for a process or a Redis that died."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tally.errors import RateLimited
from tally.kit.clock import SystemClock
from tally.kit.metrics import Metrics
from tally.scoreboard.repository.metrics import StorageMetrics
from tally.scoreboard.repository.redis_client import InstrumentedRedis, open_redis
from tally.scoreboard.repository.stream_registry import (
    HEARTBEAT_TTL_SECONDS,
    PROCESS_PREFIX,
    StreamRegistry,
)
from tally.scoreboard.service.redis_breaker import RedisBreaker
from tally.scoreboard.service.stream_slots import StreamSlots
from tests.scoreboard.api.harness import wait_until
from tests.scoreboard.api.servers import restartable_redis
from tests.scoreboard.repository.harness import Repositories


def process(server: InstrumentedRedis, per_user: int = 1, per_address: int = 2) -> StreamSlots:
    guard = RedisBreaker(SystemClock(), Metrics())
    return StreamSlots(StreamRegistry(server), guard, per_user=per_user, per_address=per_address)


async def expect_error(slots: StreamSlots, user_id: str | None, address: str, most: int) -> None:
    with pytest.raises(RateLimited, match=f"at most {most} "):
        async with slots.reserve(user_id, address):
            pytest.fail("it was let in")


async def test_a_stream_too_many_takes_no_place(repositories: Repositories) -> None:
    """One that is refused for its player leaves the address as it was, and one that ends makes room."""
    slots = process(repositories.redis)
    for _ in range(2):
        async with slots.reserve("ana", "here"):
            await expect_error(slots, "ana", "here", 1)
            async with slots.reserve("ben", "here"):
                await expect_error(slots, None, "here", 2)
            async with slots.reserve(None, "there"):
                assert slots.open_count == 2
        assert slots.open_count == 0


async def test_all_processes_together_have_as_many_as_one(repositories: Repositories) -> None:
    """And what one of them closes, another may open."""
    one, two = process(repositories.redis), process(repositories.redis)
    async with one.reserve("ana", "here"):
        await expect_error(two, "ana", "there", 1)
        async with two.reserve("ben", "here"):
            await expect_error(one, None, "here", 2)
            await expect_error(two, None, "here", 2)
        async with two.reserve("cem", "here"):
            assert (one.open_count, two.open_count) == (1, 1)
    async with two.reserve("ana", "there"):
        assert two.open_count == 1


async def test_what_a_killed_process_had_open_counts_no_longer(repositories: Repositories) -> None:
    """As soon as its sign of life is gone, which Redis sees to within seconds."""
    killed, other = process(repositories.redis), process(repositories.redis)
    async with killed.reserve("ana", "here"):
        (sign,) = await repositories.redis.client.keys(f"{PROCESS_PREFIX}*")
        assert 0 < await repositories.redis.client.ttl(sign) <= HEARTBEAT_TTL_SECONDS
        await expect_error(other, "ana", "here", 1)
        await repositories.redis.client.delete(sign)
        async with other.reserve("ana", "here"):
            assert other.open_count == 1


async def test_a_redis_that_forgot_everything_is_told_again(repositories: Repositories) -> None:
    one, two = process(repositories.redis), process(repositories.redis)
    async with one.reserve("ana", "here"):
        await repositories.redis.client.flushdb()
        await one.heartbeat()
        await expect_error(two, "ana", "there", 1)


async def test_without_redis_each_process_counts_for_itself(tmp_path: Path) -> None:
    """And when it is back, the streams that were opened meanwhile are in the count."""
    clock, metrics = SystemClock(), StorageMetrics(Metrics())
    async with restartable_redis(tmp_path) as redis, AsyncExitStack() as stack:
        server = await stack.enter_async_context(open_redis(redis.address, clock, metrics))
        one, two = process(server), process(server)
        await redis.kill()
        await stack.enter_async_context(one.reserve("ana", "here"))
        await expect_error(one, "ana", "here", 1)
        async with two.reserve("ana", "here"):
            assert two.open_count == 1
        await redis.start()
        three = process(server)

        async def is_counted() -> bool:
            await one.heartbeat()
            try:
                async with three.reserve("ana", "there"):
                    return False
            except RateLimited:
                return True

        assert await wait_until(is_counted) < 30
