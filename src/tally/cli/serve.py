"""`tally serve`: serves the backends in production, without simulators."""

import asyncio
from functools import partial
from importlib import import_module
from typing import Annotated

import typer

from tally.app import build_app, open_application
from tally.cli.extras import explain_missing_extra
from tally.cli.startup import Host, Port, explained_errors, load_settings
from tally.kit import logs
from tally.kit.server import Server, listen, run_until_stopped, socket_url

Backends = Annotated[
    list[str] | None, typer.Argument(help="Backends to serve; overrides TALLY_BACKENDS.")
]
WithConsole = Annotated[
    bool,
    typer.Option(
        "--console", help="Serve the console at /console; its password: TALLY_CONSOLE_PASSWORD."
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
            async with open_application(settings) as application:
                server = Server(
                    build_app(
                        application,
                        build_extra=partial(build_console, application, None)
                        if build_console
                        else None,
                    ),
                    grace=settings.shutdown_grace,
                    trusted_proxies=settings.trusted_proxies,
                    owns_process=True,
                    on_listening=lambda: logs.logger().info(
                        "Listening", action="listening", url=socket_url(listening)
                    ),
                    on_stopping=application.drain,
                )
                await server.serve_on(listening, stop)

        run_until_stopped(serve_until)
