"""Sliding-window rate limits in Redis, shared by all processes and decided by one script.

`rate_limit:<scope>:<client>` is a sorted set with one member per request in the window. Rejected
requests are not counted, so a client that keeps retrying is admitted as soon as its oldest request
leaves the window.

The two most frequent requests are counted and served by one script, because a call to Redis costs
more than what it does there.
"""

from dataclasses import dataclass
from typing import Final

from tally.kit.clock import Clock
from tally.kit.rate_limits import RateLimitStatus
from tally.scoreboard.model.accounts import CachedSession, SlidingWindow
from tally.scoreboard.model.scores import LeaderboardPage
from tally.scoreboard.repository.cache import ACTION_TOKEN, SESSION, decode_session
from tally.scoreboard.repository.leaderboard import KEYS, decode_page
from tally.scoreboard.repository.redis_client import InstrumentedRedis
from tally.scoreboard.repository.request_scripts import HIT, HIT_AND_FIND, HIT_AND_TOP, REFUND

RATE_LIMIT: Final = "rate_limit:"
WINDOW_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class ScoreUpdateLookup:
    """What a score update needs from Redis.

    `status` is None, and nothing was counted, if `session` is not cached as active.
    """

    session: CachedSession | None
    status: RateLimitStatus | None = None
    response: bytes | None = None


@dataclass(frozen=True, slots=True)
class VersionedPage:
    """A page and its version, which is empty if Redis has none.

    `page` is None if the process already has this version.
    """

    version: bytes
    page: LeaderboardPage | None


class RateLimitRepository:
    """Counts requests, alone or in one call with what the request reads.

    Methods raise CacheUnavailable.
    """

    def __init__(self, redis: InstrumentedRedis, clock: Clock) -> None:
        self._redis = redis
        self._clock = clock
        self._hit = redis.script(HIT)
        self._refund = redis.script(REFUND)
        self._hit_and_top = redis.script(HIT_AND_TOP)
        self._hit_and_find = redis.script(HIT_AND_FIND)

    async def hit(self, window: SlidingWindow) -> RateLimitStatus:
        """Count a request and return the decision."""
        reply = await self._redis.run(
            "rate_limit_hit", self._hit, (_key(window),), self._arguments(window)
        )
        return _status(window, reply)

    async def refund(self, window: SlidingWindow) -> None:
        """Undo the count of the window's request."""
        await self._redis.run(
            "rate_limit_refund", self._refund, (_key(window),), (window.request_id,)
        )

    async def hit_and_top(
        self, window: SlidingWindow, limit: int, offset: int, version: bytes = b""
    ) -> tuple[RateLimitStatus, VersionedPage | None]:
        """Count a request and read the leaderboard, unless its page still has `version`.

        Return no page if the request is rejected or the leaderboard is not complete.
        """
        status, *found = await self._redis.run(
            "rate_limit_hit_and_top",
            self._hit_and_top,
            (*KEYS, _key(window)),
            (offset, limit, version, *self._arguments(window)),
        )
        if not found:
            return _status(window, status), None
        version, *page = found
        return _status(window, status), VersionedPage(
            version, decode_page(page[0]) if page else None
        )

    async def hit_and_find(
        self, window: SlidingWindow, access_token_hash: str, action_token_hash: str
    ) -> ScoreUpdateLookup:
        """Find the session of a score update and a stored response, or else count the request."""
        session, *found = await self._redis.run(
            "rate_limit_hit_and_find",
            self._hit_and_find,
            (_key(window), SESSION + access_token_hash, ACTION_TOKEN + action_token_hash),
            self._arguments(window),
        )
        if not found:
            return ScoreUpdateLookup(None)
        status, response = found
        return ScoreUpdateLookup(decode_session(session), _status(window, status), response)

    def _arguments(self, window: SlidingWindow) -> tuple[int, int, int, str]:
        now, microseconds = self._clock.time_ns() // 1000, round(WINDOW_SECONDS * 1_000_000)
        return now, microseconds, window.limit, window.request_id


def _key(window: SlidingWindow) -> str:
    return f"{RATE_LIMIT}{window.scope}:{window.client}"


def _status(window: SlidingWindow, reply: list[int]) -> RateLimitStatus:
    is_allowed, count, until_one, until_all = reply
    return RateLimitStatus(
        is_allowed=bool(is_allowed),
        limit=window.limit,
        remaining=max(0, window.limit - count),
        reset_after=until_all / 1_000_000,
        retry_after=0.0 if is_allowed else until_one / 1_000_000,
    )
