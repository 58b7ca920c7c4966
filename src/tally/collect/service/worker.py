"""The inbox worker: applies each webhook event once, athlete by athlete.

The worker takes the athletes who are due, the longest due first, and a bounded number of events of
each. It claims the events with a lease, reads each activity once for all events about it, advances
the milestones once, marks the events as done and removes them. A failure releases the claim and
schedules a retry with exponential back-off; after too many failures the event is parked. After a
crash, a later run picks up the event when the lease expires. Every step is idempotent: the latest
read determines the workout, and parts are minted once.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tally.collect.model.records import (
    InboxWakeUp,
    StravaConnection,
    TokensRevoked,
    WebhookEvent,
)
from tally.collect.model.workouts import Workout
from tally.collect.repository.idempotency import Claim, IdempotencyRepository
from tally.collect.repository.inbox import MAX_ATHLETE_EVENTS
from tally.collect.repository.main import CollectRepository
from tally.collect.repository.table import INBOX_SHARDS
from tally.collect.service.engine import ProgressEngine
from tally.collect.service.event_application import EventApplication
from tally.collect.service.event_budget import EventBudget
from tally.collect.service.event_retries import NEEDS_RELINK, EventRetries, event_context
from tally.collect.service.metrics import InboxMetrics
from tally.collect.service.ports import StravaClient
from tally.kit.clock import Clock
from tally.kit.ids import new_uuid

LEASE_SECONDS: Final = 60
# Athletes processed concurrently: keeps the store busy without delaying requests.
MAX_CONCURRENT_ATHLETES: Final = 6
# The next run follows soon while there is work. Short runs keep request latency low.
BUSY_INTERVAL_SECONDS: Final = 0.05
# Activities of one athlete between two milestone updates. A batch ends well within the lease.
BATCH_SIZE: Final = 10
# When to look again at an event that another worker has claimed.
TAKEN_SECONDS: Final = 5


class _AppliedEvents(NamedTuple):
    """Events about one object, after what they report has been written."""

    events: Sequence[WebhookEvent]
    workouts: Sequence[Workout]


@dataclass(slots=True)
class _AthleteRun:
    """The progress of a run with the events of one athlete.

    `due` is when to look at the athlete again; None if no event waits.
    """

    athlete_id: int
    token: str
    done: int = 0
    due: int | None = None
    is_revoked: bool = False

    def wait_until(self, due: int) -> None:
        self.due = due if self.due is None else min(self.due, due)


@dataclass(frozen=True, slots=True)
class InboxWorker:
    """Processes the inbox. Any number of workers may run in any number of processes.

    It has more than eight fields because it coordinates all parts of the pipeline.
    """

    repository: CollectRepository
    idempotency: IdempotencyRepository
    application: EventApplication
    strava: StravaClient
    engine: ProgressEngine
    budget: EventBudget
    retries: EventRetries
    clock: Clock
    metrics: InboxMetrics

    async def run(self) -> float | None:
        """Process all due athletes; return the delay to the next run if it should be short."""
        now = self.clock.seconds()
        shards = await asyncio.gather(
            *(self.repository.due_athletes(shard, now) for shard in range(INBOX_SHARDS))
        )
        by_athlete: dict[int, list[InboxWakeUp]] = defaultdict(list)
        for wake_ups in shards:
            for wake_up in wake_ups:
                by_athlete[wake_up.athlete_id].append(wake_up)
        slots, token = asyncio.Semaphore(MAX_CONCURRENT_ATHLETES), new_uuid()
        seen = 0

        async def process(athlete_id: int, wake_ups: Sequence[InboxWakeUp]) -> int:
            nonlocal seen
            async with slots:
                events = await self.repository.athlete_events(athlete_id)
                seen += len(events)
                run = _AthleteRun(athlete_id, token)
                await self._process_athlete(run, events)
                await self._reschedule(run, wake_ups)
                return run.done

        outcomes = await asyncio.gather(
            *(process(athlete_id, wake_ups) for athlete_id, wake_ups in by_athlete.items()),
            return_exceptions=True,
        )
        self.metrics.pending.set(seen)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome  # the store is unavailable; the events stay for the next run
        return BUSY_INTERVAL_SECONDS if any(outcomes) else None

    async def adopt_events(self) -> None:
        """Move the events that an earlier version stored by shard to their athletes."""
        for shard in range(INBOX_SHARDS):
            for event in await self.repository.unsorted_events(shard):
                await self.repository.adopt_event(event, self.clock.seconds())

    async def _reschedule(self, run: _AthleteRun, wake_ups: Sequence[InboxWakeUp]) -> None:
        """Replace the wake-ups that led to this run. An event received meanwhile keeps its own."""
        if run.due is not None and run.due not in {wake_up.due for wake_up in wake_ups}:
            await self.repository.wake(run.athlete_id, run.due)
        for wake_up in wake_ups:
            if wake_up.due != run.due:
                await self.repository.remove_wake_up(wake_up)

    async def _process_athlete(self, run: _AthleteRun, events: Sequence[WebhookEvent]) -> None:
        is_full = len(events) == MAX_ATHLETE_EVENTS
        link = await self.application.link_of(run.athlete_id) if events else None
        if link is None:
            for event in events:  # unlinked since they were received
                await self.repository.remove_event(event)
                run.done += 1
        elif link.needs_relink:
            waiting = [event for event in events if not event.is_deauthorisation]
            for event in waiting:
                run.done += await self.retries.park(event, NEEDS_RELINK)
                run.is_revoked = True
            events = [event for event in events if event.is_deauthorisation]
        if link is not None:
            await self._process_groups(run, link, _group(events))
        if run.is_revoked:
            await self._retry_if_relinked(run)
        if is_full and (run.done or run.due is None):
            run.wait_until(self.clock.seconds())  # there may be more events

    async def _retry_if_relinked(self, run: _AthleteRun) -> None:
        """Retry events that were parked just after the athlete linked again."""
        link = await self.application.link_of(run.athlete_id)
        if link is not None and not link.needs_relink:
            await self.retries.retry_parked(run.athlete_id)

    async def _process_groups(
        self, run: _AthleteRun, link: StravaConnection, groups: Sequence[Sequence[WebhookEvent]]
    ) -> None:
        """Apply the events of an athlete, grouped by object, within the budget."""
        now, due = self.clock.seconds(), list[Sequence[WebhookEvent]]()
        for group in groups:
            first = min(event.not_before for event in group)
            if first <= now:
                due.append(group)
            else:
                run.wait_until(first)
        granted = 0
        if due and not self._is_paused(run):
            granted = await self.budget.reserve(run.athlete_id, len(due))
            if granted < len(due):
                run.wait_until(self.budget.next_window())
        for first in range(0, granted, BATCH_SIZE):
            if self._is_paused(run):
                return
            await self._process_batch(run, link, due[first : min(first + BATCH_SIZE, granted)])

    def _is_paused(self, run: _AthleteRun) -> bool:
        """Whether an exhausted limit forbids calls to Strava; if so, the athlete waits."""
        pause = self.strava.pause_seconds()
        if pause:
            run.wait_until(self.clock.seconds() + int(pause) + 1)
        return pause > 0

    async def _process_batch(
        self, run: _AthleteRun, link: StravaConnection, groups: Sequence[Sequence[WebhookEvent]]
    ) -> None:
        """Write the workouts of a batch, advance the milestones once, and finish the events."""
        applied = list[_AppliedEvents]()
        for group in groups:
            if self._is_paused(run):
                break
            claimed = [event for event in group if await self._claim(run, event)]
            if claimed:
                await self._apply(run, link, claimed, applied)
        try:
            await self._advance_milestones(applied)
        except Exception as error:  # noqa: BLE001  (any failure leads to a retry of the events)
            for entry in applied:
                await self._retry_later(run, entry.events, error)
            return
        for entry in applied:
            for event in entry.events:
                await self._finish(run, event)

    async def _claim(self, run: _AthleteRun, event: WebhookEvent) -> bool:
        """Claim an event for this run. An event that is done already is removed."""
        claim = await self.idempotency.claim(
            _idempotency_key(event), run.token, self.clock.seconds(), LEASE_SECONDS
        )
        if claim is Claim.DONE:
            await self.repository.remove_event(event)
            run.done += 1
        elif claim is Claim.TAKEN:
            run.wait_until(self.clock.seconds() + TAKEN_SECONDS)
        return claim is Claim.MINE

    async def _apply(
        self,
        run: _AthleteRun,
        link: StravaConnection,
        events: Sequence[WebhookEvent],
        applied: list[_AppliedEvents],
    ) -> None:
        """Write what the events about one object change. All of them need one read."""
        with event_context(events[-1]):
            try:
                workouts = await self.application.apply(events[-1], link)
            except Exception as error:  # noqa: BLE001  (any failure leads to a retry)
                await self._retry_later(run, events, error)
            else:
                applied.append(_AppliedEvents(events, workouts))

    async def _finish(self, run: _AthleteRun, event: WebhookEvent) -> None:
        key = _idempotency_key(event)
        if not await self.idempotency.finish(key, run.token, self.clock.seconds()):
            run.wait_until(self.clock.seconds() + TAKEN_SECONDS)
            return  # the lease expired; the new holder finishes the event
        await self.repository.remove_event(event)
        self.metrics.lag.observe(max(0, self.clock.milliseconds() - event.received_ms) / 1000)
        run.done += 1

    async def _retry_later(
        self, run: _AthleteRun, events: Sequence[WebhookEvent], error: Exception
    ) -> None:
        for event in events:
            not_before = await self.retries.handle_failure(event, error)
            if not_before is None:
                run.done += 1  # parked
                run.is_revoked |= isinstance(error, TokensRevoked)
            else:
                run.wait_until(not_before)
            await self.idempotency.release(_idempotency_key(event), run.token)

    async def _advance_milestones(self, applied: Sequence[_AppliedEvents]) -> None:
        """Advance the milestones of all affected users.

        The last event of a user supplies the correlation id.
        """
        by_user: dict[str, list[tuple[WebhookEvent, Workout]]] = defaultdict(list)
        for events, workouts in applied:
            for workout in workouts:
                by_user[workout.user_id].append((events[-1], workout))
        for user_id, entries in by_user.items():
            with event_context(entries[-1][0], user_id):
                await self.engine.advance_all(user_id, [workout for _, workout in entries])


def _group(events: Sequence[WebhookEvent]) -> list[list[WebhookEvent]]:
    """Group events by what they make the worker read."""
    groups: dict[tuple[str, int, bool], list[WebhookEvent]] = defaultdict(list)
    for event in events:
        groups[event.object_type, event.object_id, event.is_deauthorisation].append(event)
    return list(groups.values())


def _idempotency_key(event: WebhookEvent) -> str:
    return f"STRAVA#{event.key}"
