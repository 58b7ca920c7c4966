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

from tally.console.collect import add_collect_pages
from tally.console.context import ConsoleContext
from tally.console.cricket import add_cricket_pages
from tally.console.dashboard import Dashboard
from tally.console.data import add_data_pages
from tally.console.devices import add_devices_pages
from tally.console.home import add_home_pages
from tally.console.login import add_login_page
from tally.console.scoreboard import add_scoreboard_pages
from tally.console.shell import Shell
from tally.settings import Secret

PATH: Final = "/console"
TAB_SECONDS: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class Console:
    """The console, ready to be mounted."""

    app: FastAPI
    context: ConsoleContext
    dashboard: Dashboard

    @property
    def mount(self) -> Mount:
        return Mount(PATH, self.app)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """From its start to its end: pages answer, and figures are sampled."""
        async with self.app.router.lifespan_context(self.app), self.dashboard.running():
            sampling = asyncio.create_task(self.context.traffic.run())
            try:
                yield
            finally:
                sampling.cancel()
                await asyncio.wait({sampling})


def make_console(context: ConsoleContext, secret: Secret) -> Console:
    """The console of a program; `secret` signs the cookies of those who look at it."""
    shell, dashboard = Shell(context), Dashboard(context)
    add_home_pages(shell, context, dashboard)
    for put in (
        add_login_page,
        add_cricket_pages,
        add_collect_pages,
        add_scoreboard_pages,
        add_devices_pages,
        add_data_pages,
    ):
        put(shell, context)
    # Who has signed in is kept with the other data, and tabs that nobody has open any more are
    # forgotten soon.
    Storage.path = context.settings.data_dir.resolve() / "console"
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
    return Console(console, context, dashboard)
