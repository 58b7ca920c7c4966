"""How often someone may come: a sliding window of a minute, counted in Redis for all processes, or here while Redis is away.

What is counted in Redis is also counted here, so that nobody starts anew when Redis goes away.
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
    """Too many requests within a minute."""

    default_code = "rate_limit_exceeded"

    def __init__(self, allowance: RateLimitStatus) -> None:
        super().__init__(
            f"At most {allowance.limit} requests a minute",
            retry_after=allowance.retry_after,
            limit=allowance.limit,
        )
        self.allowance = allowance


class LocalSlidingWindows:
    """The same windows in this process's memory; when there are too many, those that were used longest ago are forgotten."""

    def __init__(self, clock: Clock, most_keys: int = MAX_KEYS) -> None:
        self._clock = clock
        self._most_keys = most_keys
        self._hits: dict[tuple[str, str], deque[float]] = {}

    def note(self, what: str, who: str, limit: int) -> None:
        """Count a request that was allowed elsewhere."""
        hits = self._window((what, who))
        hits.append(self._clock.monotonic())
        while len(hits) > limit:
            hits.popleft()

    def hit(self, what: str, who: str, limit: int) -> RateLimitStatus:
        """Count a request, and say whether it is allowed; one that is refused is not counted."""
        now, hits = self._clock.monotonic(), self._window((what, who))
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
            while len(self._hits) >= self._most_keys:
                del self._hits[next(iter(self._hits))]
            hits = deque()
        self._hits[key] = hits
        gone = self._clock.monotonic() - WINDOW_SECONDS
        while hits and hits[0] <= gone:
            hits.popleft()
        return hits


class RateLimiter:
    """Counts requests in Redis, and here."""

    def __init__(
        self, windows: RateLimitRepository, guard: RedisBreaker, local: LocalSlidingWindows
    ) -> None:
        self._windows = windows
        self._guard = guard
        self._local = local

    async def take(self, what: str, who: str, limit: int) -> RateLimitStatus:
        """What is left of the allowance, or RateLimitExceeded."""

        async def here() -> RateLimitStatus:
            return self._local.hit(what, who, limit)

        async def for_all() -> RateLimitStatus:
            allowance = await self._windows.hit(what, who, limit, WINDOW_SECONDS)
            if allowance.is_allowed:
                self._local.note(what, who, limit)
            return allowance

        allowance = await self._guard.ask(for_all, otherwise=here)
        if not allowance.is_allowed:
            raise RateLimitExceeded(allowance)
        return allowance
