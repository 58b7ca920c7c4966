"""Memoizes a function of short keys that recur thousands of times a second.

    decimals: Memo[str, Decimal] = Memo(Decimal)
    decimals["22.5"]

A hit runs entirely in C, also in `map(decimals.__getitem__, texts)`. Keys may come from clients:
the number of entries is bounded, and short numbers offer too few values for a hash-collision
attack.
"""

from collections.abc import Callable
from typing import Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

MAX_KEY_LENGTH: Final = 9  # characters
MAX_ENTRIES: Final = 16_384


class Memo(dict[K, V]):
    """A dictionary that computes missing values and clears itself when it is full."""

    def __init__(self, compute: Callable[[K], V]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, key: K) -> V:
        value = self._compute(key)
        if len(str(key)) <= MAX_KEY_LENGTH:
            if len(self) >= MAX_ENTRIES:
                self.clear()
            self[key] = value
        return value
