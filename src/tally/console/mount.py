"""Mounts the console in the application.

NiceGUI registers pages globally, so a process can serve only one console.
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
    """The console application, ready to be mounted."""

    app: FastAPI
    context: ConsoleContext
    dashboard: Dashboard

    @property
    def mount(self) -> Mount:
        return Mount(PATH, self.app)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve pages and sample metrics for the lifetime of the context."""
        async with self.app.router.lifespan_context(self.app), self.dashboard.running():
            sampling = asyncio.create_task(self.context.traffic.run())
            try:
                yield
            finally:
                sampling.cancel()
                await asyncio.wait({sampling})


def build_mounted_console(context: ConsoleContext, secret: Secret) -> Console:
    """Build the console; `secret` signs session cookies."""
    shell, dashboard = Shell(context), Dashboard(context)
    add_home_pages(shell, context, dashboard)
    for add_pages in (
        add_login_page,
        add_cricket_pages,
        add_collect_pages,
        add_scoreboard_pages,
        add_devices_pages,
        add_data_pages,
    ):
        add_pages(shell, context)
    # Sessions survive a restart because they are stored in the data directory. Storage of closed
    # tabs expires soon, so that it does not grow.
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
