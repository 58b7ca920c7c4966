"""Request and response bodies of the webhook routes."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from tally.instance.repository.webhook_records import DeliveryState, QueuedDelivery, Webhook
from tally.instance.webhooks.targets import MAX_URL_LENGTH
from tally.kit.body import StrictStruct
from tally.kit.clock import rfc3339_seconds

Url = Annotated[str, Meta(min_length=1, max_length=MAX_URL_LENGTH)]
Kinds = Annotated[list[Annotated[str, Meta(max_length=64)]], Meta(min_length=1, max_length=64)]
Description = Annotated[str, Meta(max_length=256)]
SigningSecret = Annotated[str, Meta(max_length=128)]
DeliveryIds = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=128)]], Meta(min_length=1, max_length=1_000)
]


class NewWebhook(StrictStruct, frozen=True):
    """Without a secret, Tally generates one."""

    url: Url
    kinds: Kinds
    description: Description | None = None
    secret: SigningSecret | None = None


class WebhookPatch(StrictStruct, frozen=True):
    """Fields that are absent or null stay as they are."""

    url: Url | None = None
    kinds: Kinds | None = None
    description: Description | None = None
    is_enabled: bool | None = None


class NewSecret(StrictStruct, frozen=True):
    """Without a secret, Tally generates one."""

    secret: SigningSecret | None = None


class ReplayBody(StrictStruct, frozen=True):
    """Without ids, up to 1,000 parked deliveries are replayed."""

    ids: DeliveryIds | None = None


class DeliveryQuery(StrictStruct, frozen=True):
    state: Literal["pending", "parked"] = "pending"
    limit: Annotated[int, Meta(ge=1, le=100)] = 50
    cursor: Annotated[str, Meta(max_length=20_000)] | None = None


class EventKindBody(msgspec.Struct, frozen=True):
    kind: str
    description: str


class EventKinds(msgspec.Struct, frozen=True):
    items: list[EventKindBody]


class WebhookBody(msgspec.Struct, frozen=True):
    """A webhook without its secrets."""

    webhook_id: str
    url: str
    kinds: list[str]
    description: str | None
    is_enabled: bool
    disabled_reason: str | None
    created_at: str


class WebhookWithSecret(msgspec.Struct, frozen=True):
    """The only response that contains the secret."""

    webhook: WebhookBody
    secret: str


class WebhookList(msgspec.Struct, frozen=True):
    items: list[WebhookBody]


class DeliveryBody(msgspec.Struct, frozen=True):
    """A delivery that is pending or parked; `next_attempt_at` is null if it is due or parked."""

    id: str
    message_id: str
    kind: str
    key: str
    created_at: str
    attempts: int
    next_attempt_at: str | None
    error: str | None


class DeliveryPage(msgspec.Struct, frozen=True):
    items: list[DeliveryBody]
    next_cursor: str | None


class ReplayResult(msgspec.Struct, frozen=True):
    replayed: int


def webhook_body(webhook: Webhook) -> WebhookBody:
    return WebhookBody(
        webhook_id=webhook.webhook_id,
        url=webhook.url,
        kinds=list(webhook.kinds),
        description=webhook.description,
        is_enabled=webhook.disabled_reason is None,
        disabled_reason=webhook.disabled_reason,
        created_at=rfc3339_seconds(webhook.created_at // 1000),
    )


def delivery_body(delivery: QueuedDelivery, state: DeliveryState) -> DeliveryBody:
    is_waiting = state is DeliveryState.PENDING and delivery.not_before > 0
    return DeliveryBody(
        id=delivery.id,
        message_id=delivery.message_id,
        kind=delivery.kind,
        key=delivery.key,
        created_at=rfc3339_seconds(delivery.created_at // 1000),
        attempts=delivery.attempts,
        next_attempt_at=rfc3339_seconds(delivery.not_before // 1000) if is_waiting else None,
        error=delivery.error,
    )


WEBHOOK_EXAMPLE: Final = WebhookBody(
    webhook_id="06FBZT2Q2V8M0A4K6X9N3R5T7W",
    url="https://example.com/tally",
    kinds=["milestone.minted"],
    description="Prints the parts",
    is_enabled=True,
    disabled_reason=None,
    created_at="2026-01-01T00:00:00Z",
)
DELIVERY_EXAMPLE: Final = DeliveryBody(
    id="6f1ed002ab5595859014ebf0#0000000000000000000000000000000000001234#0000",
    message_id="msg_2c26b46b68ffc68ff99b453c1d304134",
    kind="milestone.minted",
    key="ana",
    created_at="2026-01-01T00:00:00Z",
    attempts=3,
    next_attempt_at="2026-01-01T00:00:25Z",
    error="HTTP status 500",
)
