"""Calls that share a connection never get each other's answers, and none is left waiting when the connection breaks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
from redis.asyncio import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from tally.scoreboard.repository.multiplexed_redis import MultiplexedRedis
from tests.scoreboard.api.servers import restartable_redis
from tests.scoreboard.repository.conftest import Addresses


@asynccontextmanager
async def shared(url: str, seconds: float = 5.0) -> AsyncIterator[MultiplexedRedis]:
    client = MultiplexedRedis(
        ConnectionPool.from_url(url, retry=Retry(NoBackoff(), 0), protocol=2), seconds
    )
    try:
        yield client
    finally:
        await client.aclose()


async def test_each_of_many_calls_gets_its_own_answer_also_among_refused_and_cancelled_ones(
    addresses: Addresses,
) -> None:
    """Whoever gives up leaves a place in the line, and its answer is for nobody else."""
    chance = Random(5)
    async with shared(addresses.url) as client:

        async def ask(number: int) -> int:
            return int(await client.execute_command("ECHO", str(number)))

        async def be_refused() -> None:
            with pytest.raises(ResponseError):
                await client.execute_command("LPUSH", "only a key")

        asking = {number: asyncio.create_task(ask(number)) for number in range(500)}
        refused = [asyncio.create_task(be_refused()) for _ in range(50)]
        await asyncio.sleep(0)
        gone = set(chance.sample(sorted(asking), 100))
        for number in gone:
            asking[number].cancel()
        answers = await asyncio.gather(*asking.values(), return_exceptions=True)
        await asyncio.gather(*refused)
    stayed = [answer for number, answer in zip(asking, answers, strict=True) if number not in gone]
    assert stayed == [number for number in asking if number not in gone]


async def test_calls_far_beyond_any_pool_are_all_answered(addresses: Addresses) -> None:
    """A Redis that is only busy must not look like one that is away."""
    async with shared(addresses.url) as client:
        answers = await asyncio.gather(*(client.ping() for _ in range(5_000)))
    assert answers == [True] * 5_000


async def test_a_server_that_hangs_fails_all_who_wait_after_their_time_and_is_asked_again_when_it_is_back(
    tmp_path: Path,
) -> None:
    async with restartable_redis(tmp_path) as redis, shared(redis.address, 0.1) as client:
        await client.ping()
        redis.pause()
        try:
            answers = await asyncio.gather(
                *(client.ping() for _ in range(20)), return_exceptions=True
            )
        finally:
            redis.resume()
        assert all(isinstance(answer, RedisError) for answer in answers)
        assert await client.ping()


async def test_a_connection_that_breaks_between_calls_costs_nobody_anything(tmp_path: Path) -> None:
    async with restartable_redis(tmp_path) as redis, shared(redis.address) as client:
        await client.ping()
        await redis.kill()
        await redis.start()
        assert await asyncio.gather(*(client.ping() for _ in range(50))) == [True] * 50


async def test_a_closed_client_leaves_nothing_running(addresses: Addresses) -> None:
    before = asyncio.all_tasks()
    async with shared(addresses.url) as client:
        await client.ping()
        assert asyncio.all_tasks() != before
    assert asyncio.all_tasks() == before
