"""The table `cricket-key-events`: the key events of live matches, for the streams of clients.

The pipeline writes them in the transaction of the match record, so that each is published once.
Clients receive them from the change log of the table; nothing reads the table itself.
"""

from collections.abc import Iterator, Sequence
from math import ceil
from typing import Final

import msgspec

from tally.cricket.model.events import KeyEvent
from tally.cricket.model.records import display_view
from tally.cricket.repository.display_cache import DISPLAY_STATE_CACHE
from tally.store.change_logs import change_log
from tally.store.changes import Change
from tally.store.schema import Attribute, S, Table
from tally.store.values import Item

CRICKET_KEY_EVENTS = Table(
    "cricket-key-events",
    partition=S("matchId"),
    sort=S("eventId"),
    ttl="ttl",
    stream="NEW_IMAGE",
    attributes=(
        Attribute("matchId", "S", required=True, about="Fixture match ID"),
        Attribute("eventId", "S", required=True, about="{version of the match record}#{number}"),
        Attribute("events", "S", required=True, about="the event as JSON, in a list"),
        Attribute("ttl", "N", required=True, about="epoch seconds"),
    ),
)
KeyEventLog = change_log(CRICKET_KEY_EVENTS, "key events", "GET /matches/:id/events")
DisplayLog = change_log(DISPLAY_STATE_CACHE, "display states", "GET /matches/:id/events")

# A transaction writes at most 100 items, one of which is the match record.
MAX_EVENT_ITEMS: Final = 99
_decoder = msgspec.json.Decoder(list[KeyEvent])


def key_event_items(
    match_id: str, version: int, events: Sequence[KeyEvent], expires_at: int
) -> Iterator[Item]:
    """Yield the items of new events: one each, or more per item if there are very many."""
    for number, group in enumerate(_batches(events, ceil(len(events) / MAX_EVENT_ITEMS))):
        yield {
            "matchId": match_id,
            "eventId": f"{version:010}#{number:02}",
            "events": msgspec.json.encode(group).decode(),
            "ttl": expires_at,
        }


def published_events(change: Change) -> Sequence[KeyEvent]:
    """Return the events that a change of the table published."""
    if change.kind != "INSERT" or change.new is None:
        return ()
    return _decoder.decode(change.new["events"])


def changed_display(change: Change) -> tuple[str, str] | None:
    """Return the match and view whose display state a change replaced; None if it expired."""
    return None if change.kind == "REMOVE" else display_view(str(change.key["cacheKey"]))


def _batches(events: Sequence[KeyEvent], size: int) -> Iterator[Sequence[KeyEvent]]:
    for start in range(0, len(events), max(1, size)):
        yield events[start : start + size]
