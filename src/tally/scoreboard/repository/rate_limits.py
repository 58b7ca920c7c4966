"""How often someone may come, counted in Redis for all processes together: a sliding window, decided in one script.

`rate_limit:<what>:<who>` is a sorted set with one member for each request of the last window. A
request that is refused is not counted, so whoever keeps trying gets in as soon as the oldest one
has left the window.
"""

from typing import Final

from tally.kit.clock import Clock
from tally.kit.ids import new_uuid
from tally.scoreboard.model import RateLimitStatus
from tally.scoreboard.repository.redis_client import InstrumentedRedis
from tally.scoreboard.repository.scripts import HIT

RATE_LIMIT: Final = "rate_limit:"


class RateLimitRepository:
    """Sliding windows by what is limited and who comes."""

    def __init__(self, server: InstrumentedRedis, clock: Clock) -> None:
        self._server = server
        self._clock = clock
        self._hit = server.script(HIT)

    async def hit(self, what: str, who: str, limit: int, window_seconds: float) -> RateLimitStatus:
        """Count a request (`hit("score", user_id, 10, 60)`), and say whether it is allowed; CacheUnavailable without Redis."""
        now, window = self._clock.time_ns() // 1000, round(window_seconds * 1_000_000)
        is_allowed, count, until_one, until_all = await self._server.run(
            "limit_hit", self._hit, (f"{RATE_LIMIT}{what}:{who}",), (now, window, limit, new_uuid())
        )
        return RateLimitStatus(
            is_allowed=bool(is_allowed),
            limit=limit,
            remaining=max(0, limit - count),
            reset_after=until_all / 1_000_000,
            retry_after=0.0 if is_allowed else until_one / 1_000_000,
        )
