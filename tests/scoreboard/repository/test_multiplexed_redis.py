"""Multiplexed calls receive their own replies, and none hangs when the connection breaks."""

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
async def open_client(url: str, seconds: float = 60.0) -> AsyncIterator[MultiplexedRedis]:
    client = MultiplexedRedis(
        ConnectionPool.from_url(url, retry=Retry(NoBackoff(), 0), protocol=2), seconds
    )
    try:
        yield client
    finally:
        await client.aclose()


async def test_each_concurrent_call_receives_its_own_reply(
    addresses: Addresses,
) -> None:
    """Also among failing and cancelled calls: the reply of a cancelled call is discarded."""
    chance = Random(5)
    async with open_client(addresses.url) as client:

        async def echo(number: int) -> int:
            return int(await client.execute_command("ECHO", str(number)))

        async def send_invalid_command() -> None:
            with pytest.raises(ResponseError):
                await client.execute_command("LPUSH", "only a key")

        calls = {number: asyncio.create_task(echo(number)) for number in range(500)}
        failing = [asyncio.create_task(send_invalid_command()) for _ in range(50)]
        await asyncio.sleep(0)
        cancelled = set(chance.sample(sorted(calls), 100))
        for number in cancelled:
            calls[number].cancel()
        replies = await asyncio.gather(*calls.values(), return_exceptions=True)
        await asyncio.gather(*failing)
    received = [
        reply for number, reply in zip(calls, replies, strict=True) if number not in cancelled
    ]
    assert received == [number for number in calls if number not in cancelled]


async def test_thousands_of_concurrent_calls_succeed(addresses: Addresses) -> None:
    """A busy Redis must not look unavailable."""
    async with open_client(addresses.url) as client:
        replies = await asyncio.gather(*(client.ping() for _ in range(5_000)))
    assert replies == [True] * 5_000


async def test_calls_to_a_paused_server_time_out_and_later_ones_succeed(
    tmp_path: Path,
) -> None:
    async with restartable_redis(tmp_path) as redis, open_client(redis.address, 0.1) as client:
        await client.ping()
        redis.pause()
        try:
            replies = await asyncio.gather(
                *(client.ping() for _ in range(20)), return_exceptions=True
            )
        finally:
            redis.resume()
        assert all(isinstance(reply, RedisError) for reply in replies)
        assert await client.ping()


async def test_a_connection_that_breaks_while_idle_fails_no_call(tmp_path: Path) -> None:
    async with restartable_redis(tmp_path) as redis, open_client(redis.address) as client:
        await client.ping()
        await redis.kill()
        await redis.start()
        assert await asyncio.gather(*(client.ping() for _ in range(50))) == [True] * 50


async def test_a_closed_client_does_not_connect_again(addresses: Addresses) -> None:
    """A call that was waiting for the connection would otherwise open one that nobody closes."""
    async with open_client(addresses.url) as client:
        calls = [asyncio.ensure_future(client.ping()) for _ in range(20)]
        await asyncio.sleep(0)
    before = asyncio.all_tasks() - set(calls)
    replies = await asyncio.gather(*calls, return_exceptions=True)
    assert all(reply is True or isinstance(reply, RedisError) for reply in replies)
    with pytest.raises(RedisError, match="closed"):
        await client.ping()
    assert asyncio.all_tasks() <= before


async def test_a_closed_client_leaves_no_tasks(addresses: Addresses) -> None:
    """Tasks of other tests' servers come and go meanwhile, with connections of their own."""
    before = connection_tasks()
    async with open_client(addresses.url) as client:
        await client.ping()
        own = connection_tasks() - before
        assert own
    assert not own & connection_tasks()


def connection_tasks() -> set["asyncio.Task[object]"]:
    return {task for task in asyncio.all_tasks() if "MultiplexedConnection" in str(task.get_coro())}
