"""Rate limits on requests, by kind of request."""

from collections.abc import Awaitable
from dataclasses import dataclass

from starlette.requests import Request

from tally.errors import TallyError, Unavailable
from tally.kit.addresses import client_address
from tally.kit.rate_limits import adjust_rate_limit, record_rate_limit
from tally.scoreboard.model.accounts import SlidingWindow
from tally.scoreboard.service.rate_limits import SlidingWindowLimiter
from tally.settings import Settings


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The rate limits of the API, by kind of request; each raises RateLimitExceeded."""

    limiter: SlidingWindowLimiter
    settings: Settings

    def count_auth(self, request: Request) -> Awaitable[None]:
        limit = self.settings.scoreboard_auth_limit
        return self._count(request, SlidingWindow("auth", client_address(request), limit))

    async def count_action(self, request: Request) -> SlidingWindow:
        window = SlidingWindow("actions", "all", self.settings.scoreboard_action_limit)
        await self._count(request, window)
        return window

    def count_score_update(self, request: Request, user_id: str) -> Awaitable[None]:
        return self._count(request, self.score_window(user_id))

    def count_own_data(self, request: Request, user_id: str) -> Awaitable[None]:
        limit = self.settings.scoreboard_me_limit
        return self._count(request, SlidingWindow("me", user_id, limit))

    def count_leaderboard(self, request: Request) -> Awaitable[None]:
        return self._count(request, self.leaderboard_window(request))

    def score_window(self, user_id: str) -> SlidingWindow:
        return SlidingWindow("score", user_id, self.settings.scoreboard_score_limit)

    def leaderboard_window(self, request: Request) -> SlidingWindow:
        limit = self.settings.scoreboard_board_limit
        return SlidingWindow("board", client_address(request), limit)

    async def refund(self, request: Request, window: SlidingWindow) -> None:
        """Undo the count of a request that repeats an earlier one."""
        await self.limiter.refund(window)
        adjust_rate_limit(request.scope, 1)

    async def refund_failure(
        self, request: Request, window: SlidingWindow, error: Exception
    ) -> None:
        """Undo the count of a request if the error is no fault of the client."""
        if not isinstance(error, TallyError) or isinstance(error, Unavailable):
            await self.refund(request, window)

    async def _count(self, request: Request, window: SlidingWindow) -> None:
        record_rate_limit(request.scope, await self.limiter.hit(window))
