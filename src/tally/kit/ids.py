"""Generates identifiers: random UUIDs and time-ordered sortable IDs.

A sortable ID has 26 characters: 48 bits of milliseconds and 80 random bits in Crockford's Base32,
which sorts like the encoded value. IDs of one `SortableIds` strictly increase, even within a
millisecond and when the system clock goes back.
"""

import os
import secrets
import threading
from collections.abc import Callable
from typing import Final

from tally.kit.clock import Clock

ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
LENGTH: Final = 26
RANDOM_BITS: Final = 80

POOL_SIZE: Final = 256
_VARIANTS: Final = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}

# Unused random numbers; a forked process must not use the same.
_random_digits: list[str] = []
os.register_at_fork(after_in_child=_random_digits.clear)


def new_uuid() -> str:
    """Return a random UUID (version 4) as text.

    Every request needs one. `uuid4` releases the GIL to read 16 random bytes, and a request then
    waits until the writer thread returns it.
    """
    try:
        digits = _random_digits.pop()
    except IndexError:
        block = os.urandom(16 * POOL_SIZE).hex()
        _random_digits.extend(block[at : at + 32] for at in range(32, len(block), 32))
        digits = block[:32]
    variant = _VARIANTS[digits[16]]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


class SortableIds:
    """Generates sortable IDs; thread-safe."""

    def __init__(self, clock: Clock, random_bits: Callable[[int], int] = secrets.randbits) -> None:
        self._clock = clock
        self._random_bits = random_bits
        self._last = -1
        self._lock = threading.Lock()

    def next(self) -> str:
        fresh = (self._clock.milliseconds() << RANDOM_BITS) | self._random_bits(RANDOM_BITS)
        with self._lock:
            # In the same or an earlier millisecond, increment to preserve the order.
            is_later = fresh >> RANDOM_BITS > self._last >> RANDOM_BITS
            self._last = fresh if is_later else self._last + 1
            return _encode(self._last)


def _encode(number: int) -> str:
    letters = []
    for _ in range(LENGTH):
        number, digit = divmod(number, 32)
        letters.append(ALPHABET[digit])
    return "".join(reversed(letters))
