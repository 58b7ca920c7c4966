"""Protects simulators from web pages, which may send requests to this machine.

`PageProtection` wraps the app of a simulator. Requests to the control API need the header
X-Tally-Control: a page of another origin cannot send it without a CORS preflight, which simulators
do not answer. Other requests of foreign pages are rejected too, except navigation: a sign-in
begins with a redirect to the login page. Programs that are no browsers send neither Sec-Fetch-Site
nor Origin.
"""

from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from tally.errors import Forbidden

CONTROL_PREFIX: Final = "/_sim"
CONTROL_HEADER: Final = "X-Tally-Control"
# For clients of the control API; any value will do.
CONTROL_HEADERS: Final = {CONTROL_HEADER: "yes"}

_control_header: Final = CONTROL_HEADER.lower().encode()
_OWN_PAGE: Final = frozenset({b"same-origin", b"none"})


class PageProtection:
    """ASGI middleware that raises Forbidden for requests that a foreign page may have sent."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = dict(scope["headers"])
            if scope["path"].startswith(CONTROL_PREFIX) and _control_header not in headers:
                raise Forbidden(
                    f"The control API needs the header {CONTROL_HEADER}",
                    code="control_header_required",
                    field=CONTROL_HEADER,
                )
            if _is_foreign(headers) and not _is_navigation(scope["method"], headers):
                raise Forbidden("Pages of other origins are rejected", code="foreign_origin")
        await self._app(scope, receive, send)


def _is_foreign(headers: dict[bytes, bytes]) -> bool:
    """Whether a page of another origin caused the request."""
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if site is not None:
        return site not in _OWN_PAGE
    return origin is not None and origin != b"http://" + headers.get(b"host", b"")


def _is_navigation(method: str, headers: dict[bytes, bytes]) -> bool:
    """Whether the browser loads a page in a tab, rather than in a frame or by a script."""
    mode, destination = headers.get(b"sec-fetch-mode"), headers.get(b"sec-fetch-dest")
    return method in {"GET", "HEAD"} and (mode, destination) == (b"navigate", b"document")
