"""Streams are limited over all processes together, and nobody pays for a process or a Redis that died."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tally.errors import RateLimited
from tally.kit.clock import SystemClock
from tally.kit.metrics import Metrics
from tally.scoreboard.repository.metrics import StorageMetrics
from tally.scoreboard.repository.redis_client import InstrumentedRedis, open_redis
from tally.scoreboard.repository.stream_registry import LIVES_SECONDS, PROCESS, StreamRegistry
from tally.scoreboard.service.redis_breaker import RedisBreaker
from tally.scoreboard.service.stream_slots import StreamSlots
from tests.scoreboard.api.harness import until
from tests.scoreboard.api.servers import mortal_redis
from tests.scoreboard.repository.harness import League


def process(server: InstrumentedRedis, per_user: int = 1, per_address: int = 2) -> StreamSlots:
    guard = RedisBreaker(SystemClock(), Metrics())
    return StreamSlots(StreamRegistry(server), guard, per_user=per_user, per_address=per_address)


async def expect_refused(slots: StreamSlots, user_id: str | None, address: str, most: int) -> None:
    with pytest.raises(RateLimited, match=f"At most {most} "):
        async with slots.taken(user_id, address):
            pytest.fail("it was let in")


async def test_a_stream_too_many_takes_no_place(league: League) -> None:
    """One that is refused for its player leaves the address as it was, and one that ends makes room."""
    slots = process(league.server)
    for _ in range(2):
        async with slots.taken("ana", "here"):
            await expect_refused(slots, "ana", "here", 1)
            async with slots.taken("ben", "here"):
                await expect_refused(slots, None, "here", 2)
            async with slots.taken(None, "there"):
                assert slots.open == 2
        assert slots.open == 0


async def test_all_processes_together_have_as_many_as_one(league: League) -> None:
    """And what one of them closes, another may open."""
    one, two = process(league.server), process(league.server)
    async with one.taken("ana", "here"):
        await expect_refused(two, "ana", "there", 1)
        async with two.taken("ben", "here"):
            await expect_refused(one, None, "here", 2)
            await expect_refused(two, None, "here", 2)
        async with two.taken("cem", "here"):
            assert (one.open, two.open) == (1, 1)
    async with two.taken("ana", "there"):
        assert two.open == 1


async def test_what_a_killed_process_had_open_counts_no_longer(league: League) -> None:
    """As soon as its sign of life is gone, which Redis sees to within seconds."""
    killed, other = process(league.server), process(league.server)
    async with killed.taken("ana", "here"):
        (sign,) = await league.server.client.keys(f"{PROCESS}*")
        assert 0 < await league.server.client.ttl(sign) <= LIVES_SECONDS
        await expect_refused(other, "ana", "here", 1)
        await league.server.client.delete(sign)
        async with other.taken("ana", "here"):
            assert other.open == 1


async def test_a_redis_that_forgot_everything_is_told_again(league: League) -> None:
    one, two = process(league.server), process(league.server)
    async with one.taken("ana", "here"):
        await league.server.client.flushdb()
        await one.beat()
        await expect_refused(two, "ana", "there", 1)


async def test_without_redis_each_process_counts_for_itself(tmp_path: Path) -> None:
    """And when it is back, the streams that were opened meanwhile are in the count."""
    clock, figures = SystemClock(), StorageMetrics(Metrics())
    async with mortal_redis(tmp_path) as redis, AsyncExitStack() as stack:
        server = await stack.enter_async_context(open_redis(redis.address, clock, figures))
        one, two = process(server), process(server)
        await redis.kill()
        await stack.enter_async_context(one.taken("ana", "here"))
        await expect_refused(one, "ana", "here", 1)
        async with two.taken("ana", "here"):
            assert two.open == 1
        await redis.start()
        three = process(server)

        async def is_counted() -> bool:
            await one.beat()
            try:
                async with three.taken("ana", "there"):
                    return False
            except RateLimited:
                return True

        assert await until(is_counted) < 30
