"""Sliding-window rate limits in Redis, shared by all processes and decided by one script.

`rate_limit:<scope>:<client>` is a sorted set with one member per request in the window. Rejected
requests are not counted, so a client that keeps retrying is admitted as soon as its oldest request
leaves the window.
"""

from typing import Final

from tally.kit.clock import Clock
from tally.kit.ids import new_uuid
from tally.scoreboard.model import RateLimitStatus
from tally.scoreboard.repository.redis_client import InstrumentedRedis
from tally.scoreboard.repository.scripts import HIT

RATE_LIMIT: Final = "rate_limit:"


class RateLimitRepository:
    """Sliding windows by scope and client."""

    def __init__(self, redis: InstrumentedRedis, clock: Clock) -> None:
        self._redis = redis
        self._clock = clock
        self._hit = redis.script(HIT)

    async def hit(
        self, scope: str, client: str, limit: int, window_seconds: float
    ) -> RateLimitStatus:
        """Count a request and return the decision; raises CacheUnavailable."""
        now, window = self._clock.time_ns() // 1000, round(window_seconds * 1_000_000)
        is_allowed, count, until_one, until_all = await self._redis.run(
            "rate_limit_hit",
            self._hit,
            (f"{RATE_LIMIT}{scope}:{client}",),
            (now, window, limit, new_uuid()),
        )
        return RateLimitStatus(
            is_allowed=bool(is_allowed),
            limit=limit,
            remaining=max(0, limit - count),
            reset_after=until_all / 1_000_000,
            retry_after=0.0 if is_allowed else until_one / 1_000_000,
        )
