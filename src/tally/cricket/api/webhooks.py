"""The events of outgoing webhooks, from the change log of key events."""

from collections.abc import Callable, Iterator, Sequence

from tally.cricket.model.events import EventKind, KeyEvent
from tally.instance.change_feed import Change, ChangeLog
from tally.instance.webhooks.sources import OutgoingEvent, WebhookSource


def match_source(log: ChangeLog, decode: Callable[[Change], Sequence[KeyEvent]]) -> WebhookSource:
    """Return the source of matches; `decode` returns the key events that a change published."""

    def events(change: Change) -> Iterator[OutgoingEvent]:
        match_id = str(change.key["matchId"])
        for event in decode(change):
            data = {"matchId": match_id, "event": event}
            yield OutgoingEvent("match.event", match_id, data)
            if event.kind is EventKind.MATCH_END:
                yield OutgoingEvent("match.result", match_id, data)

    return WebhookSource(
        name="cricket",
        log=log,
        kinds={
            "match.event": "A key event of a match: a wicket, a fifty, the end of an innings.",
            "match.result": "The end of a match with its result, which is also a match.event.",
        },
        events=events,
    )
