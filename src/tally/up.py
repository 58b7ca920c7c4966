"""`tally up`: runs all backends in one process, with simulated external services and demo clients.

It prints each step of the start and the URLs when the server is ready. The demo clients stop before
the server, and the simulators save their state for the next start.
"""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from socket import socket
from typing import Final

from rich.console import Console
from rich.table import Table

from tally.app import Application, build_app, open_application
from tally.console_setup import build_console
from tally.dependencies import KEY_FILES
from tally.errors import Conflict
from tally.kit import directory_lock
from tally.kit.clock import Clock, SystemClock
from tally.kit.server import Server, socket_url
from tally.settings import Settings
from tally.sim.demo.clients import demo_clients
from tally.sim.demo.services import SimulatedServices, simulated_services
from tally.sim.demo.state import DemoState, open_demo_state

# Pages listed when the server listens.
PAGES: Final = (
    ("Console", "/console/"),
    ("Documentation", "/docs"),
    ("Health", "/health"),
    ("Readiness", "/health/ready"),
    ("Metrics", "/metrics"),
)


class Up:
    """One run of `tally up`."""

    def __init__(
        self, settings: Settings, *, with_simulators: bool, console: Console | None = None
    ) -> None:
        self._settings = settings
        self._with_simulators = with_simulators
        self._console = console or Console()
        self._clock: Clock = SystemClock()

    async def run(self, listening: socket, stop: asyncio.Event) -> None:
        """Start everything and serve until `stop` is set."""
        state = open_demo_state(self._settings.data_dir) if self._with_simulators else None
        async with AsyncExitStack() as stack:
            services = SimulatedServices(settings=self._settings)
            if state is not None:
                with self._step("Simulated external services"):
                    services = await stack.enter_async_context(
                        simulated_services(self._settings, self._clock, state)
                    )
            with self._step(f"Stores and servers for {', '.join(self._settings.backends)}"):
                application = await stack.enter_async_context(open_application(services.settings))
            await self._serve(application, services, state, listening, stop)

    async def _serve(
        self,
        application: Application,
        services: SimulatedServices,
        state: DemoState | None,
        listening: socket,
        stop: asyncio.Event,
    ) -> None:
        url = socket_url(listening)
        server_stop = asyncio.Event()
        server = Server(
            build_app(application, build_extra=partial(build_console, application, services)),
            grace=self._settings.shutdown_grace,
            trusted_proxies=self._settings.trusted_proxies,
            owns_process=True,
            on_listening=lambda: self._print_urls(url, services),
            on_stopping=application.drain,
        )

        async def run_clients() -> None:
            async with AsyncExitStack() as stack:
                if state is not None:
                    await stack.enter_async_context(demo_clients(services, url, self._clock, state))
                await stop.wait()
            server_stop.set()

        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(server.serve_on(listening, server_stop))
                tasks.create_task(run_clients())
        except ExceptionGroup as group:
            raise group.exceptions[0] from None

    def _print_urls(self, url: str, services: SimulatedServices) -> None:
        table = Table("Tally is up", url)
        for name, path in PAGES:
            table.add_row(name, url + path)
        for name, where in services.urls:
            table.add_row(f"{name} (simulated)", where)
        data_dir = self._settings.data_dir
        table.add_row("Data", str(data_dir.resolve()))
        for key in KEY_FILES:
            if (
                key.backend in self._settings.backends
                and getattr(self._settings, key.setting) is None
            ):
                title = f"{key.backend.capitalize()}: {key.description}"
                table.add_row(title, f"in {data_dir / key.file_name}")
        self._console.print(table, "Press Ctrl-C to stop.")

    @contextmanager
    def _step(self, title: str) -> Iterator[None]:
        started = self._clock.monotonic()
        with self._console.status(title):
            yield
        self._console.print(f"{title}: {self._clock.monotonic() - started:.1f} s")


def archive_data_dir(data_dir: Path) -> Path | None:
    """Rename a data directory that is not empty, and return its new path."""
    if not data_dir.is_dir() or not any(data_dir.iterdir()):
        return None
    if directory_lock.is_locked(data_dir):
        raise Conflict(f"{data_dir.resolve()} is in use; stop the program that uses it first")
    archive = data_dir.with_name(f"{data_dir.name}-{datetime.now(UTC):%Y%m%d-%H%M%S}")
    data_dir.rename(archive)
    return archive
