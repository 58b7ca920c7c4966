"""Instances share the pages of a shard through Redis: one of them reads the service."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from redis.asyncio import Redis

from tally.embedded.valkey import open_valkey
from tally.instance import shard_pages
from tally.instance.shard_pages import RedisPageExchange, open_page_exchange
from tally.kit.clock import SystemClock
from tally.kit.tasks import cancel_all
from tally.store.changes import START
from tests.embedded.harness import wait_until
from tests.store.fake_streams import StreamsService, fake_streams
from tests.store.streams import BOTH


@dataclass
class Follower:
    """An instance that follows the table; `service` counts its requests only."""

    service: StreamsService
    exchange: RedisPageExchange
    keys: list[str] = field(default_factory=list)

    @property
    def reads(self) -> int:
        return self.service.requests["GetRecords"]

    async def run(self) -> None:
        async with (
            self.service.engine(SystemClock(), self.exchange) as engine,
            aclosing(engine.changes(BOTH, START)) as changes,
        ):
            async for change in changes:
                self.keys.append(change.key["id"])


@pytest.fixture
async def redis_url(tmp_path: Path) -> AsyncIterator[str]:
    async with open_valkey(tmp_path, SystemClock()) as url:
        yield url


@asynccontextmanager
async def following(url: str, count: int) -> AsyncIterator[list[Follower]]:
    """Instances whose services have the same shards."""
    async with AsyncExitStack() as stack:
        services = [await stack.enter_async_context(fake_streams()) for _ in range(count)]
        for service in services:
            service.shards = services[0].shards
        exchanges = [await stack.enter_async_context(open_page_exchange(url)) for _ in services]
        yield [Follower(*pair) for pair in zip(services, exchanges, strict=True)]


@pytest.mark.judge
async def test_one_instance_reads_and_another_takes_over(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every instance sees every change once, in order, also when Redis loses the pages."""
    monkeypatch.setattr(shard_pages, "LOCK_MS", 60_000)  # for a busy machine
    async with following(redis_url, 3) as followers:
        service = followers[0].service
        tasks = {
            one.service.url: asyncio.create_task(one.run(), name="follower") for one in followers
        }
        written: list[str] = []

        async def write(shard: str, active: list[Follower]) -> None:
            written.append(f"{shard}{len(written)}")
            service.write(shard, written[-1])
            await wait_until(lambda: all(one.keys == written for one in active))

        try:
            await write("a", followers)
            leader, others = await _leader(followers)
            before = [one.reads for one in others]
            for _ in range(3):
                await write("a", followers)
            assert [one.reads for one in others] == before, "only the leader reads"
            await cancel_all([tasks[leader.service.url]])
            await _expire_locks(redis_url)
            await write("a", others)
            service.split("a", "b")
            for _ in range(2):
                await write("b", others)
        finally:
            await cancel_all(tasks.values())


async def test_every_instance_reads_while_redis_does_not_respond(tmp_path: Path) -> None:
    async with following("redis://127.0.0.1:1", 2) as followers:
        tasks = [asyncio.create_task(one.run(), name="follower") for one in followers]
        try:
            for number in range(2):
                followers[0].service.write("a", f"a{number}")
            await wait_until(lambda: all(one.keys == ["a0", "a1"] for one in followers))
        finally:
            await cancel_all(tasks)


async def _expire_locks(url: str) -> None:
    """Delete everything, as if the locks of a dead instance had expired."""
    async with Redis.from_url(url) as client:
        await client.flushall()


async def _leader(followers: list[Follower]) -> tuple[Follower, list[Follower]]:
    """Wait until exactly one instance has read since the last look, and return it."""
    while True:
        before = {one.service.url: one.reads for one in followers}
        await _until_reads(followers, 2)
        active = [one for one in followers if one.reads != before[one.service.url]]
        if len(active) == 1:
            return active[0], [one for one in followers if one is not active[0]]


async def _until_reads(followers: list[Follower], count: int) -> None:
    total = sum(one.reads for one in followers) + count
    await wait_until(lambda: sum(one.reads for one in followers) >= total)
