"""The limiter enforces rate and burst per key, and reports when to retry."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally.errors import RateLimited
from tally.kit.clock import ManualClock
from tally.kit.rate_limiter import RateLimiter
from tally.kit.rate_limits import RateLimitExceeded


def count_allowed(limiter: RateLimiter, key: str, attempts: int) -> int:
    """Return how many of `attempts` simultaneous attempts are allowed."""
    count = 0
    for _ in range(attempts):
        try:
            limiter.take(key)
        except RateLimited:
            continue
        count += 1
    return count


async def test_bursts_and_the_refill_rate_are_limited(clock: ManualClock) -> None:
    limiter = RateLimiter(clock, per_second=10, burst=20)
    assert count_allowed(limiter, "a", 50) == 20
    await clock.advance(0.5)
    assert count_allowed(limiter, "a", 50) == 5
    await clock.advance(100)
    assert count_allowed(limiter, "a", 50) == 20


async def test_each_key_has_its_own_bucket(clock: ManualClock) -> None:
    limiter = RateLimiter(clock, per_second=1, burst=2)
    assert count_allowed(limiter, "a", 5) == 2
    assert count_allowed(limiter, "b", 5) == 2


async def test_a_retry_after_the_reported_delay_is_allowed(clock: ManualClock) -> None:
    """An earlier retry is not."""
    limiter = RateLimiter(clock, per_second=4, burst=1)
    limiter.take("a")
    with pytest.raises(RateLimited) as caught:
        limiter.take("a")
    assert caught.value.retry_after == pytest.approx(0.25)
    await clock.advance(caught.value.retry_after - 0.01)
    assert count_allowed(limiter, "a", 1) == 0
    await clock.advance(0.01)
    assert count_allowed(limiter, "a", 1) == 1


async def test_the_status_has_the_remaining_tokens_and_the_time_until_all_are_back(
    clock: ManualClock,
) -> None:
    limiter = RateLimiter(clock, per_second=2, burst=3)
    assert [limiter.take("a").remaining for _ in range(2)] == [2, 1]
    status = limiter.take("a")
    assert (status.is_allowed, status.limit, status.remaining) == (True, 3, 0)
    assert status.reset_after == pytest.approx(1.5)
    with pytest.raises(RateLimitExceeded) as caught:
        limiter.take("a")
    rejected = caught.value.status
    assert (rejected.is_allowed, rejected.remaining) == (False, 0)
    assert rejected.reset_after == pytest.approx(1.5)
    assert rejected.retry_after == pytest.approx(0.5)


async def test_rejected_attempts_take_no_tokens(clock: ManualClock) -> None:
    limiter = RateLimiter(clock, per_second=1, burst=1)
    assert count_allowed(limiter, "a", 1_000) == 1
    await clock.advance(1)
    assert count_allowed(limiter, "a", 1) == 1


async def test_the_number_of_keys_is_bounded(clock: ManualClock) -> None:
    """Keys with a full bucket are evicted first, which does not affect them."""
    limiter = RateLimiter(clock, per_second=1, burst=2, max_keys=3)
    for key in ("a", "b"):
        limiter.take(key)
    await clock.advance(5)
    limiter.take("busy")
    limiter.take("busy")
    for key in ("c", "d", "e"):
        limiter.take(key)
        assert len(limiter._full_at) <= 3
    assert {"a", "b"}.isdisjoint(limiter._full_at)


async def test_eviction_does_not_reset_recent_keys(
    clock: ManualClock,
) -> None:
    limiter = RateLimiter(clock, per_second=1, burst=1, max_keys=2)
    for key in ("a", "b", "c"):
        limiter.take(key)
    assert count_allowed(limiter, "b", 1) == count_allowed(limiter, "c", 1) == 0


@given(
    st.lists(st.floats(0, 3, allow_nan=False), min_size=1, max_size=60),
    st.integers(1, 20),
    st.integers(1, 10),
)
async def test_no_interval_exceeds_burst_and_rate(
    pauses: list[float], rate: int, burst: int
) -> None:
    clock = ManualClock()
    limiter = RateLimiter(clock, per_second=rate, burst=burst)
    allowed: list[float] = []
    for pause in pauses:
        await clock.advance(pause)
        allowed += [clock.monotonic()] * count_allowed(limiter, "a", burst + 1)
    for first, start in enumerate(allowed):
        for last in range(first, len(allowed)):
            assert last - first + 1 <= burst + rate * (allowed[last] - start) + 1e-6
