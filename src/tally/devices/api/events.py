"""SSE: the readings of a device, from the change log of `device_readings`."""

from collections.abc import Awaitable, Callable

from tally.devices.api.schemas.responses import ReadingSnapshot, reading_body
from tally.devices.model.records import Reading
from tally.instance.change_feed import Change, ChangeFeed, ChangeLog, EventSource
from tally.kit.clock import Clock
from tally.kit.hub import Hub, encode_event


class ReadingStreams:
    """Builds event streams of readings; `decode` returns the reading that a change stored."""

    def __init__(
        self, log: ChangeLog, decode: Callable[[Change], Reading | None], hub: Hub, clock: Clock
    ) -> None:
        self._decode = decode
        self._hub = hub
        self._feed = ChangeFeed(log, self._publish, hub, clock)

    def source(
        self, hardware_id: str, latest: Callable[[str], Awaitable[Reading | None]]
    ) -> EventSource:
        """Return the stream of a device; its snapshot contains the latest reading."""

        async def snapshot() -> ReadingSnapshot:
            reading = await latest(hardware_id)
            return ReadingSnapshot(hardware_id, None if reading is None else reading_body(reading))

        return EventSource(
            topic=_topic(hardware_id),
            feeds=(self._feed,),
            log=self._feed.log,
            partition=hardware_id,
            encode=self._encode,
            snapshot=snapshot,
        )

    async def _publish(self, change: Change) -> None:
        topic = _topic(change.key["hardware_id"])
        if self._hub.is_active(topic):
            self._hub.publish(topic, change.sequence, self._encode(change))

    def _encode(self, change: Change) -> bytes:
        reading = self._decode(change)
        if reading is None:
            return b""
        return encode_event("reading", reading_body(reading), change.position)


def _topic(hardware_id: str) -> str:
    return f"devices:{hardware_id}"
