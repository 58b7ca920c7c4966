"""Maintains the store: deletes expired items and old changes, and verifies the database's pages."""

from collections.abc import Sequence
from typing import Final

from prometheus_client import Gauge

from tally.errors import Unavailable
from tally.kit import logs
from tally.kit.backend import Probe
from tally.kit.clock import Clock
from tally.kit.jobs import Job, JobSchedule
from tally.kit.metrics import Metrics
from tally.store.api import Engine
from tally.store.clock_guard import ClockGuard
from tally.store.errors import StorageDamaged
from tally.store.schema import Table
from tally.store.sqlite import SqliteEngine
from tally.store.store import Store

SWEEP_BATCH_SIZE: Final = 500
# 16 MB per minute, which is 23 GB per day, in slices of about a millisecond.
SCRUB_PAGES: Final = 4_096
_SLICE_PAGES: Final = 64

SWEEP_SCHEDULE: Final = JobSchedule(
    name="ttl-sweep",
    description="Deletes expired items and old changes of streams",
    interval=60,
)
SCRUB_SCHEDULE: Final = JobSchedule(
    name="store-scrub",
    description="Verifies the checksums of the store's pages",
    interval=60,
)

_log = logs.logger()


class StoreMaintenance:
    """The jobs, the probe and the metrics of the store's maintenance.

    DynamoDB deletes expired items and checks its storage itself.
    """

    def __init__(
        self,
        engine: Engine,
        store: Store,
        clock: Clock,
        tables: Sequence[Table],
        metrics: Metrics,
    ) -> None:
        self._engine = engine
        self._store = store
        self._clock = clock
        self._expiring = [table for table in tables if table.ttl]
        self._embedded = engine if isinstance(engine, SqliteEngine) else None
        self._guard = None if self._embedded is None else ClockGuard(clock, self._embedded)
        self._is_unclean = self._embedded is not None and self._embedded.is_unclean
        _gauge(metrics, "tally_store_damaged", "1 if the store's database is damaged").set_function(
            lambda: float(store.damage.first is not None)
        )
        _gauge(
            metrics, "tally_store_sweep_paused", "1 while a clock jump pauses the deletion of items"
        ).set_function(lambda: float(self._clock_problem() is not None))
        self._last_scrub = _gauge(
            metrics,
            "tally_store_last_scrub_timestamp_seconds",
            "Time at which all pages of the database had been verified",
        )

    def jobs(self) -> list[Job]:
        """Return the jobs of the configured engine."""
        sweep = SWEEP_SCHEDULE.job(self._sweep)
        if self._embedded is None:
            return [sweep]
        return [sweep, SCRUB_SCHEDULE.job(self._scrub)]

    def probes(self) -> list[Probe]:
        """Return a probe that reports a clock jump; the instance stays ready."""
        return [] if self._guard is None else [Probe("clock", self._check_clock, is_required=False)]

    async def _sweep(self) -> None:
        """Delete expired items and old changes in small batches: other writes do not wait long."""
        if self._guard is not None and not await self._guard.is_plausible():
            return
        try:
            for table in self._expiring:
                deleted = SWEEP_BATCH_SIZE
                while deleted == SWEEP_BATCH_SIZE:
                    deleted = await self._engine.sweep(
                        table, self._clock.seconds(), SWEEP_BATCH_SIZE
                    )
            while self._embedded is not None and await self._embedded.trim_changes():
                pass
        except StorageDamaged as error:
            self._store.damage.record(error)
            raise

    async def _scrub(self) -> None:
        """Verify the next pages; after an unclean shutdown, first all of them."""
        if self._embedded is None:
            return
        is_complete, pages = False, 0
        try:
            while not is_complete and (self._is_unclean or pages < SCRUB_PAGES):
                is_complete = await self._embedded.scrub(_SLICE_PAGES)
                pages += _SLICE_PAGES
        except StorageDamaged as error:
            self._store.damage.record(error)
            raise
        if is_complete:
            self._last_scrub.set(self._clock.seconds())
        if self._is_unclean:
            self._is_unclean = False
            _log.info("Store verified after an unclean shutdown", action="store_verified")

    async def _check_clock(self) -> None:
        problem = self._clock_problem()
        if problem is not None:
            raise Unavailable(problem)

    def _clock_problem(self) -> str | None:
        return None if self._guard is None else self._guard.problem


def _gauge(metrics: Metrics, name: str, text: str) -> Gauge:
    return Gauge(name, text, registry=metrics.registry)
