"""Pages of a sync: compares the athlete's list of activities with the stored workouts.

The stored workouts are read before the list and written with their versions, so that the result of
a later read is never overwritten. Workouts that changed meanwhile, and activities that the list
lacks, go to the inbox, whose worker reads each of them from Strava.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from tally.collect.model.records import StravaConnection, TokensRevoked, WebhookEvent
from tally.collect.model.sync import (
    LIST_PAGE_SIZE,
    ListedPage,
    SyncCursor,
    SyncStep,
    from_epoch,
    plan_step,
)
from tally.collect.model.workouts import Workout
from tally.collect.repository.main import CollectRepository
from tally.collect.service.engine import ProgressEngine
from tally.collect.service.linking import LinkingService
from tally.collect.service.metrics import SyncMetrics
from tally.collect.service.ports import ActivityLists
from tally.collect.service.workouts import WorkoutWriter
from tally.kit import logs
from tally.kit.clock import Clock
from tally.kit.ids import new_uuid

# Strava omits private activities after cutting the pages: 1,000 in a row are five empty pages.
MAX_HIDDEN_PAGES: Final = 5


@dataclass(frozen=True, slots=True)
class SyncPages:
    """Reads the pages of the list, writes what has changed and advances the milestones."""

    repository: CollectRepository
    linking: LinkingService
    strava: ActivityLists
    engine: ProgressEngine
    clock: Clock
    metrics: SyncMetrics

    async def sync_page(self, connection: StravaConnection, cursor: SyncCursor) -> SyncStep:
        """Write what the next page changes, and advance the milestones once."""
        await self.engine.workouts.ensure_indexed(connection.user_id)
        known = await self.repository.known_workouts(
            connection.user_id, from_epoch(cursor.after + 1)
        )
        listed = await self._list(connection, cursor.after)
        step = plan_step(cursor, known, listed, connection.user_id, connection.athlete_id)
        writer = WorkoutWriter(self.repository, self.clock)
        written, outdated = await writer.write_many(step.changed, connection)
        self.metrics.pages.inc()
        self.metrics.workouts.inc(len(written))
        conflicts = [workout.activity_id for workout in outdated]
        unverified = [
            activity_id for activity_id in (*step.missing, *conflicts) if activity_id is not None
        ]
        for activity_id in unverified:
            await self._verify(connection, activity_id, cursor)
        if unverified:
            await self.repository.wake(connection.athlete_id, self.clock.seconds())
        if written:
            await self.engine.advance_all(connection.user_id, written)
        return step

    async def _list(self, connection: StravaConnection, after: int) -> ListedPage:
        """Read a page, and further ones until the list ends or its start times differ.

        The cursor is a time: it cannot point between activities that start in the same second. A
        short page may be followed by another one: only an empty one is the last, and without
        access to private activities, only several in a row. A page that repeats the previous ones
        ends the list too, so that it is finite in any case.
        """
        merged, number = dict[str, Workout](), 0
        empty_pages = 0 if connection.reads_private_activities else MAX_HIDDEN_PAGES
        while True:
            number += 1
            found, known = await self._read(connection, after, number), len(merged)
            if not found and empty_pages:
                empty_pages -= 1
                continue
            # An activity that was added meanwhile moves others to the next page.
            merged |= {workout.workout_id: workout for workout in found}
            starts = {workout.started_at for workout in merged.values()}
            is_complete = len(starts) > 1 and (number > 1 or len(found) >= LIST_PAGE_SIZE)
            if is_complete or len(merged) == known:
                await asyncio.sleep(0)  # requests come first
                return ListedPage(list(merged.values()), is_last=not found)

    async def _read(self, connection: StravaConnection, after: int, page: int) -> list[Workout]:
        access = await self.linking.access_token(connection)
        athlete_id = connection.athlete_id
        try:
            return await self.strava.list_activities(access, athlete_id, after, page)
        except TokensRevoked:
            # The token may have been rotated a moment ago: retry once with a new one.
            access = await self.linking.access_token(connection, stale=access)
            return await self.strava.list_activities(access, athlete_id, after, page)

    async def _verify(
        self, connection: StravaConnection, activity_id: int, cursor: SyncCursor
    ) -> None:
        """Let the inbox worker read one activity from Strava. Once per sync and activity."""
        await self.repository.receive(
            WebhookEvent(
                key=f"sync-{connection.link_id}-{activity_id}-{cursor.started_at}",
                object_type="activity",
                object_id=activity_id,
                aspect_type="update",
                owner_id=connection.athlete_id,
                event_time=self.clock.seconds(),
                is_deauthorisation=False,
                correlation_id=logs.current_context().correlation_id or new_uuid(),
                received_ms=self.clock.milliseconds(),
            )
        )
