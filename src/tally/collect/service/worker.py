"""The inbox worker: applies each webhook event once, per athlete in the order of event time.

The worker claims an event with a lease, writes the workout, advances the milestones, then marks the
event as done and removes it. Events of one athlete are applied in batches that advance the
milestones once. A failure releases the claim and schedules a retry with exponential back-off. After
a crash, the next run picks up the event when the lease expires. Every step is idempotent: the
newest event determines the workout, and parts are minted once.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final, NamedTuple

from tally.collect.model.records import StravaConnection, TokensRevoked, WebhookEvent, Workout
from tally.collect.repository.idempotency import Claim, IdempotencyRepository
from tally.collect.repository.main import CollectRepository
from tally.collect.repository.table import INBOX_SHARDS
from tally.collect.service.audit import AuditTrail
from tally.collect.service.engine import ProgressEngine
from tally.collect.service.linking import LinkingService
from tally.collect.service.metrics import InboxMetrics
from tally.collect.service.ports import StravaClient
from tally.errors import Conflict
from tally.kit import logs
from tally.kit.clock import EPOCH, Clock, rfc3339
from tally.kit.ids import new_uuid

LEASE_SECONDS: Final = 60
# Athletes processed concurrently: keeps the store busy without delaying requests.
MAX_CONCURRENT_ATHLETES: Final = 6
# The next run follows soon while there is work. Short runs keep request latency low.
BUSY_INTERVAL_SECONDS: Final = 0.05
# Events of one athlete between two milestone updates. A batch ends well within the lease.
BATCH_SIZE: Final = 10
INITIAL_BACKOFF_SECONDS: Final = 5
MAX_BACKOFF_SECONDS: Final = 3600

_log = logs.logger()


class _AppliedEvent(NamedTuple):
    """An event whose workout has been written. `user_id` is set if milestones may advance."""

    event: WebhookEvent
    user_id: str | None


@dataclass(frozen=True, slots=True)
class InboxWorker:
    """Processes the inbox. Any number of workers may run in any number of processes.

    It has nine fields because it coordinates all parts of the pipeline.
    """

    repository: CollectRepository
    idempotency: IdempotencyRepository
    linking: LinkingService
    strava: StravaClient
    engine: ProgressEngine
    audit: AuditTrail
    clock: Clock
    metrics: InboxMetrics
    rng: random.Random = field(default_factory=random.SystemRandom)

    async def run(self) -> float | None:
        """Apply all due events; return the delay to the next run if it should be short."""
        shards = await asyncio.gather(
            *(self.repository.pending_events(shard) for shard in range(INBOX_SHARDS))
        )
        self.metrics.pending.set(sum(map(len, shards)))
        by_owner: dict[int, list[WebhookEvent]] = defaultdict(list)
        for events in shards:
            for event in events:
                by_owner[event.owner_id].append(event)
        slots, token = asyncio.Semaphore(MAX_CONCURRENT_ATHLETES), new_uuid()

        async def process(events: Sequence[WebhookEvent]) -> int:
            async with slots:
                return await self._process_athlete(events, token)

        outcomes = await asyncio.gather(
            *(process(events) for events in by_owner.values()), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome  # the store is unavailable; the events stay for the next run
        return BUSY_INTERVAL_SECONDS if any(outcomes) else None

    async def _process_athlete(self, events: Sequence[WebhookEvent], token: str) -> int:
        """Apply the events of one athlete; return how many are done."""
        done, blocked = 0, set[int]()
        for first in range(0, len(events), BATCH_SIZE):
            done += await self._process_batch(events[first : first + BATCH_SIZE], token, blocked)
        return done

    async def _process_batch(
        self, events: Sequence[WebhookEvent], token: str, blocked: set[int]
    ) -> int:
        """Write the workouts of a batch, advance the milestones once, and finish the events.

        An event that has to wait adds its object to `blocked`, so that later events of the same
        object wait too.
        """
        done, applied = 0, list[_AppliedEvent]()
        for event in events:
            if event.object_id in blocked:
                continue
            claim = await self._claim(event, token)
            if claim is Claim.DONE:
                await self.repository.remove_event(event)
                done += 1
            elif claim is Claim.TAKEN or not await self._apply(event, token, applied):
                blocked.add(event.object_id)
        try:
            await self._advance_milestones(applied)
        except Exception as error:  # noqa: BLE001  (any failure leads to a retry of the events)
            for entry in applied:
                await self._schedule_retry(entry.event, token, error)
            return done
        return done + sum(
            await asyncio.gather(*(self._finish(entry.event, token) for entry in applied))
        )

    def _is_due(self, event: WebhookEvent) -> bool:
        """Whether the event may run now. Activities wait while the Strava limit is exhausted."""
        needs_activity = event.object_type == "activity" and event.aspect_type != "delete"
        return event.not_before <= self.clock.seconds() and not (
            needs_activity and self.strava.is_paused()
        )

    async def _claim(self, event: WebhookEvent, token: str) -> Claim:
        """Claim an event for the run with this token. Events that are not due count as taken."""
        if not self._is_due(event):
            return Claim.TAKEN
        return await self.idempotency.claim(
            _idempotency_key(event), token, self.clock.seconds(), LEASE_SECONDS
        )

    async def _apply(self, event: WebhookEvent, token: str, applied: list[_AppliedEvent]) -> bool:
        """Write what the event changes. Return False if it failed and is to be retried."""
        try:
            with logs.bound(
                service="collect", correlation_id=event.correlation_id, action="collect_event"
            ):
                applied.append(_AppliedEvent(event, await self._write(event)))
        except Exception as error:  # noqa: BLE001  (any failure leads to a retry of the event)
            await self._schedule_retry(event, token, error)
            return False
        return True

    async def _finish(self, event: WebhookEvent, token: str) -> bool:
        if not await self.idempotency.finish(_idempotency_key(event), token, self.clock.seconds()):
            return False  # the lease expired; the new holder finishes the event
        await self.repository.remove_event(event)
        self.metrics.lag.observe(max(0, self.clock.milliseconds() - event.received_ms) / 1000)
        return True

    async def _schedule_retry(self, event: WebhookEvent, token: str, error: Exception) -> None:
        backoff = min(MAX_BACKOFF_SECONDS, INITIAL_BACKOFF_SECONDS * 2.0 ** min(event.attempts, 20))
        delay = backoff * self.rng.uniform(0.5, 1)
        delay = max(delay, getattr(error, "retry_after", None) or 0)
        self.metrics.retries.inc()
        _log.warning(
            "Event processing failed",
            action="collect_event_failed",
            event_key=event.key[:12],
            retry_seconds=round(delay),
            error=error,
        )
        await self.repository.postpone_event(event, self.clock.seconds() + round(delay))
        await self.idempotency.release(_idempotency_key(event), token)

    async def _write(self, event: WebhookEvent) -> str | None:
        """Write what an event changes; return the user whose milestones may advance."""
        if event.is_deauthorisation:
            await self._deauthorise(event)
            return None
        user_id = (
            await self.repository.owner(event.owner_id) if event.object_type == "activity" else None
        )
        connection = await self.repository.connection(user_id) if user_id is not None else None
        if connection is None or connection.athlete_id != event.owner_id:
            return None  # no user has linked this athlete
        logs.bind(user_id=connection.user_id)
        known = await self.repository.workout(connection.user_id, event.object_id)
        if known is not None and known.event_time > event.event_time:
            return None
        if event.aspect_type == "delete":
            await self.repository.put_workout(
                self._tombstone(connection, event, known), event.owner_id
            )
            return None
        found = await self._fetch(connection, event)
        if found is None:
            return None  # already deleted at Strava; a delete event follows
        workout = replace(found, user_id=connection.user_id, event_time=event.event_time)
        is_written = await self.repository.put_workout(workout, event.owner_id)
        return connection.user_id if is_written else None

    async def _fetch(self, connection: StravaConnection, event: WebhookEvent) -> Workout | None:
        access = await self.linking.access_token(connection)
        try:
            return await self.strava.activity(access, event.object_id, event.owner_id)
        except TokensRevoked:
            # The token may have been rotated a moment ago: retry once with a new one.
            access = await self.linking.access_token(connection, stale=access)
            return await self.strava.activity(access, event.object_id, event.owner_id)

    async def _advance_milestones(self, applied: Sequence[_AppliedEvent]) -> None:
        """Advance the milestones of all affected users.

        The last event of a user supplies the correlation id.
        """
        causes = {entry.user_id: entry.event for entry in applied if entry.user_id is not None}
        for user_id, event in causes.items():
            correlation = {"correlation_id": event.correlation_id, "user_id": user_id}
            with logs.bound(service="collect", action="collect_event", **correlation):
                await self._advance_user(user_id)

    async def _advance_user(self, user_id: str) -> None:
        try:
            await self.engine.advance_all(user_id)
        except Conflict as error:
            # A retry cannot help. The workout is stored, and recompute reports the error.
            _log.warning(
                "Milestones not advanced", action="milestones_not_advanced", reason=error.code
            )
            self.audit.record("MILESTONE_NOT_MOVED", user_id, {"why": error.code})

    async def _deauthorise(self, event: WebhookEvent) -> None:
        users = await self.repository.linked_users(event.owner_id)
        owner = await self.repository.owner(event.owner_id)
        event_time = rfc3339(EPOCH + timedelta(seconds=event.event_time))
        for user_id in users | ({owner} if owner else set()):
            connection = await self.repository.connection(user_id)
            if connection is not None and connection.connected_at > event_time:
                continue  # linked again since; the event is about the former connection
            await self.linking.forget(user_id, event.owner_id)
            self.audit.record("STRAVA_DEAUTHORISED", user_id, {"athlete": event.owner_id})

    def _tombstone(
        self, connection: StravaConnection, event: WebhookEvent, known: Workout | None
    ) -> Workout:
        """Return the workout marked as deleted.

        Unknown workouts get a tombstone too, so that a late create event cannot restore them.
        """
        event_time = rfc3339(EPOCH + timedelta(seconds=event.event_time))
        unknown = Workout(
            user_id=connection.user_id,
            activity_id=event.object_id,
            name="",
            sport_type="Unknown",
            started_at=event_time,
            distance=0,
            elevation=0,
            moving_seconds=0,
            elapsed_seconds=0,
            event_time=event.event_time,
        )
        return replace(
            known or unknown,
            is_deleted=True,
            deleted_at=event_time,
            event_time=event.event_time,
        )


def _idempotency_key(event: WebhookEvent) -> str:
    return f"STRAVA#{event.key}"
