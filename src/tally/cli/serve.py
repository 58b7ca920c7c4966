"""`tally serve`: serves the backends in production, without simulators."""

import asyncio
from functools import partial
from importlib import import_module
from typing import Annotated

import typer

from tally.app import build_app, open_application
from tally.cli.extras import explain_missing_extra
from tally.cli.startup import Host, Port, explained_errors, load_settings, server_log
from tally.instance.first_operator import ensure_first_operator, usage
from tally.instance.served_tables import serving_tables
from tally.kit import logs
from tally.kit.connection_table import HttpLimits
from tally.kit.server import Server, listen, run_until_stopped, socket_url

Backends = Annotated[
    list[str] | None, typer.Argument(help="Backends to serve; overrides TALLY_BACKENDS.")
]
WithConsole = Annotated[
    bool,
    typer.Option(
        "--console", help="Serve the console at /console; operators sign in with their token."
    ),
]


def serve_backends(
    backends: Backends = None, host: Host = None, port: Port = None, console: WithConsole = False
) -> None:
    settings = load_settings(host, port, backends)
    with explained_errors():
        # The console takes seconds to import, and its extra may not be installed.
        with explain_missing_extra("tally serve --console", "console"):
            build_console = import_module("tally.console_setup").build_console if console else None
        listening = listen(settings.host, settings.port)

        async def serve_until(stop: asyncio.Event) -> None:
            async with (
                open_application(settings) as application,
                serving_tables(application.engine, settings, application.clock) as tables,
            ):
                token_file = await ensure_first_operator(application.operators, settings)

                def announce() -> None:
                    url = socket_url(listening)
                    logs.logger().info("Listening", action="listening", url=url)
                    if tables is not None:
                        typer.echo(f"To read the tables: {tables.command}")
                    if token_file is not None:
                        typer.echo(f"To use the operator token: {usage(token_file, settings, url)}")

                def drain() -> None:
                    application.readiness.stop()
                    logs.logger().info(
                        "Shutdown started",
                        action="shutdown_started",
                        delay=settings.shutdown_delay,
                        grace=settings.shutdown_grace,
                    )

                server = Server(
                    build_app(
                        application,
                        build_extra=partial(build_console, application, None, None)
                        if build_console
                        else None,
                    ),
                    grace=settings.shutdown_grace,
                    delay=settings.shutdown_delay,
                    limits=HttpLimits.of(settings),
                    trusted_proxies=settings.trusted_proxies,
                    allowed_hosts=settings.allowed_hosts,
                    owns_process=True,
                    on_listening=announce,
                    on_draining=drain,
                    on_stopping=application.drain,
                )
                await server.serve_on(listening, stop)
            logs.logger().info("Server stopped", action="server_stopped")

        with server_log(settings):
            run_until_stopped(serve_until)
