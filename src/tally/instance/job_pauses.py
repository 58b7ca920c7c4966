"""Pauses of scheduled jobs: stored, so that they hold for all instances and after a restart."""

from collections.abc import Mapping
from typing import Final

from tally.errors import Unavailable
from tally.instance.repository.job_pauses import JobPause, JobPauseRepository
from tally.kit import logs
from tally.kit.clock import Clock, rfc3339
from tally.kit.operators import Operator

# Other instances start runs of a paused job for up to this long.
PAUSE_CACHE_SECONDS: Final = 5.0

_log = logs.logger()


class StoredJobPauses:
    """The paused jobs, read at most every five seconds.

    While the store is unavailable, the jobs that were paused last stay paused.
    """

    def __init__(self, repository: JobPauseRepository, clock: Clock) -> None:
        self._repository = repository
        self._clock = clock
        self._paused: Mapping[str, JobPause] = {}
        self._read_at: float | None = None

    async def is_paused(self, name: str) -> bool:
        now = self._clock.monotonic()
        if self._read_at is None or now - self._read_at >= PAUSE_CACHE_SECONDS:
            self._read_at = now
            try:
                await self.all()
            except Unavailable as error:
                _log.warning("Reading paused jobs failed", action="job_pauses_failed", error=error)
        return name in self._paused

    async def all(self) -> Mapping[str, JobPause]:
        """Return the paused jobs by name."""
        self._paused = {pause.job: pause for pause in await self._repository.all()}
        return self._paused

    async def pause(self, name: str, operator: Operator) -> None:
        """Skip the scheduled runs of a job from now on; a run in progress continues."""
        pause = JobPause(name, operator.name, rfc3339(self._clock.now()))
        await self._repository.put(pause)
        await self.all()

    async def resume(self, name: str) -> None:
        await self._repository.delete(name)
        await self.all()
