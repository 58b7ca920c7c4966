"""Going round all devices of a match, again and again, while what they should show changes on the way.

Devices are visited in the order of their keys. When a newer state comes in the middle of a round,
those who come next get it at once, and those who were before get it at the beginning of the next
round: everybody gets the newest state as soon as their turn comes, nobody gets an older one after
it, and nobody is visited twice for the same.
"""

from typing import Final, NamedTuple

# Before every key.
START: Final = ""


class Turn(NamedTuple):
    """Where something began to be handed out: in which round, and after which device.

    It goes on until that place comes again.
    """

    number: int = 0
    key: str = START

    def is_due(self, number: int, key: str) -> bool:
        """Whether the device with this key, visited in this round, has not had it yet."""
        if number == self.number:
            return key > self.key
        return number == self.number + 1 and key <= self.key

    def is_done(self, number: int, key: str) -> bool:
        """Whether everybody has had it when this device's turn comes in this round."""
        return number > self.number + 1 or (number == self.number + 1 and key > self.key)

    def is_done_after(self, number: int) -> bool:
        """Whether everybody has had it when this round is over."""
        return self.number < number or (self.number == number and self.key == START)


FIRST: Final = Turn()
