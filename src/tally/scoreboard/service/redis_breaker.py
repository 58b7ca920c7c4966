"""Redis behind a breaker: whoever asks it for something says what to do without it.

    board = await guard.ask(lambda: cache.top(10), otherwise=lambda: scores.top(10))

A Redis that is away costs nobody a time-out for more than a moment: after a few failures in a row
it is not asked at all, and then by one call now and then until it answers again.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tally.errors import Unavailable
from tally.kit.breaker import Breaker, BreakerState
from tally.kit.clock import Clock
from tally.kit.metrics import Metrics
from tally.scoreboard.model import CacheUnavailable, LeaderboardNotCached

T = TypeVar("T")
F = TypeVar("F")

FAILURES: Final = 3
OPEN_SECONDS: Final = 1.0


class RedisBreaker:
    """The one breaker of a process around everything that asks Redis."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._breaker = Breaker(
            "redis",
            clock,
            metrics,
            failures=FAILURES,
            open_seconds=OPEN_SECONDS,
            # One without a board is well, and waits for us to build it.
            is_failure=lambda error: (
                isinstance(error, CacheUnavailable) and not isinstance(error, LeaderboardNotCached)
            ),
        )

    @property
    def is_failing(self) -> bool:
        """Whether Redis has been failing; no news of it is good news."""
        return self._breaker.state is not BreakerState.CLOSED

    async def call(self, operation: Callable[[], Awaitable[T]]) -> T:
        """What Redis answers, or Unavailable."""
        return await self._breaker.call(operation)

    async def ask(
        self, operation: Callable[[], Awaitable[T]], otherwise: Callable[[], Awaitable[F]]
    ) -> T | F:
        """What Redis answers, or, where it does not, what `otherwise` does."""
        try:
            return await self._breaker.call(operation)
        except Unavailable:
            return await otherwise()

    async def tell(self, operation: Callable[[], Awaitable[object]]) -> bool:
        """Whether Redis has taken it; false is for the caller to make up for."""
        try:
            await self._breaker.call(operation)
        except Unavailable:
            return False
        return True
