"""A circuit breaker around Redis; callers supply the fallback.

    page = await breaker.call_or_else(lambda: cache.top(10), lambda: scores.top(10))

After `FAILURES` consecutive failures Redis is not called, so requests do not wait for its time-out.
One call per `OPEN_SECONDS` probes whether it has recovered.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tally.errors import Unavailable
from tally.kit.breaker import Breaker, BreakerState
from tally.kit.clock import Clock
from tally.kit.metrics import Metrics
from tally.scoreboard.model.errors import CacheUnavailable, LeaderboardNotCached

T = TypeVar("T")
F = TypeVar("F")

FAILURES: Final = 3
OPEN_SECONDS: Final = 1.0


class RedisBreaker:
    """The circuit breaker that all Redis calls of a process share."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._breaker = Breaker(
            "redis",
            clock,
            metrics,
            failures=FAILURES,
            open_seconds=OPEN_SECONDS,
            # A Redis without a leaderboard is healthy: a rebuild fills it.
            is_failure=lambda error: (
                isinstance(error, CacheUnavailable) and not isinstance(error, LeaderboardNotCached)
            ),
        )

    @property
    def is_failing(self) -> bool:
        """Whether the breaker is open or half-open; false before the first call."""
        return self._breaker.state is not BreakerState.CLOSED

    async def call(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `operation`; raises Unavailable."""
        return await self._breaker.call(operation)

    async def call_or_else(
        self, operation: Callable[[], Awaitable[T]], fallback: Callable[[], Awaitable[F]]
    ) -> T | F:
        """Return the result of `operation`, or of `fallback` if Redis is unavailable."""
        try:
            return await self._breaker.call(operation)
        except Unavailable:
            return await fallback()

    async def try_call(self, operation: Callable[[], Awaitable[object]]) -> bool:
        """Return whether `operation` succeeded; the caller handles a failure."""
        try:
            await self._breaker.call(operation)
        except Unavailable:
            return False
        return True


async def no_value() -> None:
    """Fallback for a cache lookup: report a miss."""
    return
