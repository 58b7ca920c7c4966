"""The audit trail: a background writer and a search for operators.

`AuditTrail.record` puts an event into a bounded queue and returns; one task writes the queue to the
table. When the table is slow and the queue is full, events are dropped, counted and logged. On
shutdown the queue is flushed within a few seconds.
"""

import asyncio
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Self

from prometheus_client import Counter

from tally.collect.model.records import ANONYMOUS, AuditEvent, PageKey
from tally.collect.repository.audit import AuditRepository
from tally.errors import Invalid, Unavailable
from tally.kit import logs
from tally.kit.clock import Clock, DeadlineExceeded, finish_within
from tally.kit.ids import new_uuid
from tally.kit.masking import mask
from tally.settings import Secret

QUEUE_CAPACITY: Final = 10_000
FLUSH_SECONDS: Final = 5.0
MAX_EVENTS_PER_REQUEST: Final = 200
NO_FACTS: Final[Mapping[str, str | int]] = MappingProxyType({})

_log = logs.logger()


class AuditTrail:
    """Records audit events in the background, within an async context."""

    def __init__(
        self,
        repository: AuditRepository,
        clock: Clock,
        key: Secret,
        dropped: Counter,
        *,
        capacity: int = QUEUE_CAPACITY,
    ) -> None:
        self._dropped = dropped
        self._repository = repository
        self._clock = clock
        self._key = key.reveal().encode()
        self._queue: asyncio.Queue[AuditEvent] = asyncio.Queue(capacity)
        self._writer: asyncio.Task[None] | None = None

    def record(
        self,
        event_type: str,
        user_id: str | None,
        facts: Mapping[str, str | int] = NO_FACTS,
        *,
        ip: str | None = None,
    ) -> None:
        """Enqueue an event with the request and correlation ids of the current context.

        Never blocks and never fails.
        """
        context = logs.current_context()
        request_id = context.request_id or new_uuid()
        event = AuditEvent(
            event_type=event_type,
            user_id=user_id or ANONYMOUS,
            epoch=self._clock.seconds(),
            request_id=request_id,
            correlation_id=context.correlation_id or request_id,
            facts=mask(dict(facts)),
            ip_hash=None
            if ip is None
            else hmac.digest(self._key, ip.encode(), "sha256").hex()[:32],
        )
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            self._drop(event, "queue full")

    async def __aenter__(self) -> Self:
        self._writer = asyncio.create_task(self._write(), name="collect-audit")
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.flush()
        except DeadlineExceeded:
            _log.warning("Audit queue not flushed in time", action="audit_flush_timed_out")
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.wait({self._writer})
        while not self._queue.empty():
            self._drop(self._queue.get_nowait(), "shutdown")

    async def flush(self) -> None:
        """Wait until the queue is written, or raise DeadlineExceeded."""
        await finish_within(self._clock, FLUSH_SECONDS, self._queue.join())

    async def _write(self) -> None:
        while True:
            event = await self._queue.get()
            try:
                await self._append(event)
            except asyncio.CancelledError:
                self._drop(event, "shutdown")
                raise
            except Exception as error:  # noqa: BLE001  (a failed event must not stop the writer)
                self._drop(event, repr(error))
            finally:
                self._queue.task_done()

    async def _append(self, event: AuditEvent) -> None:
        for number in range(1, MAX_EVENTS_PER_REQUEST + 1):
            if await self._repository.append(event, number):
                return
        raise Unavailable(f"A request has more than {MAX_EVENTS_PER_REQUEST} audit events")

    def _drop(self, event: AuditEvent, reason: str) -> None:
        self._dropped.inc()
        _log.warning(
            "Audit event dropped",
            action="audit_event_dropped",
            event_type=event.event_type,
            reason=reason,
        )


@dataclass(frozen=True, slots=True)
class AuditKey:
    """A search key: exactly one of user, correlation and event.

    A search by event covers one month, such as 202601.
    """

    user: str | None = None
    correlation: str | None = None
    event: str | None = None
    month: str | None = None


@dataclass(frozen=True, slots=True)
class AuditSearch:
    """Searches the audit trail."""

    repository: AuditRepository
    clock: Clock

    def complete_key(self, key: AuditKey) -> AuditKey:
        """Validate a key and default its month to the current one."""
        criteria = [name for name in (key.user, key.correlation, key.event) if name is not None]
        if len(criteria) != 1 or (key.month is not None and key.event is None):
            message = "Set exactly one of user, correlation and event; set month only with event"
            raise Invalid(message, code="invalid_field", field="user")
        return replace(key, month=key.month or self.clock.now().strftime("%Y%m"))

    async def page(
        self, key: AuditKey, limit: int, start: PageKey | None
    ) -> tuple[list[AuditEvent], PageKey | None]:
        """Return a page of events for a complete key, newest first, and the next start key."""
        if key.user is not None:
            return await self.repository.by_user(key.user, limit, start)
        if key.correlation is not None:
            return await self.repository.by_correlation(key.correlation, limit, start)
        return await self.repository.by_event(key.event or "", key.month or "", limit, start)
