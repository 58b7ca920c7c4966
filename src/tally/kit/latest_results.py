"""Reuses the last result per key while the argument stays equal.

    bodies: LatestResults[str, Match, bytes] = LatestResults(encode)
    bodies.get(match.id, match)

Comparing two equal values runs in C, and comparing a value with itself takes no time. The function
must depend on nothing but its argument.
"""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

A = TypeVar("A")
K = TypeVar("K")
R = TypeVar("R")

MAX_RESULTS: Final = 1_000


class LatestResults(Generic[K, A, R]):
    """A bounded memo with one argument and result per key; clears itself when it is full."""

    def __init__(self, compute: Callable[[A], R]) -> None:
        self._compute = compute
        self._latest: dict[K, tuple[A, R]] = {}

    def get(self, key: K, argument: A) -> R:
        latest = self._latest.get(key)
        if latest is not None and latest[0] == argument:
            return latest[1]
        result = self._compute(argument)
        if len(self._latest) >= MAX_RESULTS:
            self._latest.clear()
        self._latest[key] = (argument, result)
        return result
