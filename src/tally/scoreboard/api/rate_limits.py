"""Rate limits on requests, and the `RateLimit-*` headers of every counted response.

The limit is known inside the handler, while errors are rendered outside it. The handler therefore
records the status in the ASGI scope, and the middleware, which wraps the error handling, adds the
headers to every response.
"""

import math
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tally.scoreboard.api.auth import client_address
from tally.scoreboard.model import RateLimitStatus
from tally.scoreboard.service.rate_limits import RateLimitExceeded, SlidingWindowLimiter
from tally.settings import Settings

_SCOPE_KEY: Final = "tally.scoreboard.rate_limits"


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The rate limits of the API, by kind of request; each raises RateLimitExceeded."""

    limiter: SlidingWindowLimiter
    settings: Settings

    def count_auth(self, request: Request) -> Awaitable[None]:
        limit = self.settings.scoreboard_auth_limit
        return self._count(request, "auth", client_address(request), limit)

    def count_action(self, request: Request) -> Awaitable[None]:
        return self._count(request, "actions", "all", self.settings.scoreboard_action_limit)

    def count_score_update(self, request: Request, user_id: str) -> Awaitable[None]:
        return self._count(request, "score", user_id, self.settings.scoreboard_score_limit)

    def count_own_data(self, request: Request, user_id: str) -> Awaitable[None]:
        return self._count(request, "me", user_id, self.settings.scoreboard_me_limit)

    def count_leaderboard(self, request: Request) -> Awaitable[None]:
        limit = self.settings.scoreboard_board_limit
        return self._count(request, "board", client_address(request), limit)

    async def _count(self, request: Request, scope: str, client: str, limit: int) -> None:
        statuses = request.scope[_SCOPE_KEY]
        try:
            statuses.append(await self.limiter.hit(scope, client, limit))
        except RateLimitExceeded as error:
            statuses.append(error.status)
            raise


class RateLimitHeadersMiddleware:
    """Adds `RateLimit-Limit`, `-Remaining` and `-Reset` to responses of counted requests."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        statuses: list[RateLimitStatus] = []
        scope[_SCOPE_KEY] = statuses

        async def send_with_headers(message: Message) -> None:
            if statuses and message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_headers(statuses[-1])]
            await send(message)

        await self._app(scope, receive, send_with_headers)


def _headers(status: RateLimitStatus) -> list[tuple[bytes, bytes]]:
    values = {
        "limit": status.limit,
        "remaining": status.remaining,
        "reset": math.ceil(status.reset_after),
    }
    return [(f"ratelimit-{name}".encode(), str(value).encode()) for name, value in values.items()]
