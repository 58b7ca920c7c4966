"""Retries of failed events, with exponential back-off, and the events parked after too many.

An event whose athlete has to link again is parked at once. It returns to the inbox when the athlete
links again. Operators see the parked events and can return them to the inbox.
"""

import random
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from tally.collect.model.records import (
    ApplicationInactive,
    PageKey,
    ParkedEvent,
    TokensRevoked,
    WebhookEvent,
)
from tally.collect.repository.main import CollectRepository
from tally.collect.repository.parked_events import UNPARK_BATCH_SIZE
from tally.collect.service.metrics import InboxMetrics
from tally.errors import RateLimited
from tally.kit import logs
from tally.kit.clock import Clock, rfc3339

INITIAL_BACKOFF_SECONDS: Final = 5
MAX_BACKOFF_SECONDS: Final = 3600
# With the back-off, about four hours.
MAX_EVENT_ATTEMPTS: Final = 12
MAX_RETRIED_EVENTS: Final = 2_000
NEEDS_RELINK: Final = "needs_relink"
FAILED: Final = "failed"

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class EventRetries:
    """Postpones, parks and returns events."""

    repository: CollectRepository
    clock: Clock
    metrics: InboxMetrics
    rng: random.Random = field(default_factory=random.SystemRandom)

    async def handle_failure(self, event: WebhookEvent, error: Exception) -> int | None:
        """Schedule a retry and return its time, or park the event and return None."""
        if isinstance(error, TokensRevoked):
            await self.park(event, NEEDS_RELINK)
            return None
        if event.attempts + 1 >= MAX_EVENT_ATTEMPTS and not _is_global(error):
            await self.park(event, FAILED, error)
            return None
        return await self._postpone(event, error)

    async def park(self, event: WebhookEvent, reason: str, error: Exception | None = None) -> bool:
        """Park an event; return False if another worker has removed it."""
        parked = ParkedEvent(event, reason, rfc3339(self.clock.now()))
        if not await self.repository.park_event(parked):
            return False
        self.metrics.parked.labels(reason).inc()
        with event_context(event):
            _log.warning(
                "Event parked",
                action="collect_event_parked",
                event_key=event.key[:12],
                reason=reason,
                error=error,
            )
        return True

    async def parked(
        self, athlete_id: int | None, limit: int, start: PageKey | None
    ) -> tuple[list[ParkedEvent], PageKey | None]:
        """Return a page of parked events, and the start key of the next page."""
        return await self.repository.parked_events(athlete_id, limit, start)

    async def retry_parked(self, athlete_id: int | None) -> int:
        """Return the parked events of one athlete, or of all, to the inbox; return their number.

        At most 2,000 per call.
        """
        retried = 0
        for _ in range(MAX_RETRIED_EVENTS // UNPARK_BATCH_SIZE):
            page, _ = await self.repository.parked_events(athlete_id, UNPARK_BATCH_SIZE, None)
            if not page:
                break
            for _, group in groupby(page, key=lambda parked: parked.event.owner_id):
                events = [parked.event for parked in group]
                if await self.repository.unpark_events(events, self.clock.seconds()):
                    retried += len(events)
        return retried

    async def _postpone(self, event: WebhookEvent, error: Exception) -> int:
        attempts = event.attempts if _is_global(error) else event.attempts + 1
        backoff = min(MAX_BACKOFF_SECONDS, INITIAL_BACKOFF_SECONDS * 2.0**event.attempts)
        delay = backoff * self.rng.uniform(0.5, 1)
        delay = max(delay, getattr(error, "retry_after", None) or 0)
        self.metrics.retries.inc()
        with event_context(event):
            _log.warning(
                "Event processing failed",
                action="collect_event_failed",
                event_key=event.key[:12],
                retry_seconds=round(delay),
                error=error,
            )
        not_before = self.clock.seconds() + round(delay)
        await self.repository.postpone_event(event, not_before, attempts)
        return not_before


def event_context(event: WebhookEvent, user_id: str | None = None) -> AbstractContextManager[None]:
    """Bind the correlation id of the delivery, also in runs long after it."""
    return logs.bound(
        service="collect",
        action="collect_event",
        correlation_id=event.correlation_id,
        user_id=user_id,
    )


def _is_global(error: Exception) -> bool:
    """Whether a failure concerns all events, and so says nothing about this one."""
    return isinstance(error, (RateLimited, ApplicationInactive))
