"""The events of outgoing webhooks, from the change logs of readings and of alarms."""

from collections.abc import Callable, Iterator
from typing import Final

from tally.devices.api.schemas.alarms import alarm_body
from tally.devices.api.schemas.responses import reading_body
from tally.devices.model.alarms import Alarm
from tally.devices.model.records import Reading
from tally.instance.change_feed import Change, ChangeLog
from tally.instance.webhooks.sources import OutgoingEvent, WebhookSource

ALARM_EVENTS: Final = {
    "open": ("alarm.opened", "An alarm of a device was raised."),
    "acknowledged": ("alarm.acknowledged", "An operator acknowledged an alarm."),
    "cleared": ("alarm.cleared", "The cause of an alarm has ended."),
}


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


def alarm_source(log: ChangeLog, decode: Callable[[Change], Alarm | None]) -> WebhookSource:
    """Return the source of alarms; `decode` returns the alarm after a change."""

    def events(change: Change) -> Iterator[OutgoingEvent]:
        alarm = decode(change)
        if alarm is not None:
            kind, _ = ALARM_EVENTS[alarm.state]
            yield OutgoingEvent(kind, alarm.hardware_id, alarm_body(alarm))

    return WebhookSource(
        name="devices-alarms", log=log, kinds=dict(ALARM_EVENTS.values()), events=events
    )
