"""`tally up`: everything in one process, with the outside world simulated and made-up people who use it.

What is being made is told as it happens, and where everything is when it is ready. The people leave
before the server stops, and what the simulators know is kept for the next start.
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

# What a person sees first, once the server listens.
PLACES: Final = (
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
        """Bring everything up, and keep it so until `stop` is set."""
        kept = open_demo_state(self._settings.data_dir) if self._with_simulators else None
        async with AsyncExitStack() as stack:
            outside = SimulatedServices(settings=self._settings)
            if kept is not None:
                with self._step("The outside world, simulated"):
                    outside = await stack.enter_async_context(
                        simulated_services(self._settings, self._clock, kept)
                    )
            with self._step(f"Tables and servers for {', '.join(self._settings.backends)}"):
                application = await stack.enter_async_context(open_application(outside.settings))
            await self._serve(application, outside, kept, listening, stop)

    async def _serve(
        self,
        application: Application,
        outside: SimulatedServices,
        kept: DemoState | None,
        listening: socket,
        stop: asyncio.Event,
    ) -> None:
        url = socket_url(listening)
        server_stop = asyncio.Event()
        server = Server(
            build_app(application, build_extra=partial(build_console, application, outside)),
            grace=self._settings.shutdown_grace,
            trusted_proxies=self._settings.trusted_proxies,
            owns_process=True,
            on_listening=lambda: self._announce(url, outside),
            on_stopping=application.drain,
        )

        async def live() -> None:
            async with AsyncExitStack() as stack:
                if kept is not None:
                    await stack.enter_async_context(demo_clients(outside, url, self._clock, kept))
                await stop.wait()
            server_stop.set()

        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(server.serve_on(listening, server_stop))
                tasks.create_task(live())
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    def _announce(self, url: str, outside: SimulatedServices) -> None:
        table = Table("Tally is up", url)
        for name, path in PLACES:
            table.add_row(name, url + path)
        for name, where in outside.places:
            table.add_row(f"{name}, simulated", where)
        data_dir = self._settings.data_dir
        table.add_row("Data", str(data_dir.resolve()))
        for key in KEY_FILES:
            if (
                key.backend in self._settings.backends
                and getattr(self._settings, key.setting) is None
            ):
                title = f"{key.backend.capitalize()}: {key.description}"
                table.add_row(title, f"in {data_dir / key.file_name}")
        self._console.print(table, "Ctrl-C stops it.")

    @contextmanager
    def _step(self, what: str) -> Iterator[None]:
        started = self._clock.monotonic()
        with self._console.status(what):
            yield
        self._console.print(f"{what}: {self._clock.monotonic() - started:.1f} s")


def archive_data_dir(data_dir: Path) -> Path | None:
    """Move what is in the data directory out of the way, and say where it is now; None if there is nothing."""
    if not data_dir.is_dir() or not any(data_dir.iterdir()):
        return None
    if directory_lock.is_locked(data_dir):
        raise Conflict(f"A program runs on {data_dir.resolve()}: stop it first")
    aside = data_dir.with_name(f"{data_dir.name}-{datetime.now(UTC):%Y%m%d-%H%M%S}")
    data_dir.rename(aside)
    return aside
