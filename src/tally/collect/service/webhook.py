"""What Strava tells by webhook: checked, put in the inbox, and answered at once."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from tally.collect.model import WebhookEvent
from tally.collect.repository.main import CollectRepository
from tally.errors import Forbidden, Invalid
from tally.kit import logs
from tally.kit.auth import matches_secret
from tally.kit.clock import Clock
from tally.kit.ids import new_uuid
from tally.settings import Secret

DAY: Final = 86_400


@dataclass(frozen=True, slots=True)
class Told:
    """An event as it came."""

    object_type: str
    object_id: int
    aspect_type: str
    owner_id: int
    subscription_id: int
    event_time: int
    updates: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Webhook:
    """`subscription_id` is that of our app at Strava; 0 takes events of any."""

    main: CollectRepository
    clock: Clock
    verify_token: Secret
    subscription_id: int

    def check_handshake(self, mode: str, token: str) -> None:
        if mode != "subscribe" or not matches_secret(token, self.verify_token):
            raise Forbidden("Invalid verify token", code="invalid_verify_token")

    async def receive(self, told: Told) -> None:
        """Return when the event is safe in the inbox, this time or before."""
        if self.subscription_id and told.subscription_id != self.subscription_id:
            raise Forbidden("The event is of another subscription", code="foreign_subscription")
        # A later event would lose against one from the future.
        if told.event_time > self.clock.seconds() + DAY:
            raise Invalid("event_time lies in the future", code="invalid_field", field="event_time")
        event = WebhookEvent(
            key=natural_key(told),
            object_type=told.object_type,
            object_id=told.object_id,
            aspect_type=told.aspect_type,
            owner_id=told.owner_id,
            event_time=told.event_time,
            is_deauthorisation=told.object_type == "athlete"
            and str(told.updates.get("authorized")).lower() == "false",
            correlation_id=logs.current_context().correlation_id or new_uuid(),
            received_ms=self.clock.milliseconds(),
        )
        await self.main.receive(event)


def natural_key(told: Told) -> str:
    """The same for every delivery of one event, and for no other event."""
    whole = (
        told.subscription_id,
        told.object_type,
        told.object_id,
        told.aspect_type,
        told.owner_id,
        told.event_time,
        sorted((name, str(value)) for name, value in told.updates.items()),
    )
    return hashlib.sha256(msgspec.json.encode(whole)).hexdigest()[:40]
