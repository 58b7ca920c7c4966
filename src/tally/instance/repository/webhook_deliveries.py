"""The table `tally-webhook-deliveries`: events that wait for delivery, or for an operator.

The queue of a webhook is a partition. Its sort key begins with the group, so that the oldest event
of each group is found by skipping from group to group. Delivered events are deleted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tally.instance.repository.webhook_records import DeliveryState, QueuedDelivery
from tally.store.access import (
    BatchWriteItem,
    DeleteItem,
    GetItem,
    PutItem,
    Query,
    TransactWriteItems,
    UpdateItem,
    access,
    param,
)
from tally.store.api import Delete, Put
from tally.store.errors import ConditionFailed, StoreUnavailable, TransactionCancelled
from tally.store.expressions import F, exists, not_exists
from tally.store.schema import Attribute, S, Table
from tally.store.store import Store
from tally.store.values import Item, Key

WEBHOOK_DELIVERIES = Table(
    "tally-webhook-deliveries",
    partition=S("queue"),
    sort=S("id"),
    ttl="ttl",
    attributes=(
        Attribute("queue", "S", required=True, about="pending#{webhook ID} or parked#{webhook ID}"),
        Attribute("id", "S", required=True, about="{hash of the key}#{sequence}#{number}"),
        Attribute("messageId", "S", required=True, about="the header webhook-id"),
        Attribute("kind", "S", required=True, about="kind of the event"),
        Attribute("key", "S", required=True, about="events of a key are delivered in order"),
        Attribute("body", "S", required=True, about="the body as JSON"),
        Attribute("createdAt", "N", required=True, about="epoch milliseconds"),
        Attribute("attempts", "N", required=True, about="count"),
        Attribute("notBefore", "N", required=True, about="next attempt, epoch milliseconds"),
        Attribute("error", "S", about="error of the last attempt"),
        Attribute("ttl", "N", required=True, about="epoch seconds"),
    ),
)
KEEP_SECONDS: Final = 30 * 86_400
PAGE: Final = 64
PURGE_PAGE: Final = 500
MAX_ERROR: Final = 500


def _key(state: DeliveryState, webhook_id: str, delivery_id: str) -> Key:
    return {"queue": _queue(state, webhook_id), "id": delivery_id}


def _queue(state: DeliveryState, webhook_id: str) -> str:
    return f"{state.value}#{webhook_id}"


_PENDING_KEY: Final = _key(DeliveryState.PENDING, param("webhookId"), param("id"))
_PARKED_KEY: Final = _key(DeliveryState.PARKED, param("webhookId"), param("id"))
_PENDING: Final = F("queue") == _queue(DeliveryState.PENDING, param("webhookId"))
_PARKED: Final = F("queue") == _queue(DeliveryState.PARKED, param("webhookId"))


@dataclass(frozen=True, slots=True)
class DeliveryRepository:
    """Pending and parked deliveries by webhook."""

    store: Store
    tables: ClassVar = (WEBHOOK_DELIVERIES,)

    @access(
        "Queue delivery",
        PutItem(key=_PENDING_KEY, condition=not_exists("id")),
        table=WEBHOOK_DELIVERIES,
        trigger="An event of a webhook",
        frequency="Per event and webhook",
    )
    async def enqueue(self, delivery: QueuedDelivery) -> None:
        """Add a delivery unless it is pending already."""
        item = _item(DeliveryState.PENDING, delivery)
        try:
            await self.store.put(WEBHOOK_DELIVERIES, item, condition=not_exists("id"))
        except ConditionFailed:
            return  # the consumer repeats its last changes after a crash

    @access(
        "Find pending deliveries of all groups",
        Query(where=_PENDING & (F("id") > param("after")), limit=PAGE),
        table=WEBHOOK_DELIVERIES,
        trigger="Delivery of webhooks",
        frequency="Every second per webhook",
    )
    async def after(self, webhook_id: str, after: str) -> list[QueuedDelivery]:
        """Return pending deliveries in the order of their ids."""
        where = F("queue") == _queue(DeliveryState.PENDING, webhook_id)
        page = await self.store.query(
            WEBHOOK_DELIVERIES, where & (F("id") > after), limit=PAGE, consistent=True
        )
        return [_delivery(webhook_id, item) for item in page.items]

    @access(
        "Find pending deliveries of a group",
        Query(where=_PENDING & F("id").begins_with(param("group")), limit=PAGE),
        table=WEBHOOK_DELIVERIES,
        trigger="Delivery of webhooks",
        frequency="Per group with a delivery that is due",
    )
    async def group(self, webhook_id: str, group: str) -> list[QueuedDelivery]:
        """Return the next deliveries of a group in order."""
        where = F("queue") == _queue(DeliveryState.PENDING, webhook_id)
        page = await self.store.query(
            WEBHOOK_DELIVERIES, where & F("id").begins_with(group), limit=PAGE, consistent=True
        )
        return [_delivery(webhook_id, item) for item in page.items]

    @access(
        "Complete delivery",
        DeleteItem(key=_PENDING_KEY),
        table=WEBHOOK_DELIVERIES,
        trigger="Delivery of webhooks",
        frequency="Per delivered event",
    )
    async def complete(self, delivery: QueuedDelivery) -> None:
        key = _key(DeliveryState.PENDING, delivery.webhook_id, delivery.id)
        await self.store.delete(WEBHOOK_DELIVERIES, key)

    @access(
        "Record failed attempt of delivery",
        UpdateItem(key=_PENDING_KEY, condition=exists("id")),
        table=WEBHOOK_DELIVERIES,
        trigger="Delivery of webhooks",
        frequency="Per failed attempt",
    )
    async def record_failure(self, delivery: QueuedDelivery) -> None:
        key = _key(DeliveryState.PENDING, delivery.webhook_id, delivery.id)
        try:
            await self.store.update(
                WEBHOOK_DELIVERIES,
                key,
                F("attempts").set(delivery.attempts),
                F("notBefore").set(delivery.not_before),
                F("error").set((delivery.error or "")[:MAX_ERROR]),
                condition=exists("id"),
            )
        except ConditionFailed:
            return  # the webhook was deleted meanwhile

    @access(
        "Park delivery",
        TransactWriteItems(
            DeleteItem(key=_PENDING_KEY, condition=exists("id")), PutItem(key=_PARKED_KEY)
        ),
        table=WEBHOOK_DELIVERIES,
        trigger="A delivery that failed for a day",
        frequency="Rare",
    )
    async def park(self, delivery: QueuedDelivery) -> bool:
        """Move a pending delivery to the parked ones. Return whether it was pending."""
        return await self._move(delivery, DeliveryState.PENDING, DeliveryState.PARKED)

    @access(
        "Replay parked delivery",
        TransactWriteItems(
            DeleteItem(key=_PARKED_KEY, condition=exists("id")), PutItem(key=_PENDING_KEY)
        ),
        table=WEBHOOK_DELIVERIES,
        by="user",
        trigger="POST /admin/webhooks/{webhook_id}/replay",
        frequency="Per parked delivery",
    )
    async def replay(self, delivery: QueuedDelivery) -> bool:
        """Move a parked delivery back to the pending ones. Return whether it was parked."""
        return await self._move(delivery, DeliveryState.PARKED, DeliveryState.PENDING)

    @access(
        "List deliveries",
        Query(where=(_PENDING, _PARKED)),
        table=WEBHOOK_DELIVERIES,
        by="user",
        trigger="GET /admin/webhooks/{webhook_id}/deliveries",
        frequency="Rare",
    )
    async def page(
        self, webhook_id: str, state: DeliveryState, limit: int, start: Key | None
    ) -> tuple[list[QueuedDelivery], Key | None]:
        """Return a page of deliveries, and the start key of the next page."""
        where = F("queue") == _queue(state, webhook_id)
        page = await self.store.query(
            WEBHOOK_DELIVERIES, where, limit=limit, start=start, consistent=True
        )
        return [_delivery(webhook_id, item) for item in page.items], page.next

    @access(
        "Get parked delivery",
        GetItem(key=_PARKED_KEY),
        table=WEBHOOK_DELIVERIES,
        by="user",
        trigger="POST /admin/webhooks/{webhook_id}/replay",
        frequency="Rare",
    )
    async def parked(self, webhook_id: str, delivery_id: str) -> QueuedDelivery | None:
        key = _key(DeliveryState.PARKED, webhook_id, delivery_id)
        item = await self.store.get(WEBHOOK_DELIVERIES, key, consistent=True)
        return None if item is None else _delivery(webhook_id, item)

    @access(
        "Find deliveries of deleted webhook",
        Query(where=(_PENDING, _PARKED), limit=PURGE_PAGE),
        table=WEBHOOK_DELIVERIES,
        by="user",
        trigger="DELETE /admin/webhooks/{webhook_id}",
        frequency="Rare",
    )
    async def ids(self, webhook_id: str, state: DeliveryState) -> Sequence[str]:
        """Return the first ids of a queue."""
        where = F("queue") == _queue(state, webhook_id)
        page = await self.store.query(WEBHOOK_DELIVERIES, where, limit=PURGE_PAGE, consistent=True)
        return [item["id"] for item in page.items]

    @access(
        "Delete deliveries of webhook",
        BatchWriteItem(key=(_PENDING_KEY, _PARKED_KEY)),
        table=WEBHOOK_DELIVERIES,
        by="user",
        trigger="DELETE /admin/webhooks/{webhook_id}",
        frequency="Rare",
        bound=PURGE_PAGE,
    )
    async def delete(self, webhook_id: str, state: DeliveryState, ids: Sequence[str]) -> None:
        keys = [_key(state, webhook_id, delivery_id) for delivery_id in ids]
        await self.store.write_many(WEBHOOK_DELIVERIES, deletes=keys)

    async def _move(self, delivery: QueuedDelivery, old: DeliveryState, new: DeliveryState) -> bool:
        key = _key(old, delivery.webhook_id, delivery.id)
        try:
            await self.store.transact(
                [
                    Delete(WEBHOOK_DELIVERIES, key, condition=exists("id")),
                    Put(WEBHOOK_DELIVERIES, _item(new, delivery)),
                ]
            )
        except TransactionCancelled as error:
            if not any(reason.condition_failed for reason in error.reasons):
                raise StoreUnavailable(str(error)) from error
            return False
        return True


def _item(state: DeliveryState, delivery: QueuedDelivery) -> Item:
    item: Item = {
        **_key(state, delivery.webhook_id, delivery.id),
        "messageId": delivery.message_id,
        "kind": delivery.kind,
        "key": delivery.key,
        "body": delivery.body,
        "createdAt": delivery.created_at,
        "attempts": delivery.attempts,
        "notBefore": delivery.not_before,
        "ttl": delivery.created_at // 1000 + KEEP_SECONDS,
    }
    return item if delivery.error is None else item | {"error": delivery.error[:MAX_ERROR]}


def _delivery(webhook_id: str, item: Mapping[str, Any]) -> QueuedDelivery:
    return QueuedDelivery(
        webhook_id=webhook_id,
        id=item["id"],
        message_id=item["messageId"],
        kind=item["kind"],
        key=item["key"],
        body=item["body"],
        created_at=int(item["createdAt"]),
        attempts=int(item["attempts"]),
        not_before=int(item["notBefore"]),
        error=item.get("error"),
    )
