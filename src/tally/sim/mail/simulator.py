"""The mail simulator on two real sockets: SMTP, and HTTP to read the mails.

async with MailSimulator(clock).serving() as mail:
    settings = replace(settings, scoreboard_smtp_url=Secret(mail.smtp_url))

GET /            the inbox as a page
GET /_sim/mails  the latest mails as JSON, newest first
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import escape
from typing import Final, Self

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tally.kit.clock import Clock
from tally.kit.http import Json
from tally.kit.server import serving
from tally.sim.fault_injection import FaultInjector, fault_routes, simulator_app
from tally.sim.html_pages import html_page, note_paragraph
from tally.sim.mail.smtp import ReceivedMail, SmtpSession

MAX_MAILS: Final = 100


class MailSimulator:
    """Keeps the latest mails in memory; `is_failing` rejects mails with a temporary error."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.faults = FaultInjector()
        self.mails: deque[ReceivedMail] = deque(maxlen=MAX_MAILS)
        self.is_failing = False
        self.url = ""
        self.smtp_url = ""
        self._received = asyncio.Event()

    def find(self, to: str) -> list[ReceivedMail]:
        """Return the mails to an address, newest first."""
        return [mail for mail in self.mails if to in mail.to]

    async def wait_for(self, to: str) -> ReceivedMail:
        """Return the newest mail to an address, as soon as there is one."""
        while not self.find(to):
            self._received.clear()
            await self._received.wait()
        return self.find(to)[0]

    def app(self) -> Starlette:
        routes = [
            Route("/", self._inbox),
            Route("/_sim/mails", self._list),
            *fault_routes(self.faults),
        ]
        return simulator_app("mail", routes, self.faults, self.clock)

    @asynccontextmanager
    async def serving(
        self, host: str = "127.0.0.1", port: int = 0, smtp_port: int = 0
    ) -> AsyncIterator[Self]:
        """Serve until the block ends; sets `url` and `smtp_url`."""
        server = await asyncio.start_server(self._serve_smtp, host, smtp_port)
        self.smtp_url = f"smtp://{host}:{server.sockets[0].getsockname()[1]}"
        async with server, serving(self.app(), host, port) as url:
            self.url = url
            yield self

    async def _serve_smtp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = SmtpSession(reader, writer)
        try:
            async for mail in session.mails(lambda: self.is_failing):
                self.mails.appendleft(mail)
                self._received.set()
        except (OSError, EOFError, ValueError):
            pass  # the client has gone, or sent a line that is too long
        finally:
            writer.close()

    async def _list(self, _: Request) -> Response:
        return Json({"items": list(self.mails)})

    async def _inbox(self, _: Request) -> Response:
        mails = "".join(
            f"<h2>{escape(mail.subject)}</h2>"
            + note_paragraph(f"To {', '.join(mail.to)}")
            + f"<pre>{escape(mail.text)}</pre>"
            for mail in self.mails
        )
        return html_page("Mails", mails or note_paragraph("No mail has arrived."))
