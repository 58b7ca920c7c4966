"""Lets a socket use only the pages of its own session.

NiceGUI's messages name a page by its ID, and are accepted on the socket of any session. The ID is
part of URLs, so the access log of a proxy contains it: a viewer who reads it could click in the
page of an operator.
"""

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, Final
from urllib.parse import parse_qs

from nicegui import Client, core

from tally.console.open_pages import NAMESPACE, scope_session_hash

# Everything that NiceGUI handles, except the start and the end of a connection.
EVENTS: Final = ("handshake", "event", "javascript_response", "ack", "log")


def bind_pages_to_sessions() -> None:
    """Check the owner of a page before NiceGUI handles a message about it."""
    handlers = core.sio.handlers[NAMESPACE]
    connect = handlers["connect"]

    async def connect_owned(socket_id: str, environ: dict[str, Any], auth: object = None) -> bool:
        (page_id,) = parse_qs(environ["QUERY_STRING"]).get("client_id", [""])[:1]
        if not _is_owned(socket_id, page_id):
            return False
        await connect(socket_id, environ, auth)
        return True

    handlers["connect"] = connect_owned
    for event in EVENTS:
        handlers[event] = _owned(handlers[event])


def _owned(handle: Callable[[str, Any], Any]) -> Callable[[str, Any], Awaitable[Any]]:
    async def handle_owned(socket_id: str, message: Any = None) -> Any:
        page_id = message.get("client_id") if isinstance(message, dict) else None
        if not isinstance(page_id, str) or not _is_owned(socket_id, page_id):
            return False
        result = handle(socket_id, message)
        return await result if isawaitable(result) else result

    return handle_owned


def _is_owned(socket_id: str, page_id: str) -> bool:
    """Return whether a page belongs to the session of a socket; NiceGUI handles unknown pages."""
    page = Client.instances.get(page_id)
    if page is None:
        return True
    socket_scope = core.sio.get_environ(socket_id)["asgi.scope"]
    return scope_session_hash(page.request.scope) == scope_session_hash(socket_scope)
