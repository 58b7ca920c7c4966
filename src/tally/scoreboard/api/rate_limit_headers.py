"""`RateLimit-*` headers on every answer to a request that was counted, refused ones included.

The limit is known in the middle of a request, and an error forgets about headers on its way out; so
the handler notes it in the scope, and this layer, around the errors, puts it on whatever leaves.
"""

import math
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tally.scoreboard.model import RateLimitStatus

_NOTED: Final = "tally.scoreboard.allowance"


def note(request: Request, allowance: RateLimitStatus) -> None:
    """Tell the client what it has left."""
    request.scope[_NOTED].append(allowance)


class LimitHeaders:
    """Puts the headers on."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        noted: list[RateLimitStatus] = []
        scope[_NOTED] = noted

        async def telling_send(message: Message) -> None:
            if noted and message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_headers(noted[-1])]
            await send(message)

        await self._app(scope, receive, telling_send)


def _headers(allowance: RateLimitStatus) -> list[tuple[bytes, bytes]]:
    figures = {
        "limit": allowance.limit,
        "remaining": allowance.remaining,
        "reset": math.ceil(allowance.reset_after),
    }
    return [(f"ratelimit-{name}".encode(), str(value).encode()) for name, value in figures.items()]
