"""Scheduled jobs: each runs on its own timer with jitter, one run at a time.

    FIXTURE_SYNC = JobSchedule(
        name="fixture-sync", description="Syncs fixtures from SportMonks",
        interval=60, lock_seconds=10,
    )
    job = FIXTURE_SYNC.job(sync)

A run may hold a lock shared by all instances and may have a deadline. A run that fails, times out
or does not get the lock is logged and counted, and the timer continues. `JobRunner.run` triggers a
run manually. A job may return the seconds until its next run to override its interval. A paused job
skips its scheduled runs, but can be run manually.
"""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Protocol, Self, TypeAlias

from tally.errors import NotFound
from tally.kit import logs
from tally.kit.clock import Clock, DeadlineExceeded, finish_within
from tally.kit.ids import new_uuid
from tally.kit.locks import LockedElsewhere, LockLost, Locks, run_with_lock
from tally.kit.metrics import Metrics

JobFunction: TypeAlias = Callable[[], Awaitable[float | None]]
# Finished runs per job that an instance remembers.
MAX_HISTORY: Final = 50

_log = logs.logger()
_system_rng = random.SystemRandom()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A scheduled function.

    Times are in seconds; `jitter` is the fraction by which the interval varies in both directions.
    """

    name: str
    description: str
    run: JobFunction
    interval: float
    jitter: float = 0.1
    lock_seconds: float | None = None
    deadline: float | None = None
    # Overrides the lock provider of the runner.
    locks: Locks | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSchedule:
    """When and how a job runs: what `tally job list` shows without opening the backends."""

    name: str
    description: str
    interval: float
    jitter: float = 0.1
    lock_seconds: float | None = None
    deadline: float | None = None

    def job(
        self, run: JobFunction, *, locks: Locks | None = None, interval: float | None = None
    ) -> Job:
        """Return the job that runs a function; `interval` overrides the schedule's."""
        return Job(
            name=self.name,
            description=self.description,
            run=run,
            interval=self.interval if interval is None else interval,
            jitter=self.jitter,
            lock_seconds=self.lock_seconds,
            deadline=self.deadline,
            locks=locks,
        )


