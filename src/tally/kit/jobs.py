"""What time starts: jobs, each on its own timer with jitter, one run at a time, and stopped cleanly.

    Job(name="fixture-sync", description="Fixtures from SportMonks into the store", run=sync, interval=60, lock_seconds=10)

A run may be under a lock that all instances share, and has a deadline if one is given. A run that
fails, takes too long or finds the lock taken is logged and counted, and the timer goes on.
`JobRunner.run` starts a run by hand. A job that knows better returns the seconds until its next
run, instead of waiting for its interval.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Self, TypeAlias

from tally.errors import NotFound
from tally.kit import logs
from tally.kit.clock import Clock, DeadlineExceeded, finish_within
from tally.kit.ids import new_uuid
from tally.kit.locks import LockedElsewhere, LockLost, Locks, run_with_lock
from tally.kit.metrics import Metrics

JobFunction: TypeAlias = Callable[[], Awaitable[float | None]]

_log = logs.logger()
_chance = random.SystemRandom()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to do, and when.

    Times are in seconds; `jitter` is a share of the interval, either way.
    """

    name: str
    description: str
    run: JobFunction
    interval: float
    jitter: float = 0.1
    lock_seconds: float | None = None
    deadline: float | None = None
    # Where its lock is kept, if not where the runner keeps them.
    locks: Locks | None = None


class JobOutcome(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    LOCKED_ELSEWHERE = "locked_elsewhere"
    LOCK_LOST = "lock_lost"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class JobRun:
    """A run that is over, or, with no outcome yet, under way."""

    started_at: datetime
    seconds: float = 0.0
    outcome: JobOutcome | None = None
    error: str | None = None


class JobRunner:
    """The timers of an instance: an async context manager, between whose start and end the jobs run."""

    def __init__(
        self,
        jobs: Sequence[Job],
        clock: Clock,
        metrics: Metrics,
        locks: Locks | None = None,
        *,
        grace: float = 10,
        chance: random.Random = _chance,
    ) -> None:
        self.jobs = {job.name: job for job in jobs}
        self.last_runs: dict[str, JobRun] = {}
        if len(self.jobs) < len(jobs):
            raise ValueError("two jobs have the same name")
        if locks is None and any(
            job.lock_seconds is not None and job.locks is None for job in jobs
        ):
            raise ValueError("a job has a lock, but there is nowhere to keep it")
        self._clock = clock
        self._metrics = metrics
        self._locks = locks
        self._grace = grace
        self._chance = chance
        self._turns = {name: asyncio.Lock() for name in self.jobs}
        self._timers: dict[str, asyncio.Task[None]] = {}
        self._is_stopping = False

    async def __aenter__(self) -> Self:
        self._timers = {
            name: asyncio.create_task(self._repeat(job), name=name)
            for name, job in self.jobs.items()
        }
        return self

    async def __aexit__(self, *_: object) -> None:
        """Start no more runs; let those under way finish within the grace, then cancel them."""
        self._is_stopping = True
        for name, timer in self._timers.items():
            if not self.is_running(name):
                timer.cancel()
        if self._timers:
            try:
                await finish_within(self._clock, self._grace, asyncio.wait(self._timers.values()))
            except DeadlineExceeded:
                _log.warning(
                    "Jobs cancelled: they did not finish in time",
                    action="jobs_stop",
                    grace=self._grace,
                )
                for timer in self._timers.values():
                    timer.cancel()
                await asyncio.wait(self._timers.values())

    def is_running(self, name: str) -> bool:
        return self._turns[name].locked()

    async def run(self, name: str) -> JobRun:
        """Run the job now, by hand, or as soon as the run under way is over; how it ended is in the answer."""
        if name not in self.jobs:
            raise NotFound(
                f"No job {name}; there are: {', '.join(sorted(self.jobs)) or 'none'}",
                code="job_not_found",
            )
        run, _ = await self._once(self.jobs[name])
        return run

    async def _repeat(self, job: Job) -> None:
        # Instances that start together should not all begin with the same.
        await self._clock.sleep(self._chance.uniform(0, job.interval * job.jitter))
        while not self._is_stopping:
            started = self._clock.monotonic()
            _, asked = await self._once(job)
            interval = job.interval if asked is None else asked
            interval *= self._chance.uniform(1 - job.jitter, 1 + job.jitter)
            if not self._is_stopping:
                await self._clock.sleep(max(0.0, started + interval - self._clock.monotonic()))

    async def _once(self, job: Job) -> tuple[JobRun, float | None]:
        """A run, and the seconds until the next one if the job says so.

        Raises nothing but cancellation.
        """
        async with self._turns[job.name]:
            with logs.bound(
                request_id=logs.current_context().request_id or new_uuid(), action=job.name
            ):
                return await self._recorded(job)

    async def _recorded(self, job: Job) -> tuple[JobRun, float | None]:
        started_at, started = self._clock.now(), self._clock.monotonic()
        self.last_runs[job.name] = JobRun(started_at)
        outcome, error, asked = JobOutcome.CANCELLED, None, None
        try:
            asked = await self._guarded(job)
            outcome = JobOutcome.SUCCEEDED
        except LockedElsewhere:
            outcome = JobOutcome.LOCKED_ELSEWHERE
        except LockLost:
            outcome, error = JobOutcome.LOCK_LOST, "the lock was lost"
            _log.warning("Job gave up: its lock was lost")
        except DeadlineExceeded as late:
            outcome, error = JobOutcome.TIMED_OUT, str(late)
            _log.error("Job took too long", error=late)
        except Exception as failure:  # noqa: BLE001  (a timer outlives whatever its job does)
            outcome, error = JobOutcome.FAILED, f"{type(failure).__name__}: {failure}"
            _log.exception("Job failed")
        finally:
            run = JobRun(started_at, self._clock.monotonic() - started, outcome, error)
            self._record(job.name, run)
        return run, asked

    async def _guarded(self, job: Job) -> float | None:
        async def work() -> float | None:
            if job.deadline is None:
                return await job.run()
            return await finish_within(self._clock, job.deadline, job.run())

        locks = job.locks or self._locks
        if job.lock_seconds is None or locks is None:
            return await work()
        return await run_with_lock(locks, self._clock, job.name, job.lock_seconds, work)

    def _record(self, name: str, run: JobRun) -> None:
        self.last_runs[name] = run
        self._metrics.job_runs.labels(name, run.outcome).inc()
        self._metrics.job_seconds.labels(name).observe(run.seconds)
        self._metrics.job_last_run.labels(name).set(self._clock.time_ns() / 1e9)
