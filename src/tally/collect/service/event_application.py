"""Applies webhook events: each only causes a read of the current state at Strava.

An event about an activity reads the activity, whatever the event claims. Strava's answer is written
if the workout is unchanged since before the read; otherwise the read is repeated. A deauthorisation
uses the refresh token and deletes the link only if Strava rejects it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tally.collect.model.records import StravaConnection, TokensRevoked, WebhookEvent
from tally.collect.model.workouts import Workout, strava_workout_id
from tally.collect.repository.main import CollectRepository
from tally.collect.service.audit import AuditTrail
from tally.collect.service.linking import LinkingService
from tally.collect.service.metrics import InboxMetrics
from tally.collect.service.ports import StravaClient
from tally.collect.service.sync import StravaSyncService
from tally.collect.service.workouts import WorkoutWriter
from tally.errors import Unavailable
from tally.kit import logs
from tally.kit.clock import Clock, rfc3339

MAX_WRITE_ATTEMPTS: Final = 5

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class EventApplication:
    """Applies the events of linked athletes."""

    repository: CollectRepository
    linking: LinkingService
    sync: StravaSyncService
    strava: StravaClient
    audit: AuditTrail
    clock: Clock
    metrics: InboxMetrics

    async def link_of(self, athlete_id: int) -> StravaConnection | None:
        """Return the link of an athlete, even if the owner item is missing."""
        owner = await self.repository.owner(athlete_id)
        users = {owner} if owner is not None else await self.repository.linked_users(athlete_id)
        for user_id in users:
            connection = await self.linking.status(user_id)
            if connection is not None and connection.athlete_id == athlete_id:
                return connection
        return None

    async def apply(self, event: WebhookEvent, connection: StravaConnection) -> Sequence[Workout]:
        """Write what Strava says; return the workouts that milestones may advance by."""
        logs.bind(user_id=connection.user_id)
        if event.is_deauthorisation:
            await self._deauthorise(event, connection)
        elif event.object_type == "activity":
            if not connection.link_id:
                # An earlier version made the link without a sync, and its user may never return.
                await self.sync.ensure(connection)
            return await self._read_activity(event, connection)
        return ()

    async def _read_activity(
        self, event: WebhookEvent, connection: StravaConnection
    ) -> Sequence[Workout]:
        writer = WorkoutWriter(self.repository, self.clock)
        workout_id = strava_workout_id(event.object_id)
        for _ in range(MAX_WRITE_ATTEMPTS):
            known = await self.repository.workout(connection.user_id, workout_id)
            found = await self._fetch(connection, event)
            workout = self._current_state(connection, event, known, found)
            if workout is None:
                return ()
            written = await writer.write(workout, known, connection)
            if written is not None:
                return written
            current = await self.repository.connection(connection.user_id)
            if current is None:
                return ()  # unlinked in the meantime
            if current.link_id != connection.link_id:
                raise Unavailable("The athlete was linked again", retry_after=1)
        raise Unavailable("The workout changes too often", retry_after=1)

    def _current_state(
        self,
        connection: StravaConnection,
        event: WebhookEvent,
        known: Workout | None,
        found: Workout | None,
    ) -> Workout | None:
        """Return the workout to write; None if nothing changes.

        An activity that Strava does not have is deleted, or was never known. For an activity of
        an athlete who was linked before, Strava's answer to another athlete says nothing.
        """
        if found is not None:
            return replace(found, user_id=connection.user_id, event_time=event.event_time)
        if known is None or known.is_deleted or not known.may_belong_to(connection.athlete_id):
            return None
        return replace(known, is_deleted=True, deleted_at=rfc3339(self.clock.now()))

    async def _fetch(self, connection: StravaConnection, event: WebhookEvent) -> Workout | None:
        access = await self.linking.access_token(connection)
        try:
            return await self.strava.activity(access, event.object_id, event.owner_id)
        except TokensRevoked:
            # The token may have been rotated a moment ago: retry once with a new one.
            access = await self.linking.access_token(connection, stale=access)
        try:
            return await self.strava.activity(access, event.object_id, event.owner_id)
        except TokensRevoked as error:
            # The refresh token is valid, so relinking is not known to help.
            raise Unavailable("Strava rejected a new access token") from error

    async def _deauthorise(self, event: WebhookEvent, connection: StravaConnection) -> None:
        if connection.linked_ms > event.received_ms:
            return  # the event is about an earlier link
        if not await self.linking.is_rejected(connection):
            self.metrics.unconfirmed.inc()
            _log.info("Deauthorisation not confirmed by Strava", action="event_unconfirmed")
            return
        await self.linking.forget(connection)
        facts: dict[str, str | int] = {"athlete": event.owner_id}
        self.audit.record("STRAVA_DEAUTHORISED", connection.user_id, facts)
