"""The sync worker: reads the athletes' lists of activities and writes what events have missed.

A sync runs after linking, daily, after every gap in the deliveries, and on request. It reads the
list page by page, oldest first, within the share of the rate limits that events leave. The cursor
is stored after each page, with a lease: another instance continues after a crash.
"""

import asyncio
import random
from dataclasses import dataclass, field, replace
from typing import Final

from tally.collect.model.records import StravaConnection
from tally.collect.model.sync import StravaSync, SyncCursor, from_epoch, to_epoch
from tally.collect.repository.main import CollectRepository
from tally.collect.repository.syncs import SyncEntry
from tally.collect.service.metrics import SyncMetrics
from tally.collect.service.ports import ActivityLists
from tally.collect.service.sync import StravaSyncService
from tally.collect.service.sync_pages import SyncPages
from tally.kit import logs
from tally.kit.clock import Clock
from tally.kit.ids import new_uuid

DAY_SECONDS: Final = 86_400
# A page takes seconds; the lease is renewed after each.
LEASE_SECONDS: Final = 120
# One writes a page while Strava answers another. More would only compete with requests.
MAX_CONCURRENT_SYNCS: Final = 2
# A run ends after some pages, so that no athlete waits for another one's history.
MAX_PAGES_PER_RUN: Final = 3
MAX_SYNCS_PER_RUN: Final = 40
BUSY_INTERVAL_SECONDS: Final = 0.1
INITIAL_BACKOFF_SECONDS: Final = 30
MAX_BACKOFF_SECONDS: Final = 3600
HEARTBEAT_SECONDS: Final = 10
# Strava repeats a delivery that fails. A longer silence is a gap: events may be lost.
GAP_SECONDS: Final = 60

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class SyncWorker:
    """Runs the syncs that are due. Any number of workers may run in any number of processes."""

    repository: CollectRepository
    strava: ActivityLists
    pages: SyncPages
    service: StravaSyncService
    clock: Clock
    metrics: SyncMetrics
    rng: random.Random = field(default_factory=random.SystemRandom)

    async def beat(self) -> None:
        """Record that this instance receives events, and detect a gap before now."""
        now, failures = self.clock.seconds(), self.service.failures
        noted, heartbeat = failures.count, await self.repository.heartbeat()
        is_gap = bool(noted) or heartbeat is None or now - heartbeat.beaten_at > GAP_SECONDS
        await self.repository.put_heartbeat(now, now if is_gap else None)
        failures.count -= noted
        if is_gap:
            self.metrics.gaps.inc()
            _log.info("Events may be lost; syncing all athletes", action="sync_gap_detected")

    async def run(self) -> float | None:
        """Run syncs that are due; return the delay to the next run if it should be short."""
        if self.strava.sync_delay():
            return None  # the entries stay due
        now, heartbeat = self.clock.seconds(), await self.repository.heartbeat()
        gap_ended = 0 if heartbeat is None else heartbeat.gap_ended_at
        # A sync that began before the end of the gap is due less than a day after it.
        entries = await self.repository.due_syncs(now, max(now, gap_ended + DAY_SECONDS - 1))
        self.metrics.due.set(len(entries))
        slots = asyncio.Semaphore(MAX_CONCURRENT_SYNCS)

        async def sync(entry: SyncEntry) -> bool:
            async with slots:
                return await self._sync_entry(entry)

        outcomes = await asyncio.gather(
            *(sync(entry) for entry in entries[:MAX_SYNCS_PER_RUN]), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome  # the store is unavailable; the leases expire
        return BUSY_INTERVAL_SECONDS if any(outcomes) else None

    async def _sync_entry(self, entry: SyncEntry) -> bool:
        """Continue the sync of an entry; return whether it made progress."""
        sync = await self.repository.sync(entry.user_id)
        if sync is None or not entry.is_of(sync):
            await self.repository.remove_sync_entry(entry)
            return False
        if sync.lease_until > self.clock.seconds():
            return False
        connection = await self.repository.connection(entry.user_id)
        if connection is None or connection.needs_relink or connection.link_id != sync.link_id:
            await self._park(sync)  # linking schedules a sync
            return False
        cursor = sync.cursor or await self._begin(connection, sync)
        leased = await self.repository.put_sync(
            replace(sync, cursor=cursor, lease_until=self._lease_end()), sync
        )
        if leased is None:
            return False
        with logs.bound(
            service="collect",
            action="collect_sync",
            correlation_id=new_uuid(),
            user_id=entry.user_id,
        ):
            return await self._sync_pages(connection, leased)

    async def _sync_pages(self, connection: StravaConnection, sync: StravaSync) -> bool:
        try:
            for _ in range(MAX_PAGES_PER_RUN):
                if sync.cursor is None or self.strava.sync_delay():
                    break
                step = await self.pages.sync_page(connection, sync.cursor)
                if step.cursor is None:
                    return await self._finish(connection, sync, sync.cursor)
                advanced = await self.repository.put_sync(
                    replace(sync, cursor=step.cursor, attempts=0, lease_until=self._lease_end()),
                    sync,
                )
                if advanced is None:
                    return False  # the lease expired, or the user has linked again
                sync = advanced
        except Exception as error:  # noqa: BLE001  (any failure leads to a retry)
            await self._schedule_retry(sync, error)
            return False
        await self.repository.put_sync(replace(sync, lease_until=0), sync)
        return True

    async def _begin(self, connection: StravaConnection, sync: StravaSync) -> SyncCursor:
        start = await self._range_start(connection, sync)
        return SyncCursor(start, max(0, start - 1), self.clock.seconds())

    async def _range_start(self, connection: StravaConnection, sync: StravaSync) -> int:
        """Return the start of the earliest goal. The range of earlier syncs stays included."""
        milestones = await self.repository.milestones(connection.user_id)
        starts = [to_epoch(current.milestone.period_start) for current in milestones]
        starts.append(to_epoch(connection.connected_at))
        if sync.synced_from is not None:
            starts.append(sync.synced_from)
        return max(0, min(starts))

    async def _finish(
        self, connection: StravaConnection, sync: StravaSync, cursor: SyncCursor
    ) -> bool:
        # Repairs what a crash between a write and the milestones left behind.
        await self.pages.engine.advance_all(connection.user_id)
        finished = await self.repository.put_sync(
            replace(
                sync,
                cursor=None,
                synced_at=cursor.started_at,
                synced_from=cursor.range_start,
                due_at=cursor.started_at + DAY_SECONDS,
                is_daily=True,
                attempts=0,
                lease_until=0,
            ),
            sync,
        )
        if finished is None:
            return False
        self.metrics.syncs.inc()
        _log.info("Sync completed", action="sync_completed", since=from_epoch(cursor.range_start))
        # Read after the write, so that a goal created meanwhile is found here or schedules a sync.
        if await self._range_start(connection, finished) < cursor.range_start:
            await self.service.extend(connection.user_id, from_epoch(0))
        return True

    async def _park(self, sync: StravaSync) -> None:
        await self.repository.put_sync(
            replace(sync, due_at=None, is_daily=False, cursor=None, lease_until=0), sync
        )

    async def _schedule_retry(self, sync: StravaSync, error: Exception) -> None:
        backoff = min(MAX_BACKOFF_SECONDS, INITIAL_BACKOFF_SECONDS * 2.0 ** min(sync.attempts, 20))
        delay = max(backoff * self.rng.uniform(0.5, 1), getattr(error, "retry_after", None) or 0)
        self.metrics.failures.inc()
        _log.warning("Sync failed", action="sync_failed", retry_seconds=round(delay), error=error)
        await self.repository.put_sync(
            replace(
                sync,
                due_at=self.clock.seconds() + round(delay),
                is_daily=False,
                attempts=sync.attempts + 1,
                lease_until=0,
            ),
            sync,
        )

    def _lease_end(self) -> int:
        return self.clock.seconds() + LEASE_SECONDS
