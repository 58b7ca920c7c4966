"""Sends the queued events of one webhook: groups in parallel, the events of a group in order.

An event that fails is tried again with back-off, and blocks its group. After a day it is parked,
and the group continues. When several attempts in a row have failed, all groups wait: the receiver
is down. Exactly one instance delivers the events of a webhook at a time.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from prometheus_client import Counter, Gauge

from tally.instance.repository.webhook_deliveries import DeliveryRepository
from tally.instance.repository.webhook_records import QueuedDelivery, Webhook, failure_details
from tally.instance.repository.webhooks import WebhookRepository
from tally.instance.webhooks.sender import MessageSender, Outcome
from tally.instance.webhooks.signing import signed_headers
from tally.kit import logs
from tally.kit.clock import Clock, DeadlineExceeded, SystemClock, finish_within
from tally.kit.encryption import DecryptionError, Encryptor
from tally.kit.metrics import Metrics
from tally.kit.retry import full_jitter

POLL_SECONDS: Final = 1.0  # how soon this instance notices what another one has queued
PARK_AFTER_MS: Final = 86_400_000
INITIAL_BACKOFF_SECONDS: Final = 5.0
MAX_BACKOFF_SECONDS: Final = 3_600.0
MAX_CONCURRENT: Final = 8
# A group gives way to the others after so long, when the next pass begins.
MAX_GROUP_SECONDS: Final = 1.0
# From so many failures in a row on, all groups wait.
MAX_FAILURES: Final = 5
MAX_PAUSE_SECONDS: Final = 60.0
CONTENT_TYPE: Final = {"content-type": "application/json"}

_log = logs.logger()


class DeliveryMetrics:
    """The metrics of all webhooks of an instance."""

    def __init__(self, metrics: Metrics) -> None:
        self.attempts = Counter(
            "tally_webhook_attempts_total",
            "Attempts to deliver an event, by outcome",
            ["webhook", "outcome"],
            registry=metrics.registry,
        )
        self.parked = Counter(
            "tally_webhook_parked_total",
            "Events that were parked after a day of failures",
            ["webhook"],
            registry=metrics.registry,
        )
        self.oldest = Gauge(
            "tally_webhook_oldest_pending_seconds",
            "Age of the oldest event that waits for delivery; 0 without any",
            ["webhook"],
            registry=metrics.registry,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryServices:
    """What the deliveries of all webhooks share. `clock` decides what is due."""

    webhooks: WebhookRepository
    deliveries: DeliveryRepository
    sender: MessageSender
    encryptor: Encryptor
    clock: Clock
    metrics: DeliveryMetrics


class DeliveryWorker:
    """Delivers the events of one webhook until it is cancelled."""

    def __init__(self, webhook: Webhook, services: DeliveryServices) -> None:
        self._webhook = webhook
        self._services = services
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)
        self._wake = asyncio.Event()
        self._failures = 0
        self._paused_until = 0
        self._is_disabled = False
        self._oldest: int | None = None
        # Pauses between passes are real time; a test controls only what is due.
        self._timer: Clock = SystemClock()

    def wake(self) -> None:
        """Look for deliveries now."""
        self._wake.set()

    async def run(self) -> None:
        try:
            while True:
                self._wake.clear()
                await self.run_once()
                # New events of a receiver that is down need no pass of their own.
                while self._is_paused():
                    await self._timer.sleep(POLL_SECONDS)
                with suppress(DeadlineExceeded):
                    await finish_within(self._timer, POLL_SECONDS, self._wake.wait())
        finally:
            # Another instance may continue, or none: the age that this one knows is outdated.
            with suppress(KeyError):
                self._services.metrics.oldest.remove(self._webhook.webhook_id)

    async def run_once(self) -> None:
        """Try every delivery that is due."""
        self._oldest = None
        async with asyncio.TaskGroup() as tasks:
            async for head in self._heads():
                if self._has_expired(head) or (not self._is_paused() and self._is_due(head)):
                    await self._slots.acquire()
                    tasks.create_task(self._deliver_group(head.group))
        now = self._now()
        age = 0 if self._oldest is None else max(0, now - self._oldest)
        self._services.metrics.oldest.labels(self._webhook.webhook_id).set(age / 1000)

    async def _heads(self) -> AsyncIterator[QueuedDelivery]:
        """Yield the first delivery of each group."""
        after = " "
        while found := await self._services.deliveries.after(self._webhook.webhook_id, after):
            group = ""
            for delivery in found:
                if delivery.group != group:
                    group = delivery.group
                    created_at = delivery.created_at
                    self._oldest = min(self._oldest or created_at, created_at)
                    yield delivery
            after = f"{group}~"  # sorts after every delivery of the group

    async def _deliver_group(self, group: str) -> None:
        """Deliver one page of a group; the next pass continues."""
        try:
            until = self._timer.monotonic() + MAX_GROUP_SECONDS
            page = await self._services.deliveries.group(self._webhook.webhook_id, f"{group}#")
            for delivery in page:
                if not await self._deliver(delivery):
                    return
                if self._timer.monotonic() > until:
                    break
            if page:
                self._wake.set()
        finally:
            self._slots.release()

    async def _deliver(self, delivery: QueuedDelivery) -> bool:
        """Return whether the group may continue with the next delivery."""
        if self._is_disabled:
            return False
        if self._is_paused():
            return self._has_expired(delivery) and await self._park(delivery)
        if not self._is_due(delivery):
            return False
        outcome = await self._attempt(delivery)
        if outcome.error is None:
            self._failures = 0
            await self._services.deliveries.complete(delivery)
            return True
        if outcome.is_gone:
            await self._disable()
            return False
        self._record_failure()
        failed = self._failed(delivery, outcome)
        if self._has_expired(failed):
            return await self._park(failed)
        await self._services.deliveries.record_failure(failed)
        return False

    async def _attempt(self, delivery: QueuedDelivery) -> Outcome:
        services, webhook = self._services, self._webhook
        now, body = self._now(), delivery.body.encode()
        try:
            signing_secrets = webhook.signing_secrets(services.encryptor, now)
        except DecryptionError:
            return Outcome(error="The signing secret cannot be decrypted: TALLY_WEBHOOKS_SECRET")
        headers = signed_headers(delivery.message_id, now // 1000, body, signing_secrets)
        outcome = await services.sender.send(webhook.url, {**headers, **CONTENT_TYPE}, body)
        label = "delivered" if outcome.error is None else "failed"
        services.metrics.attempts.labels(webhook.webhook_id, label).inc()
        return outcome

    def _failed(self, delivery: QueuedDelivery, outcome: Outcome) -> QueuedDelivery:
        attempts = delivery.attempts + 1
        jitter = full_jitter(attempts, INITIAL_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS)
        wait = min(max(jitter, outcome.retry_after), MAX_BACKOFF_SECONDS)
        return replace(
            delivery,
            attempts=attempts,
            not_before=self._now() + round(wait * 1000),
            error=outcome.error,
        )

    def _record_failure(self) -> None:
        self._failures += 1
        if self._failures >= MAX_FAILURES:
            attempt = self._failures - MAX_FAILURES + 1
            wait = full_jitter(attempt, INITIAL_BACKOFF_SECONDS, MAX_PAUSE_SECONDS)
            self._paused_until = self._now() + round(wait * 1000)

    async def _park(self, delivery: QueuedDelivery) -> bool:
        if await self._services.deliveries.park(delivery):
            self._services.metrics.parked.labels(delivery.webhook_id).inc()
            _log.error(
                "Webhook delivery parked", action="webhook_parked", **failure_details(delivery)
            )
        return True

    async def _disable(self) -> None:
        self._is_disabled = True
        webhook_id = self._webhook.webhook_id
        _log.warning("Webhook disabled", action="webhook_disabled", webhook=webhook_id)
        await self._services.webhooks.disable(self._webhook, "The receiver answered 410 Gone")

    def _is_paused(self) -> bool:
        return self._is_future(self._paused_until, MAX_PAUSE_SECONDS)

    def _is_due(self, delivery: QueuedDelivery) -> bool:
        return not self._is_future(delivery.not_before, MAX_BACKOFF_SECONDS)

    def _is_future(self, time: int, max_seconds: float) -> bool:
        """Whether a time is yet to come; one that is too far away is of a clock that was ahead."""
        return 0 < time - self._now() <= round(max_seconds * 1000)

    def _has_expired(self, delivery: QueuedDelivery) -> bool:
        return self._now() - delivery.created_at >= PARK_AFTER_MS

    def _now(self) -> int:
        return self._services.clock.milliseconds()
