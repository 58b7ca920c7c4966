"""Concurrent viewers share one query, and rates cover the last seconds."""

import asyncio

import pytest

from tally.console.cached_loader import CachedLoader
from tally.console.counter_rates import WINDOW_SAMPLES, CounterRates
from tally.kit.clock import ManualClock


class CountingQuery:
    """Counts its calls; each returns once `may_finish` is set."""

    def __init__(self) -> None:
        self.calls = 0
        self.may_finish = asyncio.Event()

    async def __call__(self) -> int:
        self.calls += 1
        number = self.calls
        await self.may_finish.wait()
        return number


async def test_concurrent_callers_share_one_query_until_it_expires() -> None:
    clock, query = ManualClock(), CountingQuery()
    loader = CachedLoader(clock, 2.0, query)
    waiting = [asyncio.create_task(loader.get()) for _ in range(5)]
    await asyncio.sleep(0)
    query.may_finish.set()
    assert await asyncio.gather(*waiting) == [1] * 5
    await clock.advance(1.9)
    assert await loader.get() == 1
    await clock.advance(0.2)
    assert await loader.get() == 2


async def test_a_cancelled_caller_does_not_cancel_the_query() -> None:
    query = CountingQuery()
    loader = CachedLoader(ManualClock(), 2.0, query)
    cancelled, remaining = asyncio.create_task(loader.get()), asyncio.create_task(loader.get())
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    query.may_finish.set()
    assert await remaining == 1


async def test_close_cancels_the_query() -> None:
    query = CountingQuery()
    loader = CachedLoader(ManualClock(), 2.0, query)
    waiting = asyncio.create_task(loader.get())
    await asyncio.sleep(0)
    await loader.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_rate_covers_the_window_and_a_total_everything() -> None:
    clock, count = ManualClock(), [0.0]
    rates = CounterRates(clock, {"runs": lambda: count[0]})
    rates.sample()
    assert rates.rate("runs") == 0
    for _ in range(2 * WINDOW_SAMPLES):
        await clock.advance(1)
        count[0] += 3
        rates.sample()
    assert (rates.rate("runs"), rates.total("runs")) == (3, 6 * WINDOW_SAMPLES)
    for _ in range(WINDOW_SAMPLES):
        await clock.advance(1)
        rates.sample()
    assert rates.rate("runs") == 0
