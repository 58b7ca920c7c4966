"""The page of an address that does not exist."""

from nicegui import Client
from nicegui.page import page
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from tally.console.access import SESSION
from tally.console.links import HOME
from tally.console.shell import Shell, not_found


class NotFoundPage:
    """Responds with status 404 and a way back."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def respond(self, request: Request, error: Exception) -> Response:
        """Only a signed-in operator gets a page, which needs memory."""
        del error
        if getattr(request.state, SESSION) is None:
            return PlainTextResponse("Not found", 404)
        with Client(page("", title="Page not found · Tally"), request=request) as client:
            self._shell.frame(request.url.path)
            path = request.url.path.removeprefix(request.scope.get("root_path", ""))
            not_found("Page not found", f"The console has no page {path}.", HOME, "Home")
            return client.build_response(request, client.status_code)
