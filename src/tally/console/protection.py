"""Protects the console from other web pages: security headers, and a check of the origin.

NiceGUI needs `unsafe-eval`: it compiles templates in the browser and evaluates event handlers. It
also sets inline styles. Inline scripts run only with the nonce of their response, which
`add_nonces` adds to NiceGUI's page template, so an injected script does not run.
"""

from collections.abc import Mapping
from secrets import token_urlsafe
from typing import Final

from jinja2.ext import Extension
from nicegui import client as nicegui_client
from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

NONCE: Final = "csp_nonce"
SCRIPT_WITH_NONCE: Final = f'<script nonce="{{{{ request.state.{NONCE} }}}}"'
NONCE_BYTES: Final = 16
# Applies to every response; the sign-in page replaces it with a stricter policy.
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; "
    "script-src 'self' 'unsafe-eval' 'nonce-{nonce}'; "
    "style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; "
    "font-src 'self'; "
    "connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
)
# With "no-referrer", browsers send `Origin: null` from the console's own sign-in form.
HEADERS: Final = {
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
OWN_SITES: Final = frozenset({b"same-origin", b"none"})


class ProtectionMiddleware:
    """Refuses requests of other origins with 403, and adds the security headers to responses."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        nonce = token_urlsafe(NONCE_BYTES)
        scope.setdefault("state", {})[NONCE] = nonce

        async def send_protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault(
                    "Content-Security-Policy", CONTENT_SECURITY_POLICY.format(nonce=nonce)
                )
            await send(message)

        if is_own_origin(scope):
            await self._app(scope, receive, send_protected)
        else:
            refusal = PlainTextResponse("Requests of other origins are not allowed", 403)
            await refusal(scope, receive, send_protected)


def is_own_origin(scope: Scope) -> bool:
    """Return whether the console's own pages, a person or a program sent the request.

    Browsers send `Origin` with every WebSocket and form, and `Sec-Fetch-Site` with everything, if
    the page has a trustworthy origin. A link on another page may open a page of the console.
    """
    headers: Mapping[bytes, bytes] = dict(scope["headers"])
    origin = headers.get(b"origin")
    if origin is not None:
        return origin.partition(b"://")[2].lower() == headers.get(b"host", b"").lower() != b""
    if scope["type"] == "websocket":
        return False
    is_link = (
        scope["method"] == "GET"
        and headers.get(b"sec-fetch-mode") == b"navigate"
        and headers.get(b"sec-fetch-dest") == b"document"
    )
    return is_link or headers.get(b"sec-fetch-site", b"none") in OWN_SITES


class _NonceExtension(Extension):
    """Adds the nonce to the script elements of a template, not to those that data may contain."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        del name, filename
        return source.replace("<script", SCRIPT_WITH_NONCE)


def add_nonces() -> None:
    """Make NiceGUI's pages comply with the content security policy."""
    nicegui_client.templates.env.add_extension(_NonceExtension)
