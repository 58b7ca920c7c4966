"""Stream limits across processes, and their recovery after a process or Redis dies."""

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


def new_process(server: InstrumentedRedis, per_user: int = 1, per_address: int = 2) -> StreamSlots:
    guard = RedisBreaker(SystemClock(), Metrics())
    return StreamSlots(StreamRegistry(server), guard, per_user=per_user, per_address=per_address)


async def expect_rejected(slots: StreamSlots, user_id: str | None, address: str, most: int) -> None:
    with pytest.raises(RateLimited, match=f"at most {most} "):
        async with slots.reserve(user_id, address):
            pytest.fail("it was let in")


async def test_a_rejected_stream_occupies_no_slot(repositories: Repositories) -> None:
    """A stream rejected for its player does not count for its address."""
    slots = new_process(repositories.redis)
    for _ in range(2):
        async with slots.reserve("ana", "here"):
            await expect_rejected(slots, "ana", "here", 1)
            async with slots.reserve("ben", "here"):
                await expect_rejected(slots, None, "here", 2)
            async with slots.reserve(None, "there"):
                assert slots.open_count == 2
        assert slots.open_count == 0


async def test_processes_share_the_limits(repositories: Repositories) -> None:
    """A slot that one process frees is available to another."""
    one, two = new_process(repositories.redis), new_process(repositories.redis)
    async with one.reserve("ana", "here"):
        await expect_rejected(two, "ana", "there", 1)
        async with two.reserve("ben", "here"):
            await expect_rejected(one, None, "here", 2)
            await expect_rejected(two, None, "here", 2)
        async with two.reserve("cem", "here"):
            assert (one.open_count, two.open_count) == (1, 1)
    async with two.reserve("ana", "there"):
        assert two.open_count == 1


async def test_streams_of_a_killed_process_stop_counting(repositories: Repositories) -> None:
    """As soon as its heartbeat key has expired."""
    killed, other = new_process(repositories.redis), new_process(repositories.redis)
    async with killed.reserve("ana", "here"):
        (sign,) = await repositories.redis.client.keys(f"{PROCESS_PREFIX}*")
        assert 0 < await repositories.redis.client.ttl(sign) <= HEARTBEAT_TTL_SECONDS
        await expect_rejected(other, "ana", "here", 1)
        await repositories.redis.client.delete(sign)
        async with other.reserve("ana", "here"):
            assert other.open_count == 1


async def test_open_streams_are_reported_again_to_an_emptied_redis(
    repositories: Repositories,
) -> None:
    one, two = new_process(repositories.redis), new_process(repositories.redis)
    async with one.reserve("ana", "here"):
        await repositories.redis.client.flushdb()
        await one.heartbeat()
        await expect_rejected(two, "ana", "there", 1)


async def test_without_redis_each_process_counts_its_own_streams(tmp_path: Path) -> None:
    """After its restart, Redis counts the streams that were opened meanwhile."""
    clock, metrics = SystemClock(), StorageMetrics(Metrics())
    async with restartable_redis(tmp_path) as redis, AsyncExitStack() as stack:
        server = await stack.enter_async_context(open_redis(redis.address, clock, metrics))
        one, two = new_process(server), new_process(server)
        await redis.kill()
        await stack.enter_async_context(one.reserve("ana", "here"))
        await expect_rejected(one, "ana", "here", 1)
        async with two.reserve("ana", "here"):
            assert two.open_count == 1
        await redis.start()
        three = new_process(server)

        async def is_counted() -> bool:
            await one.heartbeat()
            try:
                async with three.reserve("ana", "there"):
                    return False
            except RateLimited:
                return True

        assert await wait_until(is_counted) < 30
