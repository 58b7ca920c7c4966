"""Items `EVENT#{time}#{key}` of `INBOX#{shard}`: what Strava told and has not been applied yet.

The key of an item is made of the event itself, so that a second delivery stands in the same place
as the first.
"""

from collections.abc import Mapping
from typing import Any

from tally.collect.model import WebhookEvent
from tally.collect.repository.table import COMMIT_COLLECT, EVENTS, at, event, inbox, shard_of
from tally.store.access import DeleteItem, PutItem, Query, UpdateItem, access
from tally.store.errors import ConditionFailed
from tally.store.expressions import F, exists, not_exists
from tally.store.store import Store
from tally.store.values import Item

MAX_WAITING = 1_000


class Inbox:
    """Events that wait, in the order of their time."""

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
    async def receive(self, told: WebhookEvent) -> bool:
        """Whether it is new here; it is durable either way."""
        try:
            await self.store.put(COMMIT_COLLECT, _item(told), condition=not_exists("PK"))
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
        bound=MAX_WAITING,
    )
    async def waiting(self, shard: int) -> list[WebhookEvent]:
        """The oldest thousand of a shard, those that have to wait included."""
        where = (F("PK") == inbox(shard)) & F("SK").begins_with(EVENTS)
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
    async def put_off(self, told: WebhookEvent, not_before: int) -> None:
        """Count a failure, and have the event wait; nothing if another worker has applied it meanwhile."""
        later = (F("attempts").set(told.attempts + 1), F("notBefore").set(not_before))
        try:
            await self.store.update(COMMIT_COLLECT, _key(told), *later, condition=exists("PK"))
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
    async def remove_event(self, told: WebhookEvent) -> None:
        await self.store.delete(COMMIT_COLLECT, _key(told))


def _key(told: WebhookEvent) -> Item:
    return at(inbox(shard_of(told.owner_id)), event(told.event_time, told.key))


def _item(told: WebhookEvent) -> Item:
    return _key(told) | {
        "eventKey": told.key,
        "objectType": told.object_type,
        "objectId": told.object_id,
        "aspectType": told.aspect_type,
        "ownerId": told.owner_id,
        "eventTime": told.event_time,
        "isDeauthorisation": told.is_deauthorisation,
        "correlationId": told.correlation_id,
        "receivedAtMs": told.received_ms,
        "attempts": told.attempts,
        "notBefore": told.not_before,
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
