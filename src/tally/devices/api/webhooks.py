"""The events of outgoing webhooks, from the change log of readings."""

from collections.abc import Callable, Iterator

from tally.devices.api.schemas.responses import reading_body
from tally.devices.model.records import Reading
from tally.instance.change_feed import Change, ChangeLog
from tally.instance.webhooks.sources import OutgoingEvent, WebhookSource


def reading_source(log: ChangeLog, decode: Callable[[Change], Reading | None]) -> WebhookSource:
    """Return the source of readings; `decode` returns the reading that a change stored."""

    def events(change: Change) -> Iterator[OutgoingEvent]:
        reading = decode(change)
        if reading is not None:
            yield OutgoingEvent("device.reading", reading.hardware_id, reading_body(reading))

    return WebhookSource(
        name="devices",
        log=log,
        kinds={"device.reading": "A reading of a device was stored."},
        events=events,
    )
