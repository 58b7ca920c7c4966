"""The interface through which services publish changes."""

from collections.abc import Sequence
from typing import Protocol

from tally.devices.model.records import Reading


class Publisher(Protocol):
    """Delivers stored readings to SSE subscribers."""

    def publish(self, readings: Sequence[Reading]) -> None:
        """Publish new readings, all from the same device."""
