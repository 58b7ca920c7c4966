"""A rate limiter with one token bucket per key, in the memory of this process.

limiter.take(key_id)  # raises RateLimited with the time until the next token
"""

from tally.errors import RateLimited
from tally.kit.clock import Clock


class RateLimiter:
    """Allows `per_second` requests on average and bursts of `burst`; evicts full buckets."""

    def __init__(
        self, clock: Clock, per_second: float, burst: float, max_keys: int = 100_000
    ) -> None:
        self._clock = clock
        self._per_second = per_second
        self._burst = burst
        self._max_keys = max_keys
        # The time at which a bucket is full again is its whole state.
        self._full_at: dict[str, float] = {}

    def take(self, key: str) -> None:
        """Take a token, or raise RateLimited with the seconds until the next one."""
        now = self._clock.monotonic()
        full_at = max(now, self._full_at.get(key, now)) + 1 / self._per_second
        wait = full_at - now - self._burst / self._per_second
        if wait > 1e-9:
            raise RateLimited("Too many requests with this key", retry_after=wait)
        if key not in self._full_at and len(self._full_at) >= self._max_keys:
            self._evict(now)
        self._full_at[key] = full_at

    def _evict(self, now: float) -> None:
        full = [key for key, full_at in self._full_at.items() if full_at <= now]
        for key in full or [next(iter(self._full_at))]:
            del self._full_at[key]
