"""The inbox: webhook events that are not applied yet, by athlete, and what wakes the worker.

Events are `EVENT#{time}#{key}` of `INBOX#ATHLETE#{athleteId}`. The key is derived from the content
of the event, so that repeated deliveries are one item. `WAKEUP#{due}#{athleteId}` of
`INBOX#{shard}` tells the worker when to look at an athlete. The worker takes athletes in the order
in which they are due, so that the events of one athlete never delay those of another.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tally.collect.model.records import InboxWakeUp, WebhookEvent
from tally.collect.repository.table import (
    COMMIT_COLLECT,
    EVENT_PREFIX,
    WAKEUP_PREFIX,
    event_sk,
    inbox_pk,
    inbox_shard,
    item_key,
    transact_if_met,
    wakeup_sk,
)
from tally.kit.ids import new_uuid
from tally.store.access import (
    DeleteItem,
    PutItem,
    Query,
    TransactWriteItems,
    UpdateItem,
    access,
    param,
)
from tally.store.api import Delete, Put
from tally.store.errors import ConditionFailed
from tally.store.expressions import F, exists, not_exists
from tally.store.store import Store
from tally.store.values import Item

# Athletes per shard and run, and events per athlete and run.
MAX_DUE_ATHLETES: Final = 200
MAX_ATHLETE_EVENTS: Final = 100
MAX_ADOPTED_EVENTS: Final = 1_000


def athlete_inbox_pk(athlete_id: int) -> str:
    return f"INBOX#ATHLETE#{athlete_id}"


EVENT_KEY: Final = item_key(
    athlete_inbox_pk(param("athleteId")), event_sk(param("eventTime"), param("key"))
)
WAKEUP_KEY: Final = item_key(inbox_pk(param("shard")), wakeup_sk(param("due"), param("athleteId")))
_OF_SHARD: Final = F("PK") == inbox_pk(param("shard"))


class Inbox:
    """Access patterns of the inbox."""

    __slots__ = ()
    store: Store

    @access(
        "Put event in inbox and wake worker",
        TransactWriteItems(
            PutItem(key=EVENT_KEY, condition=not_exists("PK")), PutItem(key=WAKEUP_KEY)
        ),
        table=COMMIT_COLLECT,
        by="system",
        trigger="POST /webhooks/strava/{secret}",
        frequency="Per delivery",
    )
    async def receive_and_wake(self, event: WebhookEvent, due: int) -> bool:
        """Store a new event with its wake-up; return False, and write nothing, if it is known."""
        new_event = Put(COMMIT_COLLECT, event_item(event), condition=not_exists("PK"))
        wake_up = Put(COMMIT_COLLECT, shared_wakeup_item(event.owner_id, due))
        return await transact_if_met(self.store, (new_event, wake_up))

    @access(
        "Put event in inbox",
        PutItem(key=EVENT_KEY, condition=not_exists("PK")),
        table=COMMIT_COLLECT,
        by="system",
        trigger="An activity that a sync cannot decide about",
        frequency="Rare",
    )
    async def receive(self, event: WebhookEvent) -> bool:
        """Store an event. Return whether it is new; it is durable either way."""
        try:
            await self.store.put(COMMIT_COLLECT, event_item(event), condition=not_exists("PK"))
        except ConditionFailed:
            return False
        return True

    @access(
        "Wake worker for athlete",
        PutItem(key=WAKEUP_KEY),
        table=COMMIT_COLLECT,
        by="system",
        trigger="An event that was repeated or has to wait, and syncs",
        frequency="Per repetition",
    )
    async def wake(self, athlete_id: int, due: int) -> None:
        """Have the worker look at the events of an athlete from `due` on."""
        await self.store.put(COMMIT_COLLECT, shared_wakeup_item(athlete_id, due))

    @access(
        "List due athletes",
        Query(where=_OF_SHARD & F("SK").between(WAKEUP_PREFIX, f"{WAKEUP_PREFIX}{param('now')}~")),
        table=COMMIT_COLLECT,
        by="system",
        trigger="Job collect-inbox",
        frequency="Every second per shard",
        bound=MAX_DUE_ATHLETES,
    )
    async def due_athletes(self, shard: int, now: int) -> list[InboxWakeUp]:
        """Return the 200 wake-ups of a shard that have been due for the longest time."""
        is_due = F("SK").between(WAKEUP_PREFIX, f"{WAKEUP_PREFIX}{now:012}~")
        return [
            InboxWakeUp(item["athleteId"], item["notBefore"], item["SK"], item["wakeToken"])
            async for item in self.store.items(
                COMMIT_COLLECT,
                (F("PK") == inbox_pk(shard)) & is_due,
                consistent=True,
                overflow="stop",
            )
        ]

    @access(
        "Remove wake-up",
        DeleteItem(key=WAKEUP_KEY, condition=F("wakeToken") == param("read")),
        table=COMMIT_COLLECT,
        by="system",
        trigger="An athlete whose events were processed",
        frequency="Per athlete and run",
    )
    async def remove_wake_up(self, wake_up: InboxWakeUp) -> None:
        """Remove a wake-up, unless an event has renewed it since it was read."""
        key = item_key(inbox_pk(inbox_shard(wake_up.athlete_id)), wake_up.sort_key)
        try:
            await self.store.delete(COMMIT_COLLECT, key, condition=F("wakeToken") == wake_up.token)
        except ConditionFailed:
            return

    @access(
        "List waiting events of athlete",
        Query(
            where=(F("PK") == athlete_inbox_pk(param("athleteId")))
            & F("SK").begins_with(EVENT_PREFIX)
        ),
        table=COMMIT_COLLECT,
        by="system",
        trigger="Job collect-inbox",
        frequency="Per athlete and run",
        bound=MAX_ATHLETE_EVENTS,
    )
    async def athlete_events(self, athlete_id: int) -> list[WebhookEvent]:
        """Return the oldest 100 events of an athlete, including postponed ones."""
        where = (F("PK") == athlete_inbox_pk(athlete_id)) & F("SK").begins_with(EVENT_PREFIX)
        return [
            event_record(item)
            async for item in self.store.items(
                COMMIT_COLLECT, where, consistent=True, overflow="stop"
            )
        ]

    @access(
        "Put event off",
        UpdateItem(key=EVENT_KEY, condition=exists("PK")),
        table=COMMIT_COLLECT,
        by="system",
        trigger="An event that failed",
        frequency="Per failure",
    )
    async def postpone_event(self, event: WebhookEvent, not_before: int, attempts: int) -> None:
        """Postpone an event, unless another worker has removed it."""
        actions = (F("attempts").set(attempts), F("notBefore").set(not_before))
        try:
            await self.store.update(
                COMMIT_COLLECT, event_key_of(event), *actions, condition=exists("PK")
            )
        except ConditionFailed:
            return

    @access(
        "Remove applied event",
        DeleteItem(key=EVENT_KEY),
        table=COMMIT_COLLECT,
        by="system",
        trigger="An event that is done",
        frequency="Per event",
    )
    async def remove_event(self, event: WebhookEvent) -> None:
        await self.store.delete(COMMIT_COLLECT, event_key_of(event))

    @access(
        "List events of earlier versions",
        Query(where=_OF_SHARD & F("SK").begins_with(EVENT_PREFIX)),
        table=COMMIT_COLLECT,
        by="system",
        trigger="Job collect-inbox, every ten minutes",
        frequency="Rare",
        bound=MAX_ADOPTED_EVENTS,
    )
    async def unsorted_events(self, shard: int) -> Sequence[WebhookEvent]:
        """Return the events that an earlier version stored by shard instead of by athlete."""
        where = (F("PK") == inbox_pk(shard)) & F("SK").begins_with(EVENT_PREFIX)
        return [
            event_record(item)
            async for item in self.store.items(
                COMMIT_COLLECT, where, consistent=True, overflow="stop"
            )
        ]

    @access(
        "Adopt event of an earlier version",
        TransactWriteItems(
            DeleteItem(
                key=item_key(inbox_pk(param("shard")), event_sk(param("eventTime"), param("key"))),
                condition=exists("PK"),
            ),
            PutItem(key=EVENT_KEY),
            PutItem(key=WAKEUP_KEY),
        ),
        table=COMMIT_COLLECT,
        by="system",
        trigger="Job collect-inbox",
        frequency="Once per event after an upgrade",
    )
    async def adopt_event(self, event: WebhookEvent, now: int) -> None:
        """Move an event from its shard to its athlete, unless another worker has done so."""
        former = item_key(
            inbox_pk(inbox_shard(event.owner_id)), event_sk(event.event_time, event.key)
        )
        await transact_if_met(
            self.store,
            (
                Delete(COMMIT_COLLECT, former, condition=exists("PK")),
                Put(COMMIT_COLLECT, event_item(event)),
                Put(COMMIT_COLLECT, unique_wakeup_item(event.owner_id, now)),
            ),
        )


def event_key_of(event: WebhookEvent) -> Item:
    return item_key(athlete_inbox_pk(event.owner_id), event_sk(event.event_time, event.key))


def wakeup_item(athlete_id: int, due: int, sort_key: str) -> Item:
    return item_key(inbox_pk(inbox_shard(athlete_id)), sort_key) | {
        "athleteId": athlete_id,
        "notBefore": due,
        "wakeToken": new_uuid(),
    }


def shared_wakeup_item(athlete_id: int, due: int) -> Item:
    return wakeup_item(athlete_id, due, wakeup_sk(due, athlete_id))


def unique_wakeup_item(athlete_id: int, due: int) -> Item:
    """A wake-up that no other write touches, for transactions."""
    return wakeup_item(athlete_id, due, f"{wakeup_sk(due, athlete_id)}#{new_uuid()}")


def event_item(event: WebhookEvent) -> Item:
    return event_key_of(event) | event_attributes(event)


def event_attributes(event: WebhookEvent) -> Item:
    return {
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


def event_record(item: Mapping[str, Any]) -> WebhookEvent:
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
