"""Allows web pages of configured origins to call the APIs (CORS).

Every backend has the same rules. Responses never allow credentials, so a page on another origin
cannot use the cookies of a browser; it sends a token in the Authorization header. Starlette's
middleware is not used because it rejects preflight requests with an error of its own format.
"""

from collections.abc import Collection
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

ANY_ORIGIN: Final = "*"
METHODS: Final = "GET, HEAD, POST, PUT, PATCH, DELETE"
REQUEST_HEADERS: Final = "Authorization, Content-Type, X-API-Key, Last-Event-ID, X-Request-Id"
EXPOSED_HEADERS: Final = (
    "RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset, Retry-After, X-Request-Id"
)
# Chromium caches a preflight response for at most this long.
PREFLIGHT_SECONDS: Final = 7200

_preflight_headers: Final = [
    (b"access-control-allow-methods", METHODS.encode()),
    (b"access-control-allow-headers", REQUEST_HEADERS.encode()),
    (b"access-control-max-age", b"%d" % PREFLIGHT_SECONDS),
]
_exposed_headers: Final = [(b"access-control-expose-headers", EXPOSED_HEADERS.encode())]


class CorsMiddleware:
    """Answers preflight requests, and lets pages of the allowed origins read responses."""

    def __init__(self, app: ASGIApp, origins: Collection[str]) -> None:
        self._app = app
        self._allows_any = ANY_ORIGIN in origins
        self._origins = frozenset(origin.encode("latin-1") for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = _header(scope, b"origin") if scope["type"] == "http" else None
        if origin is None:
            await self._app(scope, receive, send)
            return
        headers = self._headers(origin)
        if scope["method"] == "OPTIONS" and _header(scope, b"access-control-request-method"):
            if len(headers) > 1:
                headers = [*headers, *_preflight_headers]
            await send({"type": "http.response.start", "status": 204, "headers": headers})
            await send({"type": "http.response.body"})
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *headers]
            await send(message)

        await self._app(scope, receive, send_with_headers)

    def _headers(self, origin: bytes) -> list[tuple[bytes, bytes]]:
        """Return the headers for an origin; another origin may get a different response."""
        if self._allows_any:
            return [(b"access-control-allow-origin", b"*"), *_exposed_headers]
        vary = (b"vary", b"Origin")
        if origin not in self._origins:
            return [vary]
        return [(b"access-control-allow-origin", origin), *_exposed_headers, vary]


def _header(scope: Scope, wanted: bytes) -> bytes | None:
    for name, value in scope["headers"]:
        if name == wanted:
            return bytes(value)
    return None
