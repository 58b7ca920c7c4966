"""The request budget: shared by all instances, paced by the remaining quota, cheap to keep."""

from datetime import timedelta

import pytest

from tally.cricket.repository.locks import LockRepository, StoreLocks
from tally.cricket.repository.request_windows import QuotaWindowRepository
from tally.cricket.sportmonks.budget import MAX_INTERVAL_SECONDS, RequestBudget
from tally.errors import RateLimited
from tally.kit.clock import ManualClock
from tally.kit.locks import Lease, LockedElsewhere
from tally.sim.sportmonks.cricsheet import bundled_match
from tally.store.store import Store
from tests.cricket import factories
from tests.cricket.sportmonks_harness import MemoryWindows, open_sportmonks

HOUR = 3600.0


async def count_allowed(budgets: list[RequestBudget], resource: str) -> list[int]:
    """Send requests in turn until the budget refuses them; return their number per instance."""
    counts = [0 for _ in budgets]
    refused = 0
    while refused < len(budgets):
        refused = 0
        for number, budget in enumerate(budgets):
            try:
                await budget.consume(resource)
                counts[number] += 1
            except RateLimited:
                refused += 1
    return counts


async def test_instances_share_one_budget(store: Store, clock: ManualClock) -> None:
    """Two instances together send what one may send, and again after the hour."""
    windows, resource = QuotaWindowRepository(store), factories.name("resource")
    budgets = [RequestBudget(windows, clock, 150) for _ in range(2)]
    for _ in range(2):
        counts = await count_allowed(budgets, resource)
        assert sum(counts) == 150
        assert min(counts) > 0
        await clock.advance(HOUR + 10)


async def test_a_pause_applies_to_all_instances(store: Store, clock: ManualClock) -> None:
    windows, resource = QuotaWindowRepository(store), factories.name("resource")
    first, second = (RequestBudget(windows, clock, 100) for _ in range(2))
    await first.consume(resource)
    await first.pause(resource, 60)
    with pytest.raises(RateLimited) as caught:
        await second.consume(resource)
    assert caught.value.retry_after == pytest.approx(60, abs=1)
    await clock.advance(61)
    await second.consume(resource)


async def test_a_write_reserves_ten_requests(clock: ManualClock) -> None:
    windows = MemoryWindows()
    budget = RequestBudget(windows, clock, 2_000)
    for _ in range(1_000):
        await budget.consume("livescores")
    assert windows.writes == 100


@pytest.mark.parametrize(("limit", "most"), [(30, 30), (180, 180), (2_000, 1_441)])
async def test_polling_at_the_limit_slows_down_and_never_stops(limit: int, most: int) -> None:
    """The plan allows less than is configured: the responses say so, and no request is refused."""
    async with open_sportmonks(bundled_match(), hourly=2_000) as scores:
        scores.sportmonks.limits.hourly = limit
        longest = polls = 0.0
        while scores.clock.monotonic() < 2 * HOUR:
            await scores.gateway.live()
            polls += 1
            wait = max(2.5, scores.gateway.live_interval())
            longest = max(longest, wait)
            await scores.clock.advance(wait)
        assert polls <= 2 * most + 1
        assert polls >= 0.9 * min(2 * limit, 2 * HOUR / 2.5)
        assert longest <= 2.5 * HOUR / limit or longest == 2.5


async def test_another_program_with_the_same_token_slows_polling_down() -> None:
    async with open_sportmonks(bundled_match(), hourly=2_000) as scores:
        scores.sportmonks.limits.hourly = 2_000
        await scores.gateway.live()
        assert scores.gateway.live_interval() < 2.5
        for _ in range(1_900):
            scores.sportmonks.limits.count("livescores")
        await scores.gateway.live()
        assert scores.gateway.live_interval() == pytest.approx(3605 / 98 / 0.95, rel=0.01)
        scores.sportmonks.limits.reset()
        await scores.gateway.live()
        assert scores.gateway.live_interval() < 2.5


async def test_a_nearly_used_up_quota_does_not_stop_polling_for_an_hour() -> None:
    """Another program leaves one request, and its hour ends before ours."""
    async with open_sportmonks(bundled_match(), hourly=2_000) as scores:
        scores.sportmonks.limits.hourly = 2_000
        for _ in range(1_998):
            scores.sportmonks.limits.count("livescores")
        await scores.gateway.live()
        assert scores.gateway.live_interval() == MAX_INTERVAL_SECONDS


async def test_a_window_of_a_clock_that_was_days_ahead_does_not_stop_requests(
    store: Store, clock: ManualClock
) -> None:
    """One that is minutes ahead is no reason to start another hour."""
    windows, resource = QuotaWindowRepository(store), factories.name("resource")
    ahead = ManualClock(clock.now() + timedelta(minutes=10))
    assert sum(await count_allowed([RequestBudget(windows, ahead, 50)], resource)) == 50
    with pytest.raises(RateLimited):
        await RequestBudget(windows, clock, 50).consume(resource)
    resource, ahead = factories.name("resource"), ManualClock(clock.now() + timedelta(days=2))
    assert sum(await count_allowed([RequestBudget(windows, ahead, 50)], resource)) == 50
    assert sum(await count_allowed([RequestBudget(windows, clock, 50)], resource)) == 50


async def test_one_instance_holds_the_lease_until_it_stops(
    store: Store, clock: ManualClock
) -> None:
    """It writes every second run; another one takes over after the expiry, or at once."""
    name, locks = factories.name("lease"), LockRepository(store)
    first, second = (
        Lease(StoreLocks(locks, clock, factories.name("owner")), clock, name, 10) for _ in range(2)
    )

    async def work() -> int:
        return 1

    for _ in range(8):
        assert await first.run(work) == 1
        await first.keep(2.5)
        with pytest.raises(LockedElsewhere):
            await second.run(work)
        await clock.advance(2.5)
    await clock.advance(10.1)
    assert await second.run(work) == 1
    with pytest.raises(LockedElsewhere):
        await first.run(work)
    await second.release()
    assert await first.run(work) == 1
    await first.keep(60)
    await clock.advance(60)
    with pytest.raises(LockedElsewhere):
        await second.run(work)
