"""A rate limiter with one token bucket per key, in the memory of this process.

status = limiter.take(key_id)  # raises RateLimitExceeded with the time until the next token
"""

from tally.kit.clock import Clock
from tally.kit.rate_limits import RateLimitExceeded, RateLimitStatus


class RateLimiter:
    """Allows `per_second` requests on average and bursts of `burst`; evicts full buckets."""

    def __init__(
        self,
        clock: Clock,
        per_second: float,
        burst: float,
        max_keys: int = 100_000,
        rule: str | None = None,
    ) -> None:
        self._clock = clock
        self._per_second = per_second
        self._burst = burst
        self._max_keys = max_keys
        self._rule = rule or f"at most {per_second:g} requests per second with this key"
        # The time at which a bucket is full again is its whole state.
        self._full_at: dict[str, float] = {}

    def take(self, key: str) -> RateLimitStatus:
        """Take a token and return what remains, or raise RateLimitExceeded."""
        now = self._clock.monotonic()
        full_at = max(now, self._full_at.get(key, now)) + 1 / self._per_second
        wait = full_at - now - self._burst / self._per_second
        if wait > 1e-9:
            raise RateLimitExceeded(self._status(self._full_at[key] - now, wait), self._rule)
        if key not in self._full_at and len(self._full_at) >= self._max_keys:
            self._evict(now)
        self._full_at[key] = full_at
        return self._status(full_at - now)

    def _status(self, full_after: float, wait: float = 0.0) -> RateLimitStatus:
        remaining = 0 if wait else int(self._burst - full_after * self._per_second + 1e-6)
        return RateLimitStatus(not wait, int(self._burst), remaining, full_after, wait)

    def _evict(self, now: float) -> None:
        full = [key for key, full_at in self._full_at.items() if full_at <= now]
        for key in full or [next(iter(self._full_at))]:
            del self._full_at[key]