class JobOutcome(StrEnum):
    """How a run ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    LOCKED_ELSEWHERE = "locked_elsewhere"
    LOCK_LOST = "lock_lost"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class JobRun:
    """A finished run, or, without an outcome, a run in progress."""

    started_at: datetime
    seconds: float = 0.0
    outcome: JobOutcome | None = None
    error: str | None = None


class JobPauses(Protocol):
    """Which jobs are paused, on all instances."""

    async def is_paused(self, name: str) -> bool: ...


class JobRunner:
    """Runs the jobs of an instance; an async context manager that runs the timers while open."""

    def __init__(
        self,
        jobs: Sequence[Job],
        clock: Clock,
        metrics: Metrics,
        locks: Locks | None = None,
        *,
        grace: float = 10,
        rng: random.Random = _system_rng,
        pauses: JobPauses | None = None,
    ) -> None:
        self.jobs = {job.name: job for job in jobs}
        self.last_runs: dict[str, JobRun] = {}
        # Finished runs, oldest first.
        self.history: dict[str, deque[JobRun]] = {
            name: deque(maxlen=MAX_HISTORY) for name in self.jobs
        }
        self.next_runs: dict[str, datetime] = {}
        if len(self.jobs) < len(jobs):
            raise ValueError("two jobs have the same name")
        if locks is None and any(
            job.lock_seconds is not None and job.locks is None for job in jobs
        ):
            raise ValueError("a job needs a lock, but there is no lock provider")
        self._clock = clock
        self._metrics = metrics
        self._locks = locks
        self._grace = grace
        self._rng = rng
        self._pauses = pauses
        self._running = {name: asyncio.Lock() for name in self.jobs}
        self._timers: dict[str, asyncio.Task[None]] = {}
        self._is_stopping = False

    async def __aenter__(self) -> Self:
        self._timers = {
            name: asyncio.create_task(self._repeat(job), name=name)
            for name, job in self.jobs.items()
        }
        return self

    async def __aexit__(self, *_: object) -> None:
        """Start no more runs, wait up to `grace` seconds for current runs, then cancel them."""
        self._is_stopping = True
        for name, timer in self._timers.items():
            if not self.is_running(name):
                timer.cancel()
        if self._timers:
            try:
                await finish_within(self._clock, self._grace, asyncio.wait(self._timers.values()))
            except DeadlineExceeded:
                _log.warning(
                    "Jobs cancelled at the end of the grace period",
                    action="jobs_cancelled",
                    grace=self._grace,
                )
                for timer in self._timers.values():
                    timer.cancel()
                await asyncio.wait(self._timers.values())

    def is_running(self, name: str) -> bool:
        return self._running[name].locked()

    async def run(self, name: str) -> JobRun:
        """Run the job now, or after the current run, and return the finished run."""
        if name not in self.jobs:
            raise NotFound(
                f"Unknown job {name}; available: {', '.join(sorted(self.jobs)) or 'none'}",
                code="job_not_found",
            )
        run, _ = await self._run_once(self.jobs[name])
        return run

    async def _repeat(self, job: Job) -> None:
        # Spreads the first runs of instances that start together.
        await self._wait(job, self._rng.uniform(0, job.interval * job.jitter))
        while not self._is_stopping:
            started = self._clock.monotonic()
            next_interval = None
            if not await self._is_paused(job):
                _, next_interval = await self._run_once(job)
            interval = job.interval if next_interval is None else next_interval
            interval *= self._rng.uniform(1 - job.jitter, 1 + job.jitter)
            if not self._is_stopping:
                await self._wait(job, max(0.0, started + interval - self._clock.monotonic()))

    async def _wait(self, job: Job, seconds: float) -> None:
        self.next_runs[job.name] = self._clock.now() + timedelta(seconds=seconds)
        await self._clock.sleep(seconds)

    async def _is_paused(self, job: Job) -> bool:
        return self._pauses is not None and await self._pauses.is_paused(job.name)

    async def _run_once(self, job: Job) -> tuple[JobRun, float | None]:
        """Return the finished run and the seconds until the next one if the job set them.

        Raises only cancellation.
        """
        async with self._running[job.name]:
            with logs.bound(
                request_id=logs.current_context().request_id or new_uuid(), action=job.name
            ):
                return await self._run_recorded(job)

    async def _run_recorded(self, job: Job) -> tuple[JobRun, float | None]:
        started_at, started = self._clock.now(), self._clock.monotonic()
        self.last_runs[job.name] = JobRun(started_at)
        outcome, error, next_interval = JobOutcome.CANCELLED, None, None
        try:
            next_interval = await self._run_locked(job)
            outcome = JobOutcome.SUCCEEDED
        except LockedElsewhere:
            outcome = JobOutcome.LOCKED_ELSEWHERE
        except LockLost:
            outcome, error = JobOutcome.LOCK_LOST, "the lock was lost"
            _log.warning("Job cancelled: its lock was lost")
        except DeadlineExceeded as timeout:
            outcome, error = JobOutcome.TIMED_OUT, str(timeout)
            _log.error("Job timed out", error=timeout)
        except Exception as failure:  # noqa: BLE001  (the timer continues after any failure)
            outcome, error = JobOutcome.FAILED, f"{type(failure).__name__}: {failure}"
            _log.exception("Job failed")
        finally:
            run = JobRun(started_at, self._clock.monotonic() - started, outcome, error)
            self._record(job.name, run)
        return run, next_interval

    async def _run_locked(self, job: Job) -> float | None:
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
        self.history[name].append(run)
        self._metrics.job_runs.labels(name, run.outcome).inc()
        self._metrics.job_duration.labels(name).observe(run.seconds)
        self._metrics.job_last_run.labels(name).set(self._clock.time_ns() / 1e9)
