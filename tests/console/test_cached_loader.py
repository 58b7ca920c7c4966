"""Many who look cost no more than one, and rates are of the last seconds."""

import asyncio

import pytest

from tally.console.cached_loader import CachedLoader
from tally.console.counter_rates import KEPT, CounterRates
from tally.kit.clock import ManualClock


class Looking:
    """Counts looks; each ends when it is let."""

    def __init__(self) -> None:
        self.begun = 0
        self.may_end = asyncio.Event()

    async def __call__(self) -> int:
        self.begun += 1
        number = self.begun
        await self.may_end.wait()
        return number


async def test_all_who_ask_at_once_share_one_look_and_the_next_is_made_when_it_is_old() -> None:
    clock, looking = ManualClock(), Looking()
    shared = CachedLoader(clock, 2.0, looking)
    asking = [asyncio.create_task(shared.get()) for _ in range(5)]
    await asyncio.sleep(0)
    looking.may_end.set()
    assert await asyncio.gather(*asking) == [1] * 5
    await clock.advance(1.9)
    assert await shared.get() == 1
    await clock.advance(0.2)
    assert await shared.get() == 2


async def test_one_who_leaves_does_not_end_the_look_of_the_others() -> None:
    looking = Looking()
    shared = CachedLoader(ManualClock(), 2.0, looking)
    leaving, staying = asyncio.create_task(shared.get()), asyncio.create_task(shared.get())
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    looking.may_end.set()
    assert await staying == 1


async def test_at_the_end_nobody_looks_any_more() -> None:
    looking = Looking()
    shared = CachedLoader(ManualClock(), 2.0, looking)
    asking = asyncio.create_task(shared.get())
    await asyncio.sleep(0)
    await shared.close()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_a_rate_is_of_the_last_seconds_and_a_total_of_all() -> None:
    clock, count = ManualClock(), [0.0]
    rates = CounterRates(clock, {"runs": lambda: count[0]})
    rates.sample()
    assert rates.rate("runs") == 0
    for _ in range(2 * KEPT):
        await clock.advance(1)
        count[0] += 3
        rates.sample()
    assert (rates.rate("runs"), rates.total("runs")) == (3, 6 * KEPT)
    for _ in range(KEPT):
        await clock.advance(1)
        rates.sample()
    assert rates.rate("runs") == 0
