"""Syncs give way to requests: an import of a long history must not delay webhooks."""

from dataclasses import replace

import pytest

from tally.collect.service.workouts import MAX_PAUSE_SECONDS, WRITE_BATCH_SIZE
from tally.kit.clock import ManualClock
from tests.collect.server_harness import CollectServer
from tests.collect.sync_harness import run_syncs, stored_workouts
from tests.collect.test_sync import days_ago, time_ago

BATCHES = 4


class SlowStoreClock(ManualClock):
    """A clock on which `seconds` pass between two looks at it. It records sleeps."""

    def __init__(self, now: ManualClock, seconds: float) -> None:
        super().__init__(now.now())
        self._seconds = seconds
        self._looks = 0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        self._looks += 1
        return self._looks * self._seconds

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.mark.parametrize("seconds", [0.01, 60.0])
async def test_a_sync_waits_as_long_as_each_of_its_writes_took(
    fresh_server: CollectServer, seconds: float
) -> None:
    """With a limit, because the lease of the page must not expire."""
    server = fresh_server
    user = await server.create_user()
    await user.create_milestone(periodStartAtUtc=time_ago(server, 30), totalTarget=1_000_000)
    made = {
        server.strava.record(user.athlete_id, start=days_ago(server, 20) + 60 * number).id
        for number in range(WRITE_BATCH_SIZE * BATCHES)
    }
    worker, clock = server.collect.sync_worker, SlowStoreClock(server.clock, seconds)
    await run_syncs(server, replace(worker, pages=replace(worker.pages, clock=clock)))
    assert set(await stored_workouts(user)) == made
    assert clock.slept == [pytest.approx(min(seconds, MAX_PAUSE_SECONDS))] * BATCHES
