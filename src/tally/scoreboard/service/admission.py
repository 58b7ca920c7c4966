"""Admission of the two most frequent requests, with one call to Redis each.

The call counts the request and reads what the request needs. Whatever it does not find, and all of
it without Redis, is looked up one by one as for other requests.
"""

from dataclasses import dataclass
from functools import partial

from tally.errors import Unavailable
from tally.kit.rate_limits import RateLimitStatus
from tally.scoreboard.model.accounts import SlidingWindow
from tally.scoreboard.repository.rate_limits import RateLimitRepository, VersionedPage
from tally.scoreboard.service.action_tokens import hash_token
from tally.scoreboard.service.leaderboard import Leaderboard
from tally.scoreboard.service.rate_limits import SlidingWindowLimiter
from tally.scoreboard.service.redis_breaker import RedisBreaker
from tally.scoreboard.service.sessions import AuthenticatedPlayer, PlayerSessions


@dataclass(frozen=True, slots=True)
class AdmittedScoreUpdate:
    """The player of a score update, the remaining quota, and the response of an earlier use."""

    player: AuthenticatedPlayer
    status: RateLimitStatus
    response: bytes | None = None


@dataclass(frozen=True, slots=True)
class RequestAdmission:
    """Admits requests; methods raise RateLimitExceeded."""

    windows: RateLimitRepository
    limiter: SlidingWindowLimiter
    sessions: PlayerSessions
    leaderboard: Leaderboard
    breaker: RedisBreaker

    async def top(
        self, window: SlidingWindow, limit: int, offset: int, version: bytes
    ) -> tuple[RateLimitStatus, VersionedPage | None]:
        """Admit a read of the leaderboard; return no page if Redis does not have it.

        `version` is that of the page which the process already has, or empty.
        """
        if not self.leaderboard.is_served_by_redis():
            return await self.limiter.hit(window), None
        try:
            status, page = await self.breaker.call(
                partial(self.windows.hit_and_top, window, limit, offset, version)
            )
        except Unavailable:
            return self.limiter.hit_locally(window), None
        return self.limiter.admit(window, status), page

    async def score_update(
        self, window: SlidingWindow, access_token: str, action_token_hash: str
    ) -> AdmittedScoreUpdate:
        """Admit a score update with a verified access token; also raises Unauthenticated.

        A replay whose response Redis has is not counted.
        """
        token_hash = hash_token(access_token)
        try:
            found = await self.breaker.call(
                partial(self.windows.hit_and_find, window, token_hash, action_token_hash)
            )
        except Unavailable:
            player = await self.sessions.authenticate(access_token)
            return AdmittedScoreUpdate(player, self.limiter.hit_locally(window))
        if found.status is None:
            player = await self.sessions.authenticate(access_token)
            return AdmittedScoreUpdate(player, await self.limiter.hit(window))
        player = self.sessions.authenticate_cached(token_hash, found.session)
        if found.response is not None:
            return AdmittedScoreUpdate(player, found.status, found.response)
        return AdmittedScoreUpdate(player, self.limiter.admit(window, found.status))
