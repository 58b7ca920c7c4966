"""The sign-in page: a plain form without scripts and without state on the server.

An operator signs in with a token, or with the link that `tally up` prints. Every sign-in starts a
session with a new ID. Attempts are limited per address and in total.
"""

import base64
from hashlib import sha256
from html import escape
from math import ceil
from string import Template
from typing import Final
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from tally.console.access import SESSION, cookie_name, is_secure
from tally.console.sign_in_link import SignInLink
from tally.console.sign_in_throttle import SignInThrottle
from tally.console.theme import SIGN_IN_STYLE
from tally.errors import RateLimited, Unauthenticated, Unavailable
from tally.instance.console_sessions import ConsoleSessions
from tally.instance.first_operator import FIRST_OPERATOR
from tally.instance.operators import OperatorAccounts
from tally.kit.addresses import client_address
from tally.kit.operators import Operator

MAX_FORM_BYTES: Final = 4_096
STYLE_HASH: Final = base64.b64encode(sha256(SIGN_IN_STYLE.encode()).digest()).decode()
SIGN_IN_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{STYLE_HASH}'; img-src data:; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
)
PAGE: Final = Template(
    """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Sign in · Tally</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<style>$style</style>
</head>
<body>
<main>
<h1>Tally</h1>
<p>Sign in with the token of an operator.
<code>tally operator add</code> creates one; the token of the first operator is in
<code>operator.token</code> in the data directory.</p>
<form method="post">
<label for="token">Operator token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<p role="alert">$problem</p>
<button>Sign in</button>
</form>
</main>
</body>
</html>
"""
)


class LoginPage:
    """Shows the form, and starts a session for a valid token or link."""

    def __init__(
        self,
        sessions: ConsoleSessions,
        operators: OperatorAccounts,
        throttle: SignInThrottle,
        link: SignInLink | None,
    ) -> None:
        self._sessions = sessions
        self._operators = operators
        self._throttle = throttle
        self._link = link

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._respond(request)
        except Unavailable as error:
            response = _page(error.message, 503)
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        if request.method == "POST":
            return await self._sign_in(request)
        if request.method not in {"GET", "HEAD"}:
            return Response(status_code=405, headers={"Allow": "GET, HEAD, POST"})
        if getattr(request.state, SESSION) is not None:
            return _redirect(request)
        code = request.query_params.get("code")
        if code is None or self._link is None or not self._link.redeem(code):
            return _page()
        operator = await self._operators.get(FIRST_OPERATOR)
        return _page() if operator is None else await self._start(request, operator)

    async def _sign_in(self, request: Request) -> Response:
        address = client_address(request)
        try:
            self._throttle.take(address)
            operator = await self._operators.authenticate(await _read_token(request))
        except RateLimited as error:
            self._throttle.record_failure(address, "rate_limited")
            seconds = ceil(error.retry_after)
            response = _page(f"Too many attempts. Try again in {seconds} s.", 429)
            response.headers["Retry-After"] = str(seconds)
            return response
        except Unauthenticated as error:
            self._throttle.record_failure(address, error.code)
            return _page(f"{error.message}.", 403)
        return await self._start(request, operator)

    async def _start(self, request: Request, operator: Operator) -> Response:
        """Start a new session, whatever cookie the browser sent."""
        previous = getattr(request.state, SESSION)
        if previous is not None:
            await self._sessions.end(previous)
        response = _redirect(request)
        response.set_cookie(
            cookie_name(request.scope),
            await self._sessions.start(operator),
            secure=is_secure(request.scope),
            httponly=True,
            samesite="lax",
        )
        await self._operators.record(operator, "console_sign_in", "console")
        return response


async def _read_token(request: Request) -> str:
    """Return the token in the form, or an empty one if the body is not the form."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            return ""
    fields = parse_qs(body.decode("latin-1"))
    return fields.get("token", [""])[0].strip()


def _page(problem: str = "", status: int = 200) -> HTMLResponse:
    return HTMLResponse(
        PAGE.substitute(style=SIGN_IN_STYLE, problem=escape(problem)),
        status,
        {"Content-Security-Policy": SIGN_IN_POLICY, "Cache-Control": "no-store"},
    )


def _redirect(request: Request) -> RedirectResponse:
    """Redirect to the page that was requested; a relative path never leads to another host."""
    path = request.query_params.get("next", "/")
    return RedirectResponse(f".{path}" if path.startswith("/") else "./", 303)
