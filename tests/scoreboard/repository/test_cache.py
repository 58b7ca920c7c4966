"""Rate limits, sessions, responses and the update channel in Redis."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tally.kit.clock import ManualClock, SystemClock
from tally.kit.metrics import Metrics
from tally.scoreboard.model.accounts import CachedSession, SlidingWindow
from tally.scoreboard.repository.cache import (
    ACTION_TOKEN,
    SESSION,
    ResponseCache,
    SessionCache,
)
from tally.scoreboard.repository.channel import UpdateChannel
from tally.scoreboard.repository.leaderboard import CHANGED, KEYS, VERSION
from tally.scoreboard.repository.metrics import StorageMetrics
from tally.scoreboard.repository.rate_limits import (
    RateLimitRepository,
    ScoreUpdateLookup,
    VersionedPage,
)
from tally.scoreboard.repository.redis_client import open_redis
from tally.scoreboard.repository.scripts import REMOVE
from tests.scoreboard.api.servers import restartable_redis
from tests.scoreboard.repository.harness import START, Repositories, at

ACTIVE = CachedSession("user", "session", at(60))


async def test_a_sliding_window_is_exact_to_the_microsecond(repositories: Repositories) -> None:
    """The eleventh request is allowed exactly when the first is a minute old, and no other."""
    clock = ManualClock()
    limits = RateLimitRepository(repositories.redis, clock)
    for number in range(10):
        status = await limits.hit(SlidingWindow("score", "ana", 10))
        assert (status.is_allowed, status.limit, status.remaining) == (
            True,
            10,
            9 - number,
        )
        await clock.advance(1)
    rejected = await limits.hit(SlidingWindow("score", "ana", 10))
    assert (
        rejected.is_allowed,
        rejected.remaining,
        rejected.retry_after,
        rejected.reset_after,
    ) == (
        False,
        0,
        50.0,
        59.0,
    )
    await clock.advance(50 - 0.000001)
    rejected = await limits.hit(SlidingWindow("score", "ana", 10))
    assert not rejected.is_allowed
    assert rejected.retry_after == pytest.approx(0.000001)
    await clock.advance(0.000001)
    assert (await limits.hit(SlidingWindow("score", "ana", 10))).is_allowed
    assert not (await limits.hit(SlidingWindow("score", "ana", 10))).is_allowed
    await clock.advance(60)
    assert (await limits.hit(SlidingWindow("score", "ana", 10))).remaining == 9


async def test_rejected_requests_do_not_count_and_windows_are_independent(
    repositories: Repositories,
) -> None:
    """A client that keeps retrying is admitted no later."""
    clock = ManualClock()
    limits = RateLimitRepository(repositories.redis, clock)
    assert (await limits.hit(SlidingWindow("score", "ana", 1))).is_allowed
    for _ in range(5):
        await clock.advance(10)
        assert not (await limits.hit(SlidingWindow("score", "ana", 1))).is_allowed
    assert (await limits.hit(SlidingWindow("score", "ben", 1))).is_allowed
    assert (await limits.hit(SlidingWindow("board", "ana", 1))).is_allowed
    await clock.advance(10)
    assert (await limits.hit(SlidingWindow("score", "ana", 1))).is_allowed


async def test_concurrent_requests_do_not_exceed_the_limit(repositories: Repositories) -> None:
    limits = RateLimitRepository(repositories.redis, ManualClock())
    statuses = await asyncio.gather(
        *(limits.hit(SlidingWindow("score", "ana", 10)) for _ in range(50))
    )
    assert [status.is_allowed for status in statuses].count(True) == 10
    assert sorted(status.remaining for status in statuses if status.is_allowed) == list(range(10))
    assert 0 < await repositories.redis.client.pttl("rate_limit:score:ana") <= 60_000


async def test_a_session_is_cached_until_its_token_expires(repositories: Repositories) -> None:
    cache = SessionCache(repositories.redis)
    assert await cache.find("hash") is None
    await cache.store("hash", ACTIVE, at(0))
    assert await cache.find("hash") == ACTIVE
    assert 59_000 < await repositories.redis.client.pttl(SESSION + "hash") <= 60_000
    await repositories.redis.client.set(SESSION + "hash", b"not json")
    assert await cache.find("hash") is None, "an unreadable entry is a miss"


async def test_a_late_store_does_not_overwrite_a_revocation(
    repositories: Repositories,
) -> None:
    """A lookup that began before the logout and ends after it changes nothing."""
    cache = SessionCache(repositories.redis)
    await cache.revoke("hash", ACTIVE, at(0))
    await cache.store("hash", ACTIVE, at(1))
    assert await cache.find("hash") == replace(ACTIVE, is_revoked=True)
    await cache.store("other", ACTIVE, at(0))
    await cache.revoke("other", ACTIVE, at(1))
    assert await cache.find("other") == replace(ACTIVE, is_revoked=True)


async def test_a_response_is_cached_for_an_hour_after_its_token_expires(
    repositories: Repositories,
) -> None:
    limits = RateLimitRepository(repositories.redis, ManualClock())
    await SessionCache(repositories.redis).store("session", ACTIVE, at(0))

    async def find() -> bytes | None:
        window = SlidingWindow("score", "ana", 10)
        return (await limits.hit_and_find(window, "session", "hash")).response

    assert await find() is None
    await ResponseCache(repositories.redis).store(
        "hash", b'{"rank":1}', START + timedelta(minutes=5), START
    )
    assert await find() == b'{"rank":1}'
    assert 3_890_000 < await repositories.redis.client.pttl(ACTION_TOKEN + "hash") <= 3_900_000
    await repositories.redis.client.set(ACTION_TOKEN + "hash", b"consumed")
    assert await find() is None, "the use is recorded without a response"


async def test_only_score_updates_of_an_active_session_are_counted(
    repositories: Repositories,
) -> None:
    limits, cache = (
        RateLimitRepository(repositories.redis, ManualClock()),
        SessionCache(repositories.redis),
    )

    async def look_up(session: str) -> ScoreUpdateLookup:
        return await limits.hit_and_find(SlidingWindow("score", "ana", 1), session, "hash")

    await cache.revoke("revoked", ACTIVE, at(0))
    for session in ("missing", "revoked"):
        assert (await look_up(session)).status is None
    await cache.store("active", ACTIVE, at(0))
    first, second = [await look_up("active") for _ in range(2)]
    assert first.session == second.session == ACTIVE
    assert first.status is not None
    assert first.status.is_allowed
    assert second.status is not None
    assert not second.status.is_allowed


async def test_a_page_is_read_only_if_the_request_is_allowed(repositories: Repositories) -> None:
    player = await repositories.player()
    await repositories.write_through(player)
    limits = RateLimitRepository(repositories.redis, ManualClock())

    def window() -> SlidingWindow:
        return SlidingWindow("board", "ana", 2)

    status, found = await limits.hit_and_top(window(), 10, 0)
    assert status.remaining == 1
    assert found is not None
    assert found.page == await repositories.leaderboard.top(10)
    await repositories.redis.client.delete(CHANGED)
    status, found = await limits.hit_and_top(window(), 10, 0)
    assert (status.is_allowed, found) == (True, None), "the leaderboard is not complete"
    status, found = await limits.hit_and_top(window(), 10, 0)
    assert (status.is_allowed, found) == (False, None)


async def test_a_page_is_read_again_only_if_the_leaderboard_changed(
    repositories: Repositories,
) -> None:
    player = await repositories.player()
    await repositories.write_through(player)
    limits = RateLimitRepository(repositories.redis, ManualClock())
    window = SlidingWindow("board", "ana", 100)

    async def read(version: bytes) -> VersionedPage:
        _, found = await limits.hit_and_top(window, 10, 0, version)
        assert found is not None
        return found

    first = await read(b"")
    assert await read(first.version) == VersionedPage(first.version, None)
    await repositories.write_through(player)
    assert (await read(first.version)).page is None, "nothing changed"
    # The second change has the time of the first, and the sizes stay the same.
    second = first
    for _ in range(2):
        known = second
        await repositories.add(player, 5)
        await repositories.write_through(player)
        second = await read(known.version)
        assert second.page == await repositories.leaderboard.top(10) != known.page
    await repositories.redis.client.delete(VERSION)
    for _ in range(2):
        assert await read(b"") == VersionedPage(b"", second.page), "without a version, always read"


async def test_a_repeated_call_sets_another_version(repositories: Repositories) -> None:
    """A call whose connection broke is retried, and may run twice around other changes."""
    player = await repositories.player()
    versions = set()
    for _ in range(2):
        await repositories.write_through(player)
        await repositories.redis.run(
            "remove",
            repositories.redis.script(REMOVE),
            (*KEYS, "mark"),
            ("the id", player.user_id, 1, 0),
        )
        versions.add(await repositories.redis.client.get(VERSION))
    assert len(versions) == 2


async def test_the_channel_resubscribes_after_a_redis_restart(tmp_path: Path) -> None:
    """It reports every subscription, because messages sent meanwhile are lost."""
    subscriptions: asyncio.Queue[None] = asyncio.Queue()
    messages: asyncio.Queue[bytes] = asyncio.Queue()

    async def on_subscribed() -> None:
        subscriptions.put_nowait(None)

    clock, metrics = SystemClock(), StorageMetrics(Metrics())
    async with (
        restartable_redis(tmp_path) as redis,
        open_redis(redis.address, clock, metrics) as client,
    ):
        channel = UpdateChannel(client, clock)
        listener = asyncio.create_task(channel.listen(messages.put, on_subscribed))
        await subscriptions.get()
        assert await channel.publish(b"first") == 1
        assert await messages.get() == b"first"
        await redis.restart()
        await subscriptions.get()
        assert await channel.publish(b"second") == 1
        assert await messages.get() == b"second"
        listener.cancel()
        with suppress(asyncio.CancelledError):
            await listener
        assert messages.empty()
