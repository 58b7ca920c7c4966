"""A bounded cache whose entries expire.

    keys: TTLCache[str, ApiKey] = TTLCache(clock, ttl_seconds=4, max_entries=10_000)

Use it for look-ups that may be slightly out of date (an API key, a name), and to avoid repeating
an action too soon.
"""

from typing import Generic, TypeVar

from tally.kit.clock import Clock

K = TypeVar("K")
V = TypeVar("V")


class TTLCache(Generic[K, V]):
    """A cache that keeps each entry for `ttl_seconds` and evicts the oldest entries when full."""

    def __init__(self, clock: Clock, ttl_seconds: float, max_entries: int) -> None:
        self._clock = clock
        self._ttl_seconds = ttl_seconds
        self._max_entries = max_entries
        self._entries: dict[K, tuple[float, V]] = {}

    def get(self, key: K) -> V | None:
        """Return the value, or None if there is none or it has expired."""
        entry = self._entries.get(key)
        if entry is None or entry[0] <= self._clock.monotonic():
            return None
        return entry[1]

    def put(self, key: K, value: V) -> None:
        self._entries.pop(key, None)
        while len(self._entries) >= self._max_entries:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = (self._clock.monotonic() + self._ttl_seconds, value)

    def count(self) -> int:
        """Return the number of entries that have not expired."""
        now = self._clock.monotonic()
        # All entries have the same TTL, so expired ones come first.
        while self._entries and next(iter(self._entries.values()))[0] <= now:
            del self._entries[next(iter(self._entries))]
        return len(self._entries)

    def remove(self, key: K) -> None:
        self._entries.pop(key, None)
