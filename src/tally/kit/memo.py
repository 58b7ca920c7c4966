"""What a function makes of short keys, remembered: for thousands of look-ups in a second of the same few thousand keys.

    decimals: Memo[str, Decimal] = Memo(Decimal)
    decimals["22.5"]

A look-up of what is known runs in C, and so does `map(decimals.__getitem__, texts)`. Keys that
strangers choose are no danger: there are never many, and of short numbers nobody can find many with
one hash, to make them slow to look up.
"""

from collections.abc import Callable
from typing import Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

SHORT: Final = 9  # characters
MOST: Final = 16_384


class Memo(dict[K, V]):
    """Values by key, made when they are first asked for; when there are too many, all are forgotten."""

    def __init__(self, make: Callable[[K], V]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: K) -> V:
        value = self._make(key)
        if len(str(key)) <= SHORT:
            if len(self) >= MOST:
                self.clear()
            self[key] = value
        return value
