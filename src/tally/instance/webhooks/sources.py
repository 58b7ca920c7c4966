"""Where the events of webhooks come from: a backend lists its sources in its wiring.

    WebhookSource(
        name="devices",
        log=ReadingLog(store),
        kinds={"device.reading": "A reading was stored."},
        events=lambda change: [OutgoingEvent("device.reading", hardware_id, body)],
    )

To add a kind, add it to `kinds` and return its events from `events`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tally.store.change_logs import ChangeLog
from tally.store.changes import Change


@dataclass(frozen=True, slots=True)
class OutgoingEvent:
    """An event. The events of a key are delivered in order; `data` is what JSON can encode."""

    kind: str
    key: str
    data: object


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSource:
    """The events of one change log; `kinds` maps each kind to its description.

    `name` is part of the names of stored consumers and stays the same. `events` is pure, and
    returns the same events in the same order whenever it is called with a change.
    """

    name: str
    log: ChangeLog
    kinds: Mapping[str, str]
    events: Callable[[Change], Iterable[OutgoingEvent]]
