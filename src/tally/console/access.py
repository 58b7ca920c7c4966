"""Admits signed-in operators to the console's pages, and viewers to reading only.

`AccessMiddleware` finds the session of every request. A page gets it with `page_session`. Handlers
that change something run inside `Changes.audited`, which checks the session and the role again: the
page may have been open since before the operator was removed.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import quote

from nicegui import ui
from nicegui.elements.mixins.disableable_element import DisableableElement
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tally.errors import TallyError, Unauthenticated, Unavailable
from tally.instance.console_sessions import ConsoleSession, ConsoleSessions
from tally.instance.operators import OperatorAccounts
from tally.kit.operators import check_may_change

LOGIN: Final = "/login"
# NiceGUI's scripts, styles and fonts, which are the same everywhere.
ASSETS: Final = "/_nicegui/"
SOCKET: Final = "/_nicegui_ws/"
SESSION: Final = "console_session"
# How a message of the user, such as a click, starts; heartbeats are other messages.
USER_EVENT: Final = '42["event",'
READ_ONLY: Final = "Your role is viewer: you may only read"

E = TypeVar("E", bound=DisableableElement)


def cookie_name(scope: Scope) -> str:
    """Return the name of the session cookie; over TLS, no other host can set it."""
    return "__Host-tally-console" if is_secure(scope) else "tally-console"


def is_secure(scope: Scope) -> bool:
    """Return whether the client uses TLS, here or at a trusted proxy."""
    return scope["scheme"] in {"https", "wss"}


def page_session() -> ConsoleSession:
    """Return the session that the current page was opened with."""
    session: ConsoleSession = getattr(ui.context.client.request.state, SESSION)
    return session


class AccessMiddleware:
    """Without a session, only the sign-in page and NiceGUI's assets are served."""

    def __init__(self, app: ASGIApp, login: ASGIApp, sessions: ConsoleSessions) -> None:
        self._app = app
        self._login = login
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(scope["root_path"])
        try:
            session = None if path.startswith(ASSETS) else await self._find(scope)
        except Unavailable as error:
            await PlainTextResponse(error.message, 503)(scope, receive, send)
            return
        scope["state"][SESSION] = session
        if path == LOGIN and scope["type"] == "http":
            await self._login(scope, receive, send)
        elif session is not None and scope["type"] == "websocket":
            await self._app(scope, _extending(receive, self._sessions, session), send)
        elif session is not None or path.startswith(ASSETS):
            await self._app(scope, receive, send)
        else:
            await _refusal(scope, path)(scope, receive, send)

    async def _find(self, scope: Scope) -> ConsoleSession | None:
        cookie = HTTPConnection(scope).cookies.get(cookie_name(scope))
        session = None if cookie is None else await self._sessions.find(cookie)
        if session is not None and not scope["path"].startswith(scope["root_path"] + SOCKET):
            await self._sessions.extend(session)
        return session


def _refusal(scope: Scope, path: str) -> Response:
    """Redirect a page to the sign-in page, which returns to it; refuse everything else."""
    if path.startswith(SOCKET) or scope["type"] != "http" or scope["method"] != "GET":
        return PlainTextResponse("Sign in to use the console", 401)
    # Relative, because a proxy may serve the console under another path.
    login = "../" * path.count("/", 1) + LOGIN.removeprefix("/")
    return RedirectResponse(login if path == "/" else f"{login}?next={quote(path)}", 303)


def _extending(receive: Receive, sessions: ConsoleSessions, session: ConsoleSession) -> Receive:
    """Count what the user does on an open page as use of the session."""

    async def receive_message() -> Message:
        nonlocal session
        message = await receive()
        if (message.get("text") or "").startswith(USER_EVENT):
            session = await sessions.extend(session)
        return message

    return receive_message


@dataclass(frozen=True, slots=True)
class Changes:
    """Lets operators change something from a page, and audits it."""

    sessions: ConsoleSessions
    operators: OperatorAccounts

    def control(self, element: E, run: Callable[[], Awaitable[None]], event: str = "click") -> E:
        """Run a change when the element is used; the element is disabled for viewers."""

        async def handle() -> None:
            try:
                await run()
            except TallyError as error:
                ui.notify(error.message, type="negative")

        element.on(event, handle)
        if not page_session().operator.may_change:
            element.disable()
            with element:
                ui.tooltip(READ_ONLY)
        return element

    @asynccontextmanager
    async def audited(self, action: str, target: str, **details: object) -> AsyncIterator[None]:
        """Record the change in the body, or raise if the operator may not make it now."""
        session = await self.sessions.check(page_session().session_hash)
        if session is None:
            raise Unauthenticated("Your session has ended; sign in again")
        check_may_change(session.operator)
        async with self.operators.recording(session.operator, action, target, **details):
            yield
