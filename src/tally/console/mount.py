"""Mounts the console in the application.

NiceGUI registers pages globally, so a process can serve only one console.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from fastapi import FastAPI
from nicegui import core, ui
from nicegui.storage import Storage
from starlette.routing import Mount

from tally.console.access import AccessMiddleware
from tally.console.boards import add_board_pages
from tally.console.collect import add_collect_pages
from tally.console.context import ConsoleContext
from tally.console.cricket import add_cricket_pages
from tally.console.dashboard import Dashboard
from tally.console.data import add_data_pages
from tally.console.devices import add_devices_pages
from tally.console.home import add_home_pages
from tally.console.login import LoginPage
from tally.console.not_found import NotFoundPage
from tally.console.open_pages import OpenPages
from tally.console.page_owners import bind_pages_to_sessions
from tally.console.players import add_player_pages
from tally.console.protection import ProtectionMiddleware, add_nonces
from tally.console.results import add_results_page
from tally.console.scoreboard import add_scoreboard_pages
from tally.console.shell import Shell
from tally.kit.tasks import cancel_all

PATH: Final = "/console"
TAB_SECONDS: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class Console:
    """The console application, ready to be mounted."""

    app: FastAPI
    login: LoginPage
    context: ConsoleContext
    dashboard: Dashboard
    open_pages: OpenPages

    @property
    def mount(self) -> Mount:
        admitted = AccessMiddleware(self.app, self.login, self.context.sessions)
        return Mount(PATH, ProtectionMiddleware(admitted))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve pages and sample metrics for the lifetime of the context."""
        async with self.app.router.lifespan_context(self.app), self.dashboard.running():
            tasks = [
                asyncio.create_task(self.context.traffic.run()),
                asyncio.create_task(self.open_pages.run()),
            ]
            try:
                yield
            finally:
                await cancel_all(tasks)


def build_mounted_console(context: ConsoleContext, login: LoginPage) -> Console:
    open_pages = OpenPages(context.sessions, context.clock)
    shell, dashboard = Shell(context, open_pages), Dashboard(context)
    add_home_pages(shell, context, dashboard)
    for add_pages in (
        add_cricket_pages,
        add_collect_pages,
        add_scoreboard_pages,
        add_board_pages,
        add_player_pages,
        add_devices_pages,
        add_data_pages,
        add_results_page,
    ):
        add_pages(shell, context)
    # The storage of closed tabs expires soon, so that it does not grow.
    Storage.max_tab_storage_age = TAB_SECONDS
    add_nonces()
    bind_pages_to_sessions()
    core.app.add_exception_handler(404, NotFoundPage(shell).respond)
    console = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    ui.run_with(
        console,
        title="Tally",
        favicon="⚡",
        dark=None,
        reconnect_timeout=10,
    )
    return Console(console, login, context, dashboard, open_pages)
