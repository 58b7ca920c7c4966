"""Rate limits: sliding windows of one minute in Redis, with a local fallback.

Requests that Redis counts are also counted in this process, so a client's window does not start
again when Redis becomes unavailable.
"""

from collections import deque
from typing import Final

from tally.errors import RateLimited
from tally.kit.clock import Clock
from tally.scoreboard.model import RateLimitStatus
from tally.scoreboard.repository.rate_limits import RateLimitRepository
from tally.scoreboard.service.redis_breaker import RedisBreaker

WINDOW_SECONDS: Final = 60.0
MAX_KEYS: Final = 50_000


class RateLimitExceeded(RateLimited):
    """The client sent too many requests within a minute."""

    default_code = "rate_limit_exceeded"

    def __init__(self, status: RateLimitStatus) -> None:
        super().__init__(
            f"Rate limit exceeded: at most {status.limit} requests per minute",
            retry_after=status.retry_after,
            limit=status.limit,
        )
        self.status = status


class LocalSlidingWindows:
    """Sliding windows in memory; evicts the least recently used above `max_keys`."""

    def __init__(self, clock: Clock, max_keys: int = MAX_KEYS) -> None:
        self._clock = clock
        self._max_keys = max_keys
        self._hits: dict[tuple[str, str], deque[float]] = {}

    def record(self, scope: str, client: str, limit: int) -> None:
        """Count a request that Redis has allowed."""
        hits = self._window((scope, client))
        hits.append(self._clock.monotonic())
        while len(hits) > limit:
            hits.popleft()

    def hit(self, scope: str, client: str, limit: int) -> RateLimitStatus:
        """Count a request and return the decision; rejected requests do not count."""
        now, hits = self._clock.monotonic(), self._window((scope, client))
        is_allowed = len(hits) < limit
        if is_allowed:
            hits.append(now)
        return RateLimitStatus(
            is_allowed=is_allowed,
            limit=limit,
            remaining=max(0, limit - len(hits)),
            reset_after=hits[-1] + WINDOW_SECONDS - now,
            retry_after=0.0 if is_allowed else hits[-limit] + WINDOW_SECONDS - now,
        )

    def _window(self, key: tuple[str, str]) -> deque[float]:
        hits = self._hits.pop(key, None)
        if hits is None:
            while len(self._hits) >= self._max_keys:
                del self._hits[next(iter(self._hits))]
            hits = deque()
        self._hits[key] = hits
        window_start = self._clock.monotonic() - WINDOW_SECONDS
        while hits and hits[0] <= window_start:
            hits.popleft()
        return hits


class SlidingWindowLimiter:
    """Counts requests in Redis for all processes, and locally as the fallback."""

    def __init__(
        self, windows: RateLimitRepository, breaker: RedisBreaker, local: LocalSlidingWindows
    ) -> None:
        self._windows = windows
        self._breaker = breaker
        self._local = local

    async def hit(self, scope: str, client: str, limit: int) -> RateLimitStatus:
        """Count a request and return the remaining quota; raises RateLimitExceeded."""

        async def locally() -> RateLimitStatus:
            return self._local.hit(scope, client, limit)

        async def in_redis() -> RateLimitStatus:
            status = await self._windows.hit(scope, client, limit, WINDOW_SECONDS)
            if status.is_allowed:
                self._local.record(scope, client, limit)
            return status

        status = await self._breaker.call_or_else(in_redis, locally)
        if not status.is_allowed:
            raise RateLimitExceeded(status)
        return status
