"""Rate limits: sliding windows of one minute in Redis, with a local fallback.

Requests that Redis counts are also counted in this process, so a client's window does not start
again when Redis becomes unavailable.
"""

from collections import deque
from functools import partial
from typing import Final

from tally.errors import Unavailable
from tally.kit.clock import Clock
from tally.kit.rate_limits import RateLimitExceeded, RateLimitStatus
from tally.scoreboard.model.accounts import SlidingWindow
from tally.scoreboard.repository.rate_limits import WINDOW_SECONDS, RateLimitRepository
from tally.scoreboard.service.redis_breaker import RedisBreaker

MAX_KEYS: Final = 50_000


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

    def refund(self, scope: str, client: str) -> None:
        """Undo the count of the latest request."""
        hits = self._window((scope, client))
        if hits:
            hits.pop()

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
    """Counts requests in Redis for all processes, and locally as the fallback.

    Methods raise RateLimitExceeded, or return the remaining quota.
    """

    def __init__(
        self, windows: RateLimitRepository, breaker: RedisBreaker, local: LocalSlidingWindows
    ) -> None:
        self._windows = windows
        self._breaker = breaker
        self._local = local

    async def hit(self, window: SlidingWindow) -> RateLimitStatus:
        """Count a request."""
        try:
            status = await self._breaker.call(partial(self._windows.hit, window))
        except Unavailable:
            return self.hit_locally(window)
        return self.admit(window, status)

    def hit_locally(self, window: SlidingWindow) -> RateLimitStatus:
        """Count a request that Redis could not count."""
        return _admitted(window, self._local.hit(window.scope, window.client, window.limit))

    def admit(self, window: SlidingWindow, status: RateLimitStatus) -> RateLimitStatus:
        """Apply the decision of Redis."""
        if status.is_allowed:
            self._local.record(window.scope, window.client, window.limit)
        return _admitted(window, status)

    async def refund(self, window: SlidingWindow) -> None:
        """Undo the count of the window's request."""
        self._local.refund(window.scope, window.client)
        await self._breaker.try_call(partial(self._windows.refund, window))


def _admitted(window: SlidingWindow, status: RateLimitStatus) -> RateLimitStatus:
    if not status.is_allowed:
        raise RateLimitExceeded(status, f"at most {window.limit} requests per minute")
    return status
