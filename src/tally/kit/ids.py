"""Identifiers: random ones that say nothing, and sortable ones whose order is the order in which they were made.

A sortable id is 26 characters: 48 bits of milliseconds and 80 random bits in Crockford's base 32,
whose letters sort as their values do. Within one `SortableIds` each id is greater than the one
before, even within a millisecond and even when the machine's clock goes back.
"""

import secrets
import threading
import uuid
from collections.abc import Callable
from typing import Final

from tally.kit.clock import Clock

ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
LENGTH: Final = 26
RANDOM_BITS: Final = 80


def new_uuid() -> str:
    """A random UUID, version 4, as text."""
    return str(uuid.uuid4())


class SortableIds:
    """Makes sortable ids; safe to call from any thread."""

    def __init__(self, clock: Clock, random_bits: Callable[[int], int] = secrets.randbits) -> None:
        self._clock = clock
        self._random_bits = random_bits
        self._last = -1
        self._lock = threading.Lock()

    def next(self) -> str:
        fresh = (self._clock.milliseconds() << RANDOM_BITS) | self._random_bits(RANDOM_BITS)
        with self._lock:
            # The same millisecond again, or one that has been before: count on, so that the order
            # holds.
            is_later = fresh >> RANDOM_BITS > self._last >> RANDOM_BITS
            self._last = fresh if is_later else self._last + 1
            return _encode(self._last)


def _encode(number: int) -> str:
    letters = []
    for _ in range(LENGTH):
        number, digit = divmod(number, 32)
        letters.append(ALPHABET[digit])
    return "".join(reversed(letters))
