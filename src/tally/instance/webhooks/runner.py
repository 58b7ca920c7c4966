"""Runs the webhooks of an installation on this instance: their consumers and their deliveries.

Every two seconds it compares the registered webhooks with those that run. Locks make sure that
each consumer and each delivery works on one instance at a time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec

from tally.errors import Unavailable
from tally.instance.consumers import ConsumerMetrics, NamedConsumer
from tally.instance.repository.consumers import ConsumerLocks, ConsumerRepository
from tally.instance.repository.webhook_records import (
    QueuedDelivery,
    Webhook,
    delivery_id,
    message_id,
)
from tally.instance.webhooks.delivery import DeliveryServices, DeliveryWorker
from tally.instance.webhooks.sources import WebhookSource
from tally.kit import logs
from tally.kit.clock import Clock, DeadlineExceeded, SystemClock, finish_within, rfc3339
from tally.kit.ids import new_uuid
from tally.kit.locks import LockedElsewhere, LockLost, run_with_lock
from tally.kit.tasks import cancel_all
from tally.store.changes import START, Change

REFRESH_SECONDS: Final = 2.0
LOCK_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 3.0

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class _RunningWebhook:
    """A webhook as it was when its tasks were started."""

    webhook: Webhook
    tasks: tuple["asyncio.Task[None]", ...]


class WebhookRunner:
    """Starts and stops the tasks of webhooks as operators register and change them."""

    def __init__(
        self,
        sources: Sequence[WebhookSource],
        services: DeliveryServices,
        consumers: ConsumerRepository,
        metrics: ConsumerMetrics,
    ) -> None:
        self.sources = tuple(sources)
        self._services = services
        self._consumers = consumers
        self._metrics = metrics
        # Locks are shared with other instances, whose time no test controls.
        self._timer: Clock = SystemClock()
        self._locks = ConsumerLocks(consumers, self._timer, new_uuid())
        self._running: dict[str, _RunningWebhook] = {}
        self._wake = asyncio.Event()

    def refresh(self) -> None:
        """Compare the webhooks now, because an operator has changed them."""
        self._wake.set()

    async def run(self) -> None:
        """Run the webhooks until cancelled."""
        is_available = True
        try:
            while True:
                self._wake.clear()
                try:
                    await self._refresh()
                    is_available = True
                except Unavailable as error:
                    if is_available:
                        _log.warning("Webhooks not read", action="webhooks_failed", error=error)
                    is_available = False
                with suppress(DeadlineExceeded):
                    await finish_within(self._timer, REFRESH_SECONDS, self._wake.wait())
        finally:
            await cancel_all(task for one in self._running.values() for task in one.tasks)
            self._running.clear()

    def used_sources(self, kinds: Sequence[str]) -> list[WebhookSource]:
        """Return the sources of these kinds."""
        return [source for source in self.sources if not source.kinds.keys().isdisjoint(kinds)]

    def consumer(
        self, webhook: Webhook, source: WebhookSource, wake: Callable[[], object] | None = None
    ) -> NamedConsumer:
        """Return the consumer that queues the events of a source for a webhook."""

        async def handle(change: Change) -> None:
            for delivery in self._deliveries(webhook, source, change):
                await self._services.deliveries.enqueue(delivery)
                if wake is not None:
                    wake()

        return NamedConsumer(
            consumer_name(webhook.webhook_id, source),
            lambda position: source.log.follow(position or START),
            handle,
            self._consumers,
            self._timer,
            metrics=self._metrics,
        )

    def _deliveries(
        self, webhook: Webhook, source: WebhookSource, change: Change
    ) -> list[QueuedDelivery]:
        created_at = self._services.clock.milliseconds()
        timestamp = rfc3339(datetime.fromtimestamp(change.at, UTC))
        return [
            QueuedDelivery(
                webhook_id=webhook.webhook_id,
                id=delivery_id(source.name, event.key, change.sequence, number),
                message_id=message_id(webhook.webhook_id, source.name, change.id, number),
                kind=event.kind,
                key=event.key,
                body=_encode_body(event.kind, timestamp, event.data),
                created_at=created_at,
            )
            for number, event in enumerate(source.events(change))
            if event.kind in webhook.kinds
        ]

    async def _refresh(self) -> None:
        webhooks: Mapping[str, Webhook] = {
            webhook.webhook_id: webhook
            for webhook in await self._services.webhooks.all()
            if webhook.disabled_reason is None
        }
        for webhook_id, running in list(self._running.items()):
            if webhooks.get(webhook_id) != running.webhook:
                del self._running[webhook_id]
                await cancel_all(running.tasks)
        for webhook_id, webhook in webhooks.items():
            if webhook_id not in self._running:
                self._running[webhook_id] = _RunningWebhook(webhook, self._start(webhook))

    def _start(self, webhook: Webhook) -> tuple["asyncio.Task[None]", ...]:
        delivery = DeliveryWorker(webhook, self._services)
        work = [self._deliver(webhook.webhook_id, delivery.run)]
        work += [
            self.consumer(webhook, source, delivery.wake).run()
            for source in self.used_sources(webhook.kinds)
        ]
        name = f"webhook-{webhook.webhook_id}"
        return tuple(asyncio.create_task(each, name=name) for each in work)

    async def _deliver(self, webhook_id: str, deliver: Callable[[], Awaitable[None]]) -> None:
        """Deliver events while this instance holds the lock of the webhook."""
        is_failing = False
        name = delivery_lock(webhook_id)
        while True:
            try:
                await run_with_lock(self._locks, self._timer, name, LOCK_SECONDS, deliver)
            except (LockedElsewhere, LockLost):
                is_failing = False
            except Exception as error:  # noqa: BLE001  (tried again)
                if not is_failing:
                    _log.warning(
                        "Webhook delivery interrupted",
                        action="webhook_interrupted",
                        webhook=webhook_id,
                        error=error,
                    )
                is_failing = True
            await self._timer.sleep(RETRY_SECONDS)


def consumer_name(webhook_id: str, source: WebhookSource) -> str:
    return f"webhook-{webhook_id}-{source.name}"


def delivery_lock(webhook_id: str) -> str:
    """Return the name of the lock under which one instance delivers the events of a webhook."""
    return f"webhook-{webhook_id}-delivery"


def _encode_body(kind: str, timestamp: str, data: object) -> str:
    return msgspec.json.encode({"type": kind, "timestamp": timestamp, "data": data}).decode()
