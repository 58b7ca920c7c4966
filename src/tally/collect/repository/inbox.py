"""Items `EVENT#{time}#{key}` of `INBOX#{shard}`: webhook events that are not applied yet.

The key is derived from the content of the event, so that repeated deliveries are one item.
"""

from collections.abc import Mapping
from typing import Any

from tally.collect.model.records import WebhookEvent
from tally.collect.repository.table import (
    COMMIT_COLLECT,
    EVENT_PREFIX,
    event_sk,
    inbox_pk,
    inbox_shard,
    item_key,
)
from tally.store.access import DeleteItem, PutItem, Query, UpdateItem, access
from tally.store.errors import ConditionFailed
from tally.store.expressions import F, exists, not_exists
from tally.store.store import Store
from tally.store.values import Item

MAX_PENDING_EVENTS = 1_000


class Inbox:
    """Access patterns of the inbox. Events are sorted by time."""

    __slots__ = ()
    store: Store

    @access(
        "Put event in inbox",
        PutItem.conditional,
        table=COMMIT_COLLECT,
        key="PK=INBOX#{shard}, SK=EVENT#{eventTime}#{key} with attribute_not_exists(PK)",
        by="system",
        trigger="POST /webhooks/strava",
        frequency="Per delivery",
    )
    async def receive(self, event: WebhookEvent) -> bool:
        """Store an event. Return whether it is new; it is durable either way."""
        try:
            await self.store.put(COMMIT_COLLECT, _item(event), condition=not_exists("PK"))
        except ConditionFailed:
            return False
        return True

    @access(
        "List waiting events",
        Query,
        table=COMMIT_COLLECT,
        key="PK=INBOX#{shard} AND begins_with(SK, EVENT#), the oldest first",
        by="system",
        trigger="Job collect-inbox",
        frequency="Every second per shard",
        bound=MAX_PENDING_EVENTS,
    )
    async def pending_events(self, shard: int) -> list[WebhookEvent]:
        """Return the oldest 1,000 events of a shard, including postponed ones."""
        where = (F("PK") == inbox_pk(shard)) & F("SK").begins_with(EVENT_PREFIX)
        return [
            _event(item)
            async for item in self.store.items(
                COMMIT_COLLECT, where, consistent=True, overflow="stop", page=250
            )
        ]

    @access(
        "Put event off",
        UpdateItem.conditional,
        table=COMMIT_COLLECT,
        key="PK=INBOX#{shard}, SK=EVENT#{eventTime}#{key} with attribute_exists(PK)",
        by="system",
        trigger="An event that failed",
        frequency="Per failure",
    )
    async def postpone_event(self, event: WebhookEvent, not_before: int) -> None:
        """Count a failure and postpone the event, unless another worker has removed it."""
        actions = (F("attempts").set(event.attempts + 1), F("notBefore").set(not_before))
        try:
            await self.store.update(COMMIT_COLLECT, _key(event), *actions, condition=exists("PK"))
        except ConditionFailed:
            return

    @access(
        "Remove applied event",
        DeleteItem,
        table=COMMIT_COLLECT,
        key="PK=INBOX#{shard}, SK=EVENT#{eventTime}#{key}",
        by="system",
        trigger="An event that is done",
        frequency="Per event",
    )
    async def remove_event(self, event: WebhookEvent) -> None:
        await self.store.delete(COMMIT_COLLECT, _key(event))


def _key(event: WebhookEvent) -> Item:
    return item_key(inbox_pk(inbox_shard(event.owner_id)), event_sk(event.event_time, event.key))


def _item(event: WebhookEvent) -> Item:
    return _key(event) | {
        "eventKey": event.key,
        "objectType": event.object_type,
        "objectId": event.object_id,
        "aspectType": event.aspect_type,
        "ownerId": event.owner_id,
        "eventTime": event.event_time,
        "isDeauthorisation": event.is_deauthorisation,
        "correlationId": event.correlation_id,
        "receivedAtMs": event.received_ms,
        "attempts": event.attempts,
        "notBefore": event.not_before,
    }


def _event(item: Mapping[str, Any]) -> WebhookEvent:
    return WebhookEvent(
        key=item["eventKey"],
        object_type=item["objectType"],
        object_id=item["objectId"],
        aspect_type=item["aspectType"],
        owner_id=item["ownerId"],
        event_time=item["eventTime"],
        is_deauthorisation=item["isDeauthorisation"],
        correlation_id=item["correlationId"],
        received_ms=item["receivedAtMs"],
        attempts=item["attempts"],
        not_before=item["notBefore"],
    )
