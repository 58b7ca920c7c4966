"""What was looked up or done a moment ago, kept for some seconds and never more of it than a bound.

    keys: TTLCache[str, ApiKey] = TTLCache(clock, seconds=4, most=10_000)

For answers that may be a little old (an API key, a name) and for things not to be done again too
soon.
"""

from typing import Generic, TypeVar

from tally.kit.clock import Clock

K = TypeVar("K")
V = TypeVar("V")


class TTLCache(Generic[K, V]):
    """Values by key, each for so many seconds after it was put; when there are too many, the oldest go first."""

    def __init__(self, clock: Clock, seconds: float, most: int) -> None:
        self._clock = clock
        self._seconds = seconds
        self._most = most
        self._entries: dict[K, tuple[float, V]] = {}

    def get(self, key: K) -> V | None:
        """The value, or None if there is none or its time is over."""
        entry = self._entries.get(key)
        if entry is None or entry[0] <= self._clock.monotonic():
            return None
        return entry[1]

    def put(self, key: K, value: V) -> None:
        self._entries.pop(key, None)
        while len(self._entries) >= self._most:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = (self._clock.monotonic() + self._seconds, value)

    def count(self) -> int:
        """How many there are whose time is not over."""
        now = self._clock.monotonic()
        # All are kept equally long, so those whose time is over are the first.
        while self._entries and next(iter(self._entries.values()))[0] <= now:
            del self._entries[next(iter(self._entries))]
        return len(self._entries)

    def forget(self, key: K) -> None:
        self._entries.pop(key, None)
