"""The Strava webhook: validates events and stores them in the inbox before responding."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from tally.collect.model.records import WebhookEvent
from tally.collect.repository.main import CollectRepository
from tally.errors import Forbidden, Invalid
from tally.kit import logs
from tally.kit.auth import matches_secret
from tally.kit.clock import Clock
from tally.kit.ids import new_uuid
from tally.settings import Secret

MAX_CLOCK_SKEW_SECONDS: Final = 86_400


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
class WebhookService:
    """Receives events of one subscription; a `subscription_id` of 0 accepts any."""

    repository: CollectRepository
    clock: Clock
    verify_token: Secret
    subscription_id: int

    def check_handshake(self, mode: str, token: str) -> None:
        if mode != "subscribe" or not matches_secret(token, self.verify_token):
            raise Forbidden("Invalid verify token", code="invalid_verify_token")

    async def receive(self, delivered: WebhookDelivery) -> None:
        """Return when the event is durable in the inbox, from this or an earlier delivery."""
        if self.subscription_id and delivered.subscription_id != self.subscription_id:
            raise Forbidden(
                "subscription_id belongs to another subscription", code="foreign_subscription"
            )
        # An event from the future would make later events appear outdated.
        if delivered.event_time > self.clock.seconds() + MAX_CLOCK_SKEW_SECONDS:
            raise Invalid(
                "event_time must not be in the future", code="invalid_field", field="event_time"
            )
        event = WebhookEvent(
            key=event_key(delivered),
            object_type=delivered.object_type,
            object_id=delivered.object_id,
            aspect_type=delivered.aspect_type,
            owner_id=delivered.owner_id,
            event_time=delivered.event_time,
            is_deauthorisation=delivered.object_type == "athlete"
            and str(delivered.updates.get("authorized")).lower() == "false",
            correlation_id=logs.current_context().correlation_id or new_uuid(),
            received_ms=self.clock.milliseconds(),
        )
        await self.repository.receive(event)


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
