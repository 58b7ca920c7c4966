"""Nobody comes more often than allowed, nobody is refused who does not, and who is refused knows when to come back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally.errors import RateLimited
from tally.kit.clock import ManualClock
from tally.kit.rate_limiter import RateLimiter


def taken(limiter: RateLimiter, key: str, attempts: int) -> int:
    """How many of so many attempts at one moment are let through."""
    count = 0
    for _ in range(attempts):
        try:
            limiter.take(key)
        except RateLimited:
            continue
        count += 1
    return count


async def test_so_many_at_once_and_so_many_a_second(clock: ManualClock) -> None:
    limiter = RateLimiter(clock, per_second=10, burst=20)
    assert taken(limiter, "a", 50) == 20
    await clock.advance(0.5)
    assert taken(limiter, "a", 50) == 5
    await clock.advance(100)
    assert taken(limiter, "a", 50) == 20


async def test_each_key_has_a_rate_of_its_own(clock: ManualClock) -> None:
    limiter = RateLimiter(clock, per_second=1, burst=2)
    assert taken(limiter, "a", 5) == 2
    assert taken(limiter, "b", 5) == 2


async def test_who_comes_back_when_told_to_is_let_through(clock: ManualClock) -> None:
    """And a moment before, is not."""
    limiter = RateLimiter(clock, per_second=4, burst=1)
    limiter.take("a")
    with pytest.raises(RateLimited) as refusal:
        limiter.take("a")
    assert refusal.value.retry_after == pytest.approx(0.25)
    await clock.advance(refusal.value.retry_after - 0.01)
    assert taken(limiter, "a", 1) == 0
    await clock.advance(0.01)
    assert taken(limiter, "a", 1) == 1


async def test_to_be_refused_costs_nothing(clock: ManualClock) -> None:
    limiter = RateLimiter(clock, per_second=1, burst=1)
    assert taken(limiter, "a", 1_000) == 1
    await clock.advance(1)
    assert taken(limiter, "a", 1) == 1


async def test_no_more_keys_are_remembered_than_the_bound(clock: ManualClock) -> None:
    """Those whose bucket is full again go first: to forget them changes nothing for them."""
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


async def test_a_key_that_is_not_the_oldest_keeps_its_debt_when_keys_are_forgotten(
    clock: ManualClock,
) -> None:
    limiter = RateLimiter(clock, per_second=1, burst=1, max_keys=2)
    for key in ("a", "b", "c"):
        limiter.take(key)
    assert taken(limiter, "b", 1) == taken(limiter, "c", 1) == 0


@given(
    st.lists(st.floats(0, 3, allow_nan=False), min_size=1, max_size=60),
    st.integers(1, 20),
    st.integers(1, 10),
)
async def test_in_no_stretch_of_time_are_there_more_than_burst_and_rate_allow(
    pauses: list[float], rate: int, burst: int
) -> None:
    clock = ManualClock()
    limiter = RateLimiter(clock, per_second=rate, burst=burst)
    let_through: list[float] = []
    for pause in pauses:
        await clock.advance(pause)
        let_through += [clock.monotonic()] * taken(limiter, "a", burst + 1)
    for first, start in enumerate(let_through):
        for last in range(first, len(let_through)):
            assert last - first + 1 <= burst + rate * (let_through[last] - start) + 1e-6
