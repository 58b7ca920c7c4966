"""Tracks which devices a fan-out has served while newer updates replace older ones.

The fan-out visits devices in key order, cycle after cycle. An update that arrives in the middle of
a cycle goes to the remaining devices first and to the others at the start of the next cycle. So
every device gets the newest update as early as possible, none gets an older update after a newer
one, and none gets the same update twice.
"""

from typing import Final, NamedTuple

# Sorts before every key.
START_KEY: Final = ""


class FanoutCursor(NamedTuple):
    """The position at which an update entered the fan-out: a cycle, and the last key visited in it.

    The update is complete when the fan-out reaches the same position in the next cycle.
    """

    cycle: int = 0
    key: str = START_KEY

    def is_due(self, cycle: int, key: str) -> bool:
        """Return whether the device with this key, visited in this cycle, lacks the update."""
        if cycle == self.cycle:
            return key > self.key
        return cycle == self.cycle + 1 and key <= self.key

    def is_done(self, cycle: int, key: str) -> bool:
        """Return whether all devices have the update when this cycle reaches this key."""
        return cycle > self.cycle + 1 or (cycle == self.cycle + 1 and key > self.key)

    def is_done_after(self, cycle: int) -> bool:
        """Return whether all devices have the update at the end of this cycle."""
        return self.cycle < cycle or (self.cycle == cycle and self.key == START_KEY)


INITIAL_CURSOR: Final = FanoutCursor()
