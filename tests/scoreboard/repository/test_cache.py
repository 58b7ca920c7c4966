"""What Redis counts and remembers: limits, sessions, answers, and the channel."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tally.kit.clock import ManualClock, SystemClock
from tally.kit.metrics import Metrics
from tally.scoreboard.model import CachedSession
from tally.scoreboard.repository.cache import (
    ACTION_TOKEN,
    CONSUMED,
    SESSION,
    ResponseCache,
    SessionCache,
)
from tally.scoreboard.repository.channel import UpdateChannel
from tally.scoreboard.repository.metrics import StorageMetrics
from tally.scoreboard.repository.rate_limits import RateLimitRepository
from tally.scoreboard.repository.redis_client import open_redis
from tests.scoreboard.api.servers import restartable_redis
from tests.scoreboard.repository.harness import START, Repositories, at

HOLDS = CachedSession("user", "session", at(60))


async def test_a_window_slides_and_is_exact_at_its_edge(repositories: Repositories) -> None:
    """The eleventh waits until the first is a minute old, to the microsecond; then one fits, and no more."""
    clock = ManualClock()
    limits = RateLimitRepository(repositories.redis, clock)
    for number in range(10):
        allowance = await limits.hit("score", "ana", 10, 60)
        assert (allowance.is_allowed, allowance.limit, allowance.remaining) == (
            True,
            10,
            9 - number,
        )
        await clock.advance(1)
    refused = await limits.hit("score", "ana", 10, 60)
    assert (refused.is_allowed, refused.remaining, refused.retry_after, refused.reset_after) == (
        False,
        0,
        50.0,
        59.0,
    )
    await clock.advance(50 - 0.000001)
    refused = await limits.hit("score", "ana", 10, 60)
    assert not refused.is_allowed
    assert refused.retry_after == pytest.approx(0.000001)
    await clock.advance(0.000001)
    assert (await limits.hit("score", "ana", 10, 60)).is_allowed
    assert not (await limits.hit("score", "ana", 10, 60)).is_allowed
    await clock.advance(60)
    assert (await limits.hit("score", "ana", 10, 60)).remaining == 9


async def test_whoever_is_refused_is_not_counted_and_others_have_their_own_window(
    repositories: Repositories,
) -> None:
    """Who keeps knocking gets in no later for it."""
    clock = ManualClock()
    limits = RateLimitRepository(repositories.redis, clock)
    assert (await limits.hit("score", "ana", 1, 60)).is_allowed
    for _ in range(5):
        await clock.advance(10)
        assert not (await limits.hit("score", "ana", 1, 60)).is_allowed
    assert (await limits.hit("score", "ben", 1, 60)).is_allowed
    assert (await limits.hit("board", "ana", 1, 60)).is_allowed
    await clock.advance(10)
    assert (await limits.hit("score", "ana", 1, 60)).is_allowed


async def test_of_many_at_once_only_as_many_as_the_limit_get_in(repositories: Repositories) -> None:
    limits = RateLimitRepository(repositories.redis, ManualClock())
    answers = await asyncio.gather(*(limits.hit("score", "ana", 10, 60) for _ in range(50)))
    assert [answer.is_allowed for answer in answers].count(True) == 10
    assert sorted(answer.remaining for answer in answers if answer.is_allowed) == list(range(10))
    assert 0 < await repositories.redis.client.pttl("rate_limit:score:ana") <= 60_000


async def test_a_session_is_remembered_until_its_token_expires(repositories: Repositories) -> None:
    cache = SessionCache(repositories.redis)
    assert await cache.find("hash") is None
    await cache.store("hash", HOLDS, at(0))
    assert await cache.find("hash") == HOLDS
    assert 59_000 < await repositories.redis.client.pttl(SESSION + "hash") <= 60_000
    await repositories.redis.client.set(SESSION + "hash", b"not json")
    assert await cache.find("hash") is None, "what cannot be read is not believed"


async def test_a_revoked_session_stays_revoked_whatever_is_remembered_late(
    repositories: Repositories,
) -> None:
    """A look-up that began before the logout and ends after it changes nothing."""
    cache = SessionCache(repositories.redis)
    await cache.revoke("hash", HOLDS, at(0))
    await cache.store("hash", HOLDS, at(1))
    assert await cache.find("hash") == replace(HOLDS, is_revoked=True)
    await cache.store("other", HOLDS, at(0))
    await cache.revoke("other", HOLDS, at(1))
    assert await cache.find("other") == replace(HOLDS, is_revoked=True)


async def test_an_answer_is_remembered_for_an_hour_longer_than_its_token(
    repositories: Repositories,
) -> None:
    cache = ResponseCache(repositories.redis)
    assert await cache.find("hash") is None
    await cache.store("hash", b'{"rank":1}', START + timedelta(minutes=5), START)
    assert await cache.find("hash") == b'{"rank":1}'
    assert 3_890_000 < await repositories.redis.client.pttl(ACTION_TOKEN + "hash") <= 3_900_000
    await repositories.redis.client.set(ACTION_TOKEN + "hash", CONSUMED)
    assert await cache.find("hash") is None, "used, but the answer is not there"


async def test_what_is_published_is_heard_also_after_redis_was_gone(tmp_path: Path) -> None:
    """The listener joins again by itself, and knows that it has, since what was said meanwhile is lost."""
    joined: asyncio.Queue[None] = asyncio.Queue()
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def on_join() -> None:
        joined.put_nowait(None)

    clock, metrics = SystemClock(), StorageMetrics(Metrics())
    async with (
        restartable_redis(tmp_path) as redis,
        open_redis(redis.address, clock, metrics) as server,
    ):
        channel = UpdateChannel(server, clock)
        listening = asyncio.create_task(channel.listen(heard.put, on_join))
        await joined.get()
        assert await channel.publish(b"first") == 1
        assert await heard.get() == b"first"
        await redis.restart()
        await joined.get()
        assert await channel.publish(b"second") == 1
        assert await heard.get() == b"second"
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening
        assert heard.empty()
