"""Items `EVENT#{athleteId}#{time}#{key}` of `INBOX#PARKED`: events that wait for a person.

An event is parked after too many failures, or when its athlete has to link again. It returns to the
inbox when the athlete links again or an operator retries it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tally.collect.model.records import ParkedEvent, WebhookEvent
from tally.collect.repository.inbox import (
    EVENT_KEY,
    WAKEUP_KEY,
    athlete_inbox_pk,
    event_attributes,
    event_item,
    event_key_of,
    event_record,
    unique_wakeup_item,
)
from tally.collect.repository.table import (
    COMMIT_COLLECT,
    EVENT_PREFIX,
    item_key,
    transact_if_met,
)
from tally.store.access import DeleteItem, PutItem, Query, TransactWriteItems, access, param
from tally.store.api import Delete, Put, Write
from tally.store.expressions import Condition, F, exists
from tally.store.store import Store
from tally.store.values import Item, Key

PARKED: Final = "INBOX#PARKED"
# Each event takes two writes of a transaction, and the wake-up one; some DynamoDB-compatible
# services allow ten.
UNPARK_BATCH_SIZE: Final = 4


def parked_prefix(athlete_id: int) -> str:
    return f"{EVENT_PREFIX}{athlete_id:018}#"


def events_of_athlete(athlete_id: int) -> tuple[Condition, Condition]:
    """Return the key conditions of an athlete's waiting events and parked events."""
    is_parked = (F("PK") == PARKED) & F("SK").begins_with(parked_prefix(athlete_id))
    return F("PK") == athlete_inbox_pk(athlete_id), is_parked


def event_keys(athlete_id: int) -> tuple[Item, Item]:
    """Return the templates of the keys of an athlete's waiting events and parked events."""
    waiting = item_key(athlete_inbox_pk(athlete_id), param("SK"))
    return waiting, item_key(PARKED, f"{parked_prefix(athlete_id)}{param('event')}")


_PARKED_KEY: Final = item_key(
    PARKED, f"{parked_prefix(param('athleteId'))}{param('eventTime')}#{param('key')}"
)


class ParkedEvents:
    """Access patterns of parked events."""

    __slots__ = ()
    store: Store

    @access(
        "Park event",
        TransactWriteItems(
            DeleteItem(key=EVENT_KEY, condition=exists("PK")), PutItem(key=_PARKED_KEY)
        ),
        table=COMMIT_COLLECT,
        by="system",
        trigger="An event that failed too often, or whose athlete has to link again",
        frequency="Rare",
    )
    async def park_event(self, parked: ParkedEvent) -> bool:
        """Move an event out of the inbox. Return False if another worker has removed it."""
        item = _key(parked.event) | event_attributes(parked.event)
        item |= {"reason": parked.reason, "parkedAtUtc": parked.parked_at}
        writes = (
            Delete(COMMIT_COLLECT, event_key_of(parked.event), condition=exists("PK")),
            Put(COMMIT_COLLECT, item),
        )
        return await transact_if_met(self.store, writes)

    @access(
        "List parked events",
        Query(
            where=(
                events_of_athlete(param("athleteId"))[1],
                (F("PK") == PARKED) & F("SK").begins_with(EVENT_PREFIX),
            )
        ),
        table=COMMIT_COLLECT,
        by="both",
        trigger="GET /admin/parked-events, POST /admin/parked-events/retry, relinking",
        frequency="Rare",
    )
    async def parked_events(
        self, athlete_id: int | None, limit: int, start: Key | None
    ) -> tuple[list[ParkedEvent], Key | None]:
        """Return a page of parked events by athlete, and the start key of the next page."""
        prefix = EVENT_PREFIX if athlete_id is None else parked_prefix(athlete_id)
        page = await self.store.query(
            COMMIT_COLLECT,
            (F("PK") == PARKED) & F("SK").begins_with(prefix),
            limit=limit,
            start=start,
            consistent=True,
        )
        return [
            ParkedEvent(event_record(item), item["reason"], item["parkedAtUtc"])
            for item in page.items
        ], page.next

    @access(
        "Return parked events to inbox",
        TransactWriteItems(
            PutItem(key=WAKEUP_KEY),
            DeleteItem(key=_PARKED_KEY, condition=exists("PK"), requests=UNPARK_BATCH_SIZE),
            PutItem(key=EVENT_KEY, requests=UNPARK_BATCH_SIZE),
        ),
        table=COMMIT_COLLECT,
        by="both",
        trigger="POST /admin/parked-events/retry, relinking",
        frequency="Rare",
    )
    async def unpark_events(self, events: Sequence[WebhookEvent], now: int) -> bool:
        """Return events of one athlete to the inbox; False if one is no longer parked."""
        writes: list[Write] = [Put(COMMIT_COLLECT, unique_wakeup_item(events[0].owner_id, now))]
        for event in events:
            fresh = replace(event, attempts=0, not_before=0)
            writes.append(Delete(COMMIT_COLLECT, _key(event), condition=exists("PK")))
            writes.append(Put(COMMIT_COLLECT, event_item(fresh)))
        return await transact_if_met(self.store, writes)


def _key(event: WebhookEvent) -> Item:
    return item_key(PARKED, f"{parked_prefix(event.owner_id)}{event.event_time:012}#{event.key}")
