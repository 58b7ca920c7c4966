"""Requests for a sync with Strava: after linking, for a new goal, by the user, after a gap.

A sync reads the athlete's list of activities, so that workouts whose events were lost are found.
The sync worker runs what is requested here.
"""

import contextlib
from dataclasses import dataclass, replace
from typing import Final

from tally.collect.model.records import StravaConnection
from tally.collect.model.sync import StravaSync, to_epoch
from tally.collect.repository.main import CollectRepository
from tally.errors import Conflict, NotFound, RateLimited, Unavailable
from tally.kit.clock import Clock

MAX_ATTEMPTS: Final = 5
# The interval between two requests of one user.
REQUEST_INTERVAL_SECONDS: Final = 600


class DeliveryFailures:
    """Deliveries of events that this process could not store. Each begins a gap."""

    def __init__(self) -> None:
        self.count = 0

    def add(self) -> None:
        self.count += 1


@dataclass(frozen=True, slots=True)
class StravaSyncService:
    """Schedules syncs and reports their state."""

    repository: CollectRepository
    clock: Clock
    failures: DeliveryFailures

    async def ensure(self, connection: StravaConnection | None) -> StravaSync | None:
        """Schedule the next sync of a link, unless it is scheduled; return the state.

        A failure is left to the next call, because reading an account must not depend on it.
        """
        if connection is None:
            return None
        sync = await self.repository.sync(connection.user_id)
        if sync is not None and sync.link_id == connection.link_id:
            # Without a time, it was parked. A refresh that succeeds makes the link usable again.
            is_scheduled = sync.due_at is not None or connection.needs_relink
            if is_scheduled:
                return sync
        try:
            return await self._schedule(connection)
        except (NotFound, Unavailable):  # unlinked meanwhile, or the store rejects writes
            return sync

    async def start_link(self, user_id: str) -> None:
        """Schedule the sync of a link that was just made."""
        await self.ensure(await self.repository.connection(user_id))

    async def request(self, user_id: str) -> StravaSync:
        """Schedule a sync for a user; RateLimited if the last request was a moment ago."""
        connection = await self.repository.connection(user_id)
        if connection is None:
            raise NotFound("Strava is not linked", code="strava_not_connected")
        if connection.needs_relink:
            raise Conflict("Strava must be linked again", code="strava_relink_required")
        sync, now = await self.repository.sync(user_id), self.clock.seconds()
        wait = 0 if sync is None else sync.requested_at + REQUEST_INTERVAL_SECONDS - now
        if 0 < wait <= REQUEST_INTERVAL_SECONDS:
            raise RateLimited(
                f"A sync can be requested every {REQUEST_INTERVAL_SECONDS // 60} minutes",
                code="too_many_syncs",
                retry_after=wait,
            )
        return await self._schedule(connection, requested_at=now)

    async def extend(self, user_id: str, start: str) -> None:
        """Schedule a sync if a new goal starts before the range that is synced."""
        sync = await self.repository.sync(user_id)
        if sync is not None and sync.synced_from is not None:
            if sync.synced_from <= to_epoch(start):
                return
        elif sync is not None and sync.is_pending:
            return  # it finds the goal when it begins or ends
        connection = await self.repository.connection(user_id)
        if connection is not None and not connection.needs_relink:
            with contextlib.suppress(NotFound):  # unlinked meanwhile
                await self._schedule(connection)

    async def _schedule(
        self, connection: StravaConnection, requested_at: int | None = None
    ) -> StravaSync:
        """Make a sync due now, unless one is pending."""
        for _ in range(MAX_ATTEMPTS):
            former = await self.repository.sync(connection.user_id)
            sync = self._next_state(connection, former)
            if former is not None and former.is_pending and sync.link_id == former.link_id:
                return former
            sync = replace(
                sync,
                due_at=self.clock.seconds(),
                is_daily=False,
                requested_at=sync.requested_at if requested_at is None else requested_at,
            )
            written = await self.repository.put_sync(sync, former)
            if written is not None:
                return written
            if await self.repository.connection(connection.user_id) is None:
                raise NotFound("Strava is not linked", code="strava_not_connected")
        raise Unavailable("The sync is being changed concurrently; retry", retry_after=1)

    def _next_state(self, connection: StravaConnection, former: StravaSync | None) -> StravaSync:
        """Return the state for a link: another athlete starts anew, another link without cursor."""
        if former is None or former.athlete_id != connection.athlete_id:
            return StravaSync(
                user_id=connection.user_id,
                athlete_id=connection.athlete_id,
                link_id=connection.link_id,
            )
        if former.link_id == connection.link_id:
            return former
        return replace(former, link_id=connection.link_id, cursor=None, attempts=0, lease_until=0)
