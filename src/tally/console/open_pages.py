"""Closes the open pages of ended sessions and sends their browsers to the sign-in page."""

from typing import Final

from nicegui import Client, core
from starlette.types import Scope

from tally.console.access import LOGIN, SESSION
from tally.errors import Unavailable
from tally.instance.console_sessions import ConsoleSession, ConsoleSessions
from tally.kit import logs
from tally.kit.clock import Clock

CHECK_SECONDS: Final = 2.0
NAMESPACE: Final = "/"

_log = logs.logger()


class OpenPages:
    """Pages and sockets on this instance."""

    def __init__(self, sessions: ConsoleSessions, clock: Clock) -> None:
        self._sessions = sessions
        self._clock = clock

    async def run(self) -> None:
        """Close pages until cancelled."""
        while True:
            await self._clock.sleep(CHECK_SECONDS)
            try:
                await self.close_ended()
            except Unavailable as error:
                _log.warning(
                    "Checking console sessions failed", action="session_check_failed", error=error
                )

    async def close_ended(self) -> None:
        """Close every page whose session has ended by now."""
        # NiceGUI deletes pages without a connection itself.
        pages = {
            client: scope_session_hash(client.request.scope)
            for client in Client.instances.values()
            if client.has_socket_connection
        }
        sockets = {
            sid: scope_session_hash(core.sio.get_environ(sid)["asgi.scope"])
            for sid, _ in core.sio.manager.get_participants(NAMESPACE, None)
        }
        ended = {
            session_hash
            for session_hash in {*pages.values(), *sockets.values()}
            if await self._sessions.check(session_hash) is None
        }
        for client, session_hash in pages.items():
            if session_hash in ended:
                client.delete()
                message = {"path": LOGIN, "new_tab": False}
                await core.sio.emit("open", message, room=client.id)
        for sid, session_hash in sockets.items():
            if session_hash in ended:
                await core.sio.disconnect(sid)


def scope_session_hash(scope: Scope) -> str:
    """Return the session of the request that opened a page or a socket."""
    session: ConsoleSession = scope["state"][SESSION]
    return session.session_hash
