"""SSE: the alarms of the fleet, from the change log of `device_alarms`."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from tally.devices.api.schemas.alarms import EVENTS, AlarmSnapshot, alarm_body
from tally.devices.model.alarms import Alarm
from tally.instance.change_feed import Change, ChangeFeed, ChangeLog, EventSource
from tally.kit.clock import Clock
from tally.kit.hub import Hub, encode_event

ALARM_TOPIC: Final = "devices-alarms"


class AlarmStreams:
    """Builds event streams of alarms; `decode` returns the alarm after a change."""

    def __init__(
        self, log: ChangeLog, decode: Callable[[Change], Alarm | None], hub: Hub, clock: Clock
    ) -> None:
        self._decode = decode
        self._hub = hub
        self._feed = ChangeFeed(log, self._publish, hub, clock)

    def source(
        self, partition: str, active: Callable[[], Awaitable[Sequence[Alarm]]]
    ) -> EventSource:
        """Return the stream of the fleet; its snapshot contains the active alarms."""

        async def snapshot() -> AlarmSnapshot:
            return AlarmSnapshot([alarm_body(alarm) for alarm in await active()])

        return EventSource(
            topic=ALARM_TOPIC,
            feeds=(self._feed,),
            log=self._feed.log,
            partition=partition,
            encode=self._encode,
            snapshot=snapshot,
        )

    async def _publish(self, change: Change) -> None:
        if self._hub.is_active(ALARM_TOPIC):
            self._hub.publish(ALARM_TOPIC, change.sequence, self._encode(change))

    def _encode(self, change: Change) -> bytes:
        alarm = self._decode(change)
        if alarm is None:
            return b""
        return encode_event(EVENTS[alarm.state], alarm_body(alarm), change.position)
