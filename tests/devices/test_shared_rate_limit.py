"""The rate limit of a key holds on all instances together, at the cost of few writes."""

from collections.abc import Awaitable
from contextlib import suppress
from datetime import timedelta

import pytest

from tally.devices.repository.rate_limits import TokenBucketRepository
from tally.devices.service.rate_limits import SharedRateLimiter
from tally.kit.clock import ManualClock
from tally.kit.ids import new_uuid
from tally.kit.rate_limits import RateLimitExceeded, RateLimitStatus
from tally.store.store import Store
from tests.devices.conftest import StoreTarget
from tests.devices.harness import START, Board, gather, open_server


def new_limiter(
    store: Store, clock: ManualClock, per_second: float = 50, burst: int = 100
) -> SharedRateLimiter:
    return SharedRateLimiter(
        TokenBucketRepository(store), clock, per_second=per_second, burst=burst, rule="a test"
    )


async def granted(*requests: Awaitable[RateLimitStatus]) -> int:
    """Count the requests that a limiter allows."""
    count = 0
    for request in requests:
        with suppress(RateLimitExceeded):
            await request
            count += 1
    return count


async def test_two_instances_share_the_limit_of_a_key(store_target: StoreTarget) -> None:
    settings = await store_target.new_settings(devices_rate_limit=5)
    async with open_server(settings) as first, open_server(settings) as second:
        key, board = await first.new_key(), Board()
        responses = [
            await (first, second)[number % 2].post("/data", board.data("?"), key=key)
            for number in range(24)
        ]
        allowed = [response.status for response in responses].count(200)
        assert 10 <= allowed <= 12, "bursts of ten; each instance may add a tenth"
        throttled = await second.post("/data", board.data("?"), key=key)
        assert throttled.status == 429
        assert throttled.headers["retry-after"] == "1"


async def test_one_instance_allows_exactly_the_limit(store: Store) -> None:
    clock, key = ManualClock(START), new_uuid()
    limiter = new_limiter(store, clock)
    assert await granted(*(limiter.take(key) for _ in range(200))) == 100
    for _ in range(20):
        await clock.advance(0.5)
        assert await granted(*(limiter.take(key) for _ in range(40))) == 25
    await clock.advance(60)
    assert await granted(*(limiter.take(key) for _ in range(200))) == 100


@pytest.mark.parametrize("instances", [2, 4])
async def test_instances_exceed_the_limit_by_at_most_a_tenth_each(
    store: Store, instances: int
) -> None:
    clock, key = ManualClock(START), new_uuid()
    limiters = [new_limiter(store, clock) for _ in range(instances)]
    requests = [limiter.take(key) for _ in range(100) for limiter in limiters]
    assert 100 <= await granted(*requests) <= 100 + 10 * instances


async def test_concurrent_requests_do_not_exceed_the_limit(store: Store) -> None:
    clock, key = ManualClock(START), new_uuid()
    limiters = [new_limiter(store, clock, burst=40) for _ in range(2)]
    counts = await gather(*(granted(limiters[number % 2].take(key)) for number in range(160)))
    assert 40 <= sum(counts) <= 48


async def test_a_client_with_few_requests_costs_no_write(store: Store) -> None:
    clock, key = ManualClock(START), new_uuid()
    limiter = new_limiter(store, clock)
    for _ in range(50):
        await limiter.take(key)
        await clock.advance(1)
    assert await TokenBucketRepository(store).full_at(key) is None


async def test_a_bucket_of_a_clock_that_was_far_ahead_does_not_deny_requests(store: Store) -> None:
    clock, key = ManualClock(START), new_uuid()
    ahead = clock.time_ns() // 1000 + 3_600_000_000
    await TokenBucketRepository(store).move(key, None, ahead, ahead // 1_000_000)
    limiter = new_limiter(store, clock, burst=5)
    assert await granted(*(limiter.take(key) for _ in range(9))) == 5


async def test_a_clock_that_is_set_back_does_not_deny_requests_for_long(store: Store) -> None:
    """The denial was until a time that is now an hour away."""
    clock, key = ManualClock(START + timedelta(hours=1)), new_uuid()
    limiter = new_limiter(store, clock, burst=5)
    assert await granted(*(limiter.take(key) for _ in range(9))) == 5
    await clock.advance(-3_600)
    assert await granted(*(limiter.take(key) for _ in range(9))) == 5
