"""The audit trail: written beside the work, so that nothing waits for it or fails with it.

`record` puts an event in a bounded queue and returns; one task writes them. If the table is slow
the queue fills, and what does not fit is counted and logged, not waited for. At the end, what waits
is written, within a few seconds.
"""

import asyncio
import hmac
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Self

from tally.collect.model import NOBODY, AuditEvent
from tally.collect.repository.audit import AuditRepository
from tally.errors import Unavailable
from tally.kit import logs
from tally.kit.clock import Clock, DeadlineExceeded, finish_within
from tally.kit.ids import new_uuid
from tally.kit.masking import mask
from tally.settings import Secret

CAPACITY: Final = 10_000
FLUSH_SECONDS: Final = 5.0
MAX_OF_A_REQUEST: Final = 200
NO_FACTS: Final[Mapping[str, str | int]] = MappingProxyType({})

_log = logs.logger()


class AuditTrail:
    """An async context manager, between whose start and end events are written as they come."""

    def __init__(
        self, repository: AuditRepository, clock: Clock, key: Secret, capacity: int = CAPACITY
    ) -> None:
        self.lost = 0
        self._repository = repository
        self._clock = clock
        self._key = key.reveal().encode()
        self._waiting: asyncio.Queue[AuditEvent] = asyncio.Queue(capacity)
        self._writer: asyncio.Task[None] | None = None

    def record(
        self,
        event_type: str,
        user_id: str | None,
        facts: Mapping[str, str | int] = NO_FACTS,
        *,
        ip: str | None = None,
    ) -> None:
        """Note that something happened, with the ids of the work under way.

        Never fails, never waits.
        """
        context = logs.current_context()
        request_id = context.request_id or new_uuid()
        event = AuditEvent(
            event_type=event_type,
            user_id=user_id or NOBODY,
            epoch=self._clock.seconds(),
            request_id=request_id,
            correlation_id=context.correlation_id or request_id,
            facts=mask(dict(facts)),
            ip_hash=None
            if ip is None
            else hmac.digest(self._key, ip.encode(), "sha256").hex()[:32],
        )
        try:
            self._waiting.put_nowait(event)
        except asyncio.QueueFull:
            self._lose(event, "the queue is full")

    async def __aenter__(self) -> Self:
        self._writer = asyncio.create_task(self._write(), name="collect-audit")
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.flush()
        except DeadlineExceeded:
            _log.warning(
                "Audit events lost at the stop", action="audit", lost=self._waiting.qsize()
            )
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.wait({self._writer})

    async def flush(self) -> None:
        """Return when all that waits is written or given up; DeadlineExceeded if that takes too long."""
        await finish_within(self._clock, FLUSH_SECONDS, self._waiting.join())

    async def _write(self) -> None:
        while True:
            event = await self._waiting.get()
            try:
                await self._append(event)
            except Exception as error:  # noqa: BLE001  (whatever it is, the work goes on and so does the trail)
                self._lose(event, repr(error))
            finally:
                self._waiting.task_done()

    async def _append(self, event: AuditEvent) -> None:
        for number in range(1, MAX_OF_A_REQUEST + 1):
            if await self._repository.append(event, number):
                return
        raise Unavailable(f"More than {MAX_OF_A_REQUEST} events of one request")

    def _lose(self, event: AuditEvent, why: str) -> None:
        self.lost += 1
        _log.warning("Audit event lost", action="audit", what=event.event_type, why=why)
