"""How often someone may come: a bucket of tokens for each key, refilled steadily, in this process's memory.

limiter.take(key_id)  # or RateLimited, which says when to come back
"""

from tally.errors import RateLimited
from tally.kit.clock import Clock


class RateLimiter:
    """So many a second in the long run, and so many at once; keys that have been away long enough are forgotten."""

    def __init__(
        self, clock: Clock, per_second: float, burst: float, most_keys: int = 100_000
    ) -> None:
        self._clock = clock
        self._per_second = per_second
        self._burst = burst
        self._most_keys = most_keys
        # The moment at which a bucket will be full again says all there is to know about it.
        self._full_at: dict[str, float] = {}

    def take(self, key: str) -> None:
        """Take a token, or RateLimited with the seconds until there will be one."""
        now = self._clock.monotonic()
        full_at = max(now, self._full_at.get(key, now)) + 1 / self._per_second
        wait = full_at - now - self._burst / self._per_second
        if wait > 1e-9:
            raise RateLimited("Too many requests with this key", retry_after=wait)
        if key not in self._full_at and len(self._full_at) >= self._most_keys:
            self._forget(now)
        self._full_at[key] = full_at

    def _forget(self, now: float) -> None:
        full = [key for key, full_at in self._full_at.items() if full_at <= now]
        for key in full or [next(iter(self._full_at))]:
            del self._full_at[key]
