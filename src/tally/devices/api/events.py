"""SSE events: publishes new readings to the subscribers of a device."""

from collections.abc import Sequence
from dataclasses import dataclass

from tally.devices.api.schemas.responses import reading_body
from tally.devices.model.records import Reading
from tally.kit.hub import Hub


def readings_topic(hardware_id: str) -> str:
    """Return the hub topic for the readings of a device."""
    return f"devices:{hardware_id}"


@dataclass(frozen=True, slots=True)
class ReadingPublisher:
    """Publishes readings through the hub of this process."""

    hub: Hub

    def publish(self, readings: Sequence[Reading]) -> None:
        bodies = (reading_body(reading) for reading in readings)
        self.hub.publish_all(readings_topic(readings[0].hardware_id), "reading", bodies)
