"""Puts the console into the app: a part of it of its own, with its own start and end.

NiceGUI keeps its pages in one place for the whole process, so there is one console in a process.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from fastapi import FastAPI
from nicegui import ui
from nicegui.storage import Storage
from starlette.routing import Mount

from tally.console.collect import put_collect
from tally.console.context import Desk
from tally.console.cricket import put_cricket
from tally.console.dashboard import Pulse
from tally.console.data import put_data
from tally.console.devices import put_devices
from tally.console.home import put_home
from tally.console.login import put_login
from tally.console.scoreboard import put_scoreboard
from tally.console.shell import Shell
from tally.settings import Secret

PATH: Final = "/console"
TAB_SECONDS: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class Console:
    """The console, ready to be mounted."""

    app: FastAPI
    desk: Desk
    pulse: Pulse

    @property
    def mount(self) -> Mount:
        return Mount(PATH, self.app)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """From its start to its end: pages answer, and figures are sampled."""
        async with self.app.router.lifespan_context(self.app), self.pulse.running():
            sampling = asyncio.create_task(self.desk.figures.run())
            try:
                yield
            finally:
                sampling.cancel()
                await asyncio.wait({sampling})


def make_console(desk: Desk, secret: Secret) -> Console:
    """The console of a program; `secret` signs the cookies of those who look at it."""
    shell, pulse = Shell(desk), Pulse(desk)
    put_home(shell, desk, pulse)
    for put in (put_login, put_cricket, put_collect, put_scoreboard, put_devices, put_data):
        put(shell, desk)
    # Who has signed in is kept with the other data, and tabs that nobody has open any more are
    # forgotten soon.
    Storage.path = desk.settings.data_dir.resolve() / "console"
    Storage.max_tab_storage_age = TAB_SECONDS
    console = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    ui.run_with(
        console,
        title="Tally",
        favicon="⚡",
        storage_secret=secret.reveal(),
        dark=None,
        reconnect_timeout=10,
    )
    return Console(console, desk, pulse)
