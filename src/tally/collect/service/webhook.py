"""The Strava webhook: stores events of known athletes in the inbox before responding.

Strava does not sign events, so they are unverified claims. The secret in the callback URL, the
subscription and the athlete must be known. All other events get the same response and are dropped
and counted, so that a sender learns nothing.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from tally.collect.model.records import WebhookEvent
from tally.collect.repository.main import CollectRepository
from tally.collect.service.metrics import WebhookMetrics
from tally.errors import Forbidden
from tally.kit import logs
from tally.kit.auth import matches_secret
from tally.kit.clock import Clock
from tally.kit.ids import new_uuid
from tally.kit.ttl_cache import TTLCache
from tally.settings import Secret

# How long an instance may take to notice a new subscription.
SUBSCRIPTION_SECONDS: Final = 2.0

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class WebhookDelivery:
    """An event as delivered by Strava."""

    object_type: str
    object_id: int
    aspect_type: str
    owner_id: int
    subscription_id: int
    event_time: int
    updates: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class WebhookSecrets:
    """The secrets of the callback: the last part of its path, and the token of the handshake."""

    path_secret: Secret
    verify_token: Secret


class KnownSubscription:
    """The id of the subscription: configured, or stored by `tally collect subscribe`."""

    def __init__(self, repository: CollectRepository, clock: Clock, configured: int) -> None:
        self._repository = repository
        self._configured = configured
        self._stored: TTLCache[str, int] = TTLCache(clock, SUBSCRIPTION_SECONDS, 1)

    async def is_known(self, subscription_id: int) -> bool:
        if self._configured:
            return subscription_id == self._configured
        stored = self._stored.get("id")
        if stored is None:
            stored = await self._repository.subscription_id()
            if stored is None:
                return False  # not cached: the first events follow the registration at once
            self._stored.put("id", stored)
        return subscription_id == stored


@dataclass(frozen=True, slots=True)
class WebhookService:
    """Receives the events of one subscription."""

    repository: CollectRepository
    clock: Clock
    secrets: WebhookSecrets
    subscription: KnownSubscription
    metrics: WebhookMetrics

    def check_handshake(self, path_secret: str, mode: str, token: str) -> None:
        is_secret = matches_secret(path_secret, self.secrets.path_secret)
        is_token = matches_secret(token, self.secrets.verify_token)
        if not (is_secret and is_token) or mode != "subscribe":
            raise Forbidden("Invalid callback secret or verify token", code="invalid_verify_token")

    async def receive(self, path_secret: str, delivered: WebhookDelivery) -> None:
        """Return when the event is dropped, or durable in the inbox."""
        reason = await self._reason_to_drop(path_secret, delivered)
        if reason is not None:
            self.metrics.dropped.labels(reason).inc()
            _log.debug("Webhook event dropped", action="webhook_event_dropped", reason=reason)
            return
        event = WebhookEvent(
            key=event_key(delivered),
            object_type=delivered.object_type,
            object_id=delivered.object_id,
            aspect_type=delivered.aspect_type,
            owner_id=delivered.owner_id,
            # A time in the future would put the event behind all later ones.
            event_time=min(delivered.event_time, self.clock.seconds()),
            is_deauthorisation=delivered.object_type == "athlete"
            and str(delivered.updates.get("authorized")).lower() == "false",
            correlation_id=logs.current_context().correlation_id or new_uuid(),
            received_ms=self.clock.milliseconds(),
        )
        now = self.clock.seconds()
        if not await self.repository.receive_and_wake(event, now):
            # An earlier version stored the event before its wake-up, and may have failed between.
            await self.repository.wake(event.owner_id, now)

    async def _reason_to_drop(self, path_secret: str, delivered: WebhookDelivery) -> str | None:
        if not matches_secret(path_secret, self.secrets.path_secret):
            return "unknown_secret"
        if not await self.subscription.is_known(delivered.subscription_id):
            return "unknown_subscription"
        if not await self._is_linked(delivered.owner_id):
            return "unknown_athlete"
        return None

    async def _is_linked(self, athlete_id: int) -> bool:
        if await self.repository.owner(athlete_id) is not None:
            return True
        # Where data is damaged, a link exists without its owner.
        return bool(await self.repository.linked_users(athlete_id))


def event_key(event: WebhookDelivery) -> str:
    """Derive the idempotency key from the content, so that all deliveries share it."""
    content = (
        event.subscription_id,
        event.object_type,
        event.object_id,
        event.aspect_type,
        event.owner_id,
        event.event_time,
        sorted((name, str(value)) for name, value in event.updates.items()),
    )
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:40]
