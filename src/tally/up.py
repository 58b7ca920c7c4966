"""`tally up`: runs all backends in one process, with simulated external services and demo clients.

It prints each step of the start and the URLs when the server is ready. The demo clients stop before
the server, and the simulators save their state for the next start.
"""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from socket import socket
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from tally.app import Application, build_app, open_application
from tally.collect.wiring import Collect
from tally.console.sign_in_link import SignInLink
from tally.console_setup import build_console
from tally.errors import Conflict
from tally.instance.first_operator import FIRST_OPERATOR, ensure_first_operator, usage
from tally.instance.served_tables import ServedTables, serving_tables
from tally.kit import directory_lock
from tally.kit.clock import Clock, SystemClock
from tally.kit.connection_table import HttpLimits
from tally.kit.log_file import LogFile
from tally.kit.server import Server, socket_url
from tally.settings import LOOPBACK_HOSTS, Settings
from tally.sim.demo.clients import demo_clients
from tally.sim.demo.services import SimulatedServices, simulated_services
from tally.sim.demo.state import DemoState, open_demo_state

STATUS_SECONDS: Final = 1.0
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
        self,
        settings: Settings,
        *,
        with_simulators: bool,
        console: Console | None = None,
        log_file: LogFile | None = None,
    ) -> None:
        self._settings = settings
        self._with_simulators = with_simulators
        self._log_file = log_file
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
            tables = await stack.enter_async_context(
                serving_tables(
                    application.engine, services.settings, self._clock, on_free_port=True
                )
            )
            await self._serve(application, services, state, listening, stop, tables=tables)

    async def _serve(
        self,
        application: Application,
        services: SimulatedServices,
        state: DemoState | None,
        listening: socket,
        stop: asyncio.Event,
        *,
        tables: ServedTables | None,
    ) -> None:
        url = socket_url(listening)
        token_file = await ensure_first_operator(application.operators, self._settings)
        link = await self._sign_in_link(application)
        outside = None if state is None else services
        server_stop = asyncio.Event()
        server = Server(
            build_app(application, build_extra=partial(build_console, application, outside, link)),
            grace=self._settings.shutdown_grace,
            limits=HttpLimits.of(self._settings),
            trusted_proxies=self._settings.trusted_proxies,
            allowed_hosts=self._settings.allowed_hosts,
            owns_process=True,
            on_listening=lambda: self._print_urls(url, services, tables, token_file, link),
            on_stopping=application.drain,
        )

        async def subscribe(public_url: str) -> None:
            collect = application.backends["collect"]
            if isinstance(collect, Collect):
                await collect.services.subscription.register(public_url)

        async def run_clients() -> None:
            async with AsyncExitStack() as stack:
                if state is not None:
                    await stack.enter_async_context(
                        demo_clients(services, url, self._clock, state, subscribe)
                    )
                await stop.wait()
            server_stop.set()

        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(server.serve_on(listening, server_stop))
                status = tasks.create_task(self._show_status(application))
                await run_clients()
                status.cancel()
        except ExceptionGroup as group:
            raise group.exceptions[0] from None

    async def _sign_in_link(self, application: Application) -> SignInLink | None:
        """Return the link for the person at this machine, who signs in as the first operator."""
        is_local = self._settings.host in LOOPBACK_HOSTS
        has_operator = await application.operators.get(FIRST_OPERATOR) is not None
        return SignInLink(self._clock) if is_local and has_operator else None

    def _print_urls(
        self,
        url: str,
        services: SimulatedServices,
        tables: ServedTables | None,
        token_file: Path | None,
        link: SignInLink | None,
    ) -> None:
        table = Table("Tally is up", Column(url, overflow="fold"))
        for name, path in PAGES:
            table.add_row(name, url + path)
        if tables is not None:
            table.add_row("Tables (DynamoDB, read-only)", tables.url)
        for name, where in services.urls:
            table.add_row(f"{name} (simulated)", where)
        data_dir = self._settings.data_dir
        table.add_row("Data", escape(str(data_dir.resolve())))
        if "scoreboard" in self._settings.backends and not self._settings.scoreboard_internal_key:
            table.add_row("Game server key", escape(f"in {data_dir / 'scoreboard-internal.key'}"))
        if token_file is not None:
            table.add_row("Operator token", escape(f"in {token_file}"))
        self._console.print(table)
        if token_file is not None:
            command = usage(token_file, self._settings, url)
            self._print_line(f"To use the operator token: {command}")
        if tables is not None:
            self._print_line(f"To read the tables: {tables.command}")
        if link is not None:
            sign_in = f"Sign in to the console (once): {url}/console/login{link.query}"
            self._print_line(sign_in)
        self._console.print("Press Ctrl-C to stop.")

    def _print_line(self, line: str) -> None:
        """Print a line to copy: without line breaks, and brackets in paths as they are."""
        self._console.print(line, soft_wrap=True, highlight=False, markup=False, emoji=False)

    async def _show_status(self, application: Application) -> None:
        """Keep a line with the state of the server at the end of the terminal."""
        if self._log_file is None:
            return
        started, log_file = self._clock.monotonic(), self._log_file
        with self._console.status("") as line:
            while True:
                elapsed = timedelta(seconds=int(self._clock.monotonic() - started))
                requests = application.metrics.requests.count()
                problems = f"warnings: {log_file.problems}"
                logs = f"logs: {escape(str(log_file.path))}, {problems}"
                line.update(f"Up for {elapsed}, {requests} requests; {logs}")
                await self._clock.sleep(STATUS_SECONDS)

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
