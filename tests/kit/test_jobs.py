"""Jobs run at their intervals, one run at a time, and no failure stops a timer."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from tally.errors import NotFound
from tally.kit.clock import ManualClock
from tally.kit.jobs import Job, JobOutcome, JobRunner
from tally.kit.metrics import Metrics
from tests.kit.conftest import LogLines
from tests.kit.test_locks import LockTable


def make_job(run: Callable[[], Awaitable[float | None]], **options: float | None) -> Job:
    arguments: dict[str, float | None] = {"interval": 60, "jitter": 0, **options}
    return Job(name="sync", description="Fetches things", run=run, **arguments)  # type: ignore[arg-type]


class Recorder:
    """A job that records its runs, takes `seconds`, and fails on request."""

    def __init__(self, clock: ManualClock, seconds: float = 0) -> None:
        self.clock = clock
        self.seconds = seconds
        self.started: list[float] = []
        self.finished = 0
        self.at_once = 0
        self.most_at_once = 0
        self.error: Exception | None = None
        self.next: float | None = None

    async def run(self) -> float | None:
        self.started.append(self.clock.monotonic())
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.seconds:
                await self.clock.sleep(self.seconds)
            if self.error is not None:
                raise self.error
        finally:
            self.at_once -= 1
        self.finished += 1
        return self.next


@pytest.fixture
def recorder(clock: ManualClock) -> Recorder:
    return Recorder(clock)


async def test_a_job_runs_immediately_and_then_every_interval(
    clock: ManualClock, metrics: Metrics, recorder: Recorder
) -> None:
    async with JobRunner([make_job(recorder.run, interval=60)], clock, metrics):
        await clock.advance(180)
    assert recorder.started == [0, 60, 120, 180]
    await clock.advance(600)
    assert len(recorder.started) == 4


async def test_the_interval_is_measured_from_start_to_start(
    clock: ManualClock, metrics: Metrics
) -> None:
    """After an overrun, the next run follows immediately; runs never overlap."""
    recorder = Recorder(clock, seconds=4)
    async with JobRunner([make_job(recorder.run, interval=10)], clock, metrics):
        await clock.advance(15)
        recorder.seconds = 15
        await clock.advance(25)
        recorder.seconds = 4
        await clock.advance(24)
    assert recorder.started == [0, 10, 20, 35, 50, 60]
    assert recorder.most_at_once == 1


async def test_jitter_varies_the_interval(
    clock: ManualClock, metrics: Metrics, recorder: Recorder
) -> None:
    job = make_job(recorder.run, interval=100, jitter=0.1)
    async with JobRunner([job], clock, metrics, rng=random.Random(3)):
        await clock.advance(10_000)
    gaps = [
        later - earlier
        for earlier, later in zip(recorder.started, recorder.started[1:], strict=False)
    ]
    assert 0 <= recorder.started[0] <= 10
    assert all(90 <= gap <= 110 for gap in gaps)
    assert max(gaps) - min(gaps) > 10


async def test_a_job_may_set_its_next_interval(
    clock: ManualClock, metrics: Metrics, recorder: Recorder
) -> None:
    async with JobRunner([make_job(recorder.run, interval=60)], clock, metrics):
        await clock.advance(0)
        recorder.next = 2.5
        await clock.advance(65)
    assert recorder.started == [0, 60, 62.5, 65]


async def test_a_failed_run_is_logged_and_the_timer_continues(
    clock: ManualClock, metrics: Metrics, recorder: Recorder, log_lines: LogLines
) -> None:
    recorder.error = ValueError("bad fixture")
    async with JobRunner([make_job(recorder.run)], clock, metrics) as runner:
        await clock.advance(0)
        failed = runner.last_runs["sync"]
        recorder.error = None
        await clock.advance(60)
        succeeded = runner.last_runs["sync"]
    assert (failed.outcome, failed.error) == (JobOutcome.FAILED, "ValueError: bad fixture")
    assert (succeeded.outcome, succeeded.error) == (JobOutcome.SUCCEEDED, None)
    [line] = [line for line in log_lines() if line["level"] == "error"]
    assert line["action"] == "sync"
    assert line["requestId"]
    assert "bad fixture" in line["data"]["exception"]


async def test_each_run_has_its_own_request_id(
    clock: ManualClock, metrics: Metrics, log_lines: LogLines
) -> None:
    recorder = Recorder(clock)
    recorder.error = ValueError("again")
    async with JobRunner([make_job(recorder.run)], clock, metrics):
        await clock.advance(60)
    first, second = (line["requestId"] for line in log_lines() if line["message"] == "Job failed")
    assert first != second


async def test_a_run_past_its_deadline_is_cancelled(clock: ManualClock, metrics: Metrics) -> None:
    recorder = Recorder(clock, seconds=100)
    async with JobRunner(
        [make_job(recorder.run, interval=60, deadline=5)], clock, metrics
    ) as runner:
        await clock.advance(6)
        assert runner.last_runs["sync"].outcome is JobOutcome.TIMED_OUT
        assert runner.last_runs["sync"].seconds == 5
        assert recorder.at_once == 0
        await clock.advance(54)
        assert len(recorder.started) == 2
        await clock.advance(5)
    assert recorder.finished == 0


async def test_a_timeout_inside_the_job_is_a_failure(
    clock: ManualClock, metrics: Metrics, recorder: Recorder
) -> None:
    recorder.error = TimeoutError("the service did not answer")
    runner = JobRunner([make_job(recorder.run, deadline=5)], clock, metrics)
    assert (await runner.run("sync")).outcome is JobOutcome.FAILED


async def test_one_of_two_instances_runs_a_locked_job(clock: ManualClock, metrics: Metrics) -> None:
    table, recorder = LockTable(clock), Recorder(clock, seconds=20)
    job = make_job(recorder.run, interval=60, lock_seconds=10)
    first = JobRunner([job], clock, metrics, table.owner("a"))
    second = JobRunner([job], clock, Metrics(), table.owner("b"))
    async with first, second:
        await clock.advance(25)
        outcomes = {first.last_runs["sync"].outcome, second.last_runs["sync"].outcome}
    assert outcomes == {JobOutcome.SUCCEEDED, JobOutcome.LOCKED_ELSEWHERE}
    assert recorder.most_at_once == 1
    assert recorder.finished == 1


async def test_a_run_that_loses_its_lock_is_cancelled(clock: ManualClock, metrics: Metrics) -> None:
    table, recorder = LockTable(clock), Recorder(clock, seconds=50)
    job = make_job(recorder.run, interval=60, lock_seconds=10)
    async with JobRunner([job], clock, metrics, table.owner("a")) as runner:
        await clock.advance(1)
        table.locks["sync"] = ("b", 1000)
        await clock.advance(10)
        assert runner.last_runs["sync"].outcome is JobOutcome.LOCK_LOST
    assert recorder.finished == 0


async def test_a_job_can_be_run_manually(
    clock: ManualClock, metrics: Metrics, recorder: Recorder
) -> None:
    runner = JobRunner([make_job(recorder.run)], clock, metrics)
    run = await runner.run("sync")
    assert run.outcome is JobOutcome.SUCCEEDED
    assert run.started_at == clock.now()
    assert recorder.started == [0]


async def test_a_manual_run_waits_for_the_current_run(clock: ManualClock, metrics: Metrics) -> None:
    recorder = Recorder(clock, seconds=10)
    async with JobRunner([make_job(recorder.run)], clock, metrics) as runner:
        await clock.advance(1)
        assert runner.is_running("sync")
        by_hand = asyncio.create_task(runner.run("sync"))
        await clock.advance(30)
        assert (await by_hand).outcome is JobOutcome.SUCCEEDED
    assert recorder.most_at_once == 1
    assert recorder.started == [0, 10]


async def test_an_unknown_job_is_reported_with_the_available_jobs(
    clock: ManualClock, metrics: Metrics, recorder: Recorder
) -> None:
    runner = JobRunner([make_job(recorder.run)], clock, metrics)
    with pytest.raises(NotFound, match="Unknown job nothing; available: sync"):
        await runner.run("nothing")


async def test_shutdown_lets_a_run_finish_and_starts_none(
    clock: ManualClock, metrics: Metrics
) -> None:
    recorder = Recorder(clock, seconds=5)
    runner = JobRunner([make_job(recorder.run, interval=2)], clock, metrics, grace=10)
    await runner.__aenter__()
    await clock.advance(1)
    stopping = asyncio.create_task(runner.__aexit__())
    await clock.advance(100)
    await stopping
    assert (recorder.started, recorder.finished) == ([0], 1)
    assert clock.sleeping == 0


async def test_a_run_beyond_the_grace_period_is_cancelled_and_releases_its_lock(
    clock: ManualClock, metrics: Metrics
) -> None:
    table, recorder = LockTable(clock), Recorder(clock, seconds=500)
    job = make_job(recorder.run, lock_seconds=10)
    runner = JobRunner([job], clock, metrics, table.owner("a"), grace=10)
    await runner.__aenter__()
    await clock.advance(1)
    stopping = asyncio.create_task(runner.__aexit__())
    await clock.advance(10)
    await stopping
    assert recorder.finished == 0
    assert table.locks == {}
    assert runner.last_runs["sync"].outcome is JobOutcome.CANCELLED
    assert clock.sleeping == 0


async def test_runs_are_metrics(clock: ManualClock, metrics: Metrics) -> None:
    recorder = Recorder(clock, seconds=2)
    async with JobRunner([make_job(recorder.run)], clock, metrics):
        await clock.advance(10)
        recorder.error = ValueError("bad")
        await clock.advance(60)

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, {"job_name": "sync", **labels})

    assert value("tally_job_runs_total", outcome="succeeded") == 1
    assert value("tally_job_runs_total", outcome="failed") == 1
    assert value("tally_job_duration_seconds_sum") == 4
    assert value("tally_job_last_run_timestamp_seconds") == clock.time_ns() / 1e9 - 8


def test_an_invalid_job_list_is_rejected(
    clock: ManualClock, metrics: Metrics, recorder: Recorder
) -> None:
    job = make_job(recorder.run)
    with pytest.raises(ValueError, match="two jobs have the same name"):
        JobRunner([job, job], clock, metrics)
    with pytest.raises(ValueError, match="no lock provider"):
        JobRunner([make_job(recorder.run, lock_seconds=10)], clock, metrics)
