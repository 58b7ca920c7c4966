"""Pauses of jobs: stored, and effective on every instance within seconds."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tally.errors import Unavailable
from tally.instance.job_pauses import PAUSE_CACHE_SECONDS, StoredJobPauses
from tally.instance.repository.job_pauses import JOB_PAUSES, JobPauseRepository
from tally.kit.clock import ManualClock
from tally.kit.jobs import Job, JobOutcome, JobRunner
from tally.kit.metrics import Metrics
from tally.kit.operators import Operator, Role
from tally.store.sqlite import open_sqlite
from tally.store.store import Store

ADA = Operator("ada", Role.OPERATOR)
INTERVAL = 10.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Store]:
    async with open_sqlite(tmp_path / "data") as engine:
        await engine.ensure_table(JOB_PAUSES)
        yield Store(engine, clock)


def pauses_of_an_instance(store: Store, clock: ManualClock) -> StoredJobPauses:
    return StoredJobPauses(JobPauseRepository(store), clock)


async def test_a_paused_job_skips_scheduled_runs_on_all_instances_until_it_is_resumed(
    store: Store, clock: ManualClock
) -> None:
    """It can be run manually meanwhile, and the pause outlasts the instance."""
    console, other = pauses_of_an_instance(store, clock), pauses_of_an_instance(store, clock)
    runs: list[float] = []

    async def run() -> None:
        runs.append(clock.monotonic())

    job = Job(name="sync", description="", run=run, interval=INTERVAL, jitter=0)
    runner = JobRunner([job], clock, Metrics(), pauses=other)
    async with runner:
        await clock.until_sleeping()
        assert len(runs) == 1
        await console.pause("sync", ADA)
        for _ in range(3):
            await clock.advance(INTERVAL)
            await clock.until_sleeping()
        assert len(runs) == 1
        assert (await runner.run("sync")).outcome is JobOutcome.SUCCEEDED
        assert await pauses_of_an_instance(store, clock).is_paused("sync")
        await console.resume("sync")
        await clock.advance(INTERVAL)
        await clock.until_sleeping()
        assert len(runs) == 3
        assert [past.outcome for past in runner.history["sync"]] == [JobOutcome.SUCCEEDED] * 3
        assert runner.next_runs["sync"] > clock.now()


async def test_jobs_stay_paused_while_the_store_is_unavailable(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with open_sqlite(tmp_path / "data") as engine:
        await engine.ensure_table(JOB_PAUSES)
        pauses = pauses_of_an_instance(Store(engine, clock), clock)
        await pauses.pause("sync", ADA)
    await clock.advance(PAUSE_CACHE_SECONDS)
    with pytest.raises(Unavailable):
        await pauses.all()
    assert await pauses.is_paused("sync")
    assert not await pauses.is_paused("another")
