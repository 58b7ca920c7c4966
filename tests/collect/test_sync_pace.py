"""Syncs give way to requests: an import of a long history must not delay webhooks."""

from dataclasses import replace

import pytest

from tally.collect.service.workouts import MAX_PAUSE_SECONDS, WRITE_BATCH_SIZE
from tally.kit.clock import ManualClock
from tests.collect.server_harness import CollectServer
from tests.collect.sync_harness import run_syncs, stored_workouts
from tests.collect.test_sync import days_ago, time_ago

BATCHES = 4


class BusyLoopClock(ManualClock):
    """A clock on which each of its first `busy` sleeps takes `lag` longer than requested.

    Everything else takes `seconds` between two looks at it. It records sleeps.
    """

    def __init__(self, now: ManualClock, seconds: float, lag: float = 0.0, busy: int = 0) -> None:
        super().__init__(now.now())
        self._seconds = seconds
        self._lag = lag
        self._busy = busy
        self._now = 0.0
        self._is_sleeping = False
        self.slept: list[float] = []

    def monotonic(self) -> float:
        # The look after a sleep returns its end.
        self._now += 0.0 if self._is_sleeping else self._seconds
        self._is_sleeping = False
        return self._now

    async def sleep(self, seconds: float) -> None:
        self._now += seconds + (self._lag if len(self.slept) < self._busy else 0.0)
        self._is_sleeping = True
        self.slept.append(seconds)


async def _import_batches(server: CollectServer, clock: BusyLoopClock) -> None:
    user = await server.create_user()
    await user.create_milestone(periodStartAtUtc=time_ago(server, 30), totalTarget=1_000_000)
    made = {
        server.strava.record(user.athlete_id, start=days_ago(server, 20) + 60 * number).id
        for number in range(WRITE_BATCH_SIZE * BATCHES)
    }
    worker = server.collect.sync_worker
    await run_syncs(server, replace(worker, pages=replace(worker.pages, clock=clock)))
    assert set(await stored_workouts(user)) == made


@pytest.mark.parametrize("seconds", [0.01, 60.0])
async def test_a_sync_waits_as_long_as_each_of_its_writes_took(
    fresh_server: CollectServer, seconds: float
) -> None:
    """With a limit, because the lease of the page must not expire."""
    clock = BusyLoopClock(fresh_server.clock, seconds)
    await _import_batches(fresh_server, clock)
    assert clock.slept == [pytest.approx(min(seconds, MAX_PAUSE_SECONDS))] * BATCHES


async def test_a_sync_waits_while_the_event_loop_is_busy(fresh_server: CollectServer) -> None:
    """Each pause is as long as the last delay, until a sleep ends in time."""
    clock = BusyLoopClock(fresh_server.clock, 0.01, lag=0.02, busy=3)
    await _import_batches(fresh_server, clock)
    busy, calm = [0.01, 0.02, 0.02, 0.02], [0.01] * (BATCHES - 1)
    assert clock.slept == pytest.approx(busy + calm)


async def test_a_sync_continues_on_an_event_loop_that_is_always_busy(
    fresh_server: CollectServer,
) -> None:
    """With the same limit, so that the import makes progress."""
    clock = BusyLoopClock(fresh_server.clock, 0.01, lag=0.06, busy=1000)
    await _import_batches(fresh_server, clock)
    # After the first sleep of 70 ms, one of 120 ms, and the rest of 10 ms.
    assert clock.slept == pytest.approx([0.01, 0.06, 0.01] * BATCHES)
