"""`tally up`: starts the demo."""

import sys
from typing import Annotated

import typer

from tally.cli.startup import Host, Port, explained_errors, load_settings, server_log
from tally.kit.log_file import LogFile
from tally.kit.server import listen, run_until_stopped
from tally.up import Up, archive_data_dir

Only = Annotated[
    list[str] | None,
    typer.Option(help="Backends to start, separated by commas; overrides TALLY_BACKENDS."),
]
WithSim = Annotated[
    bool,
    typer.Option("--sim/--no-sim", help="With or without simulators and demo data."),
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Start with empty data; the old data directory is renamed.")
]

WithLogs = Annotated[
    bool,
    typer.Option("--logs", help="Print the logs on the terminal instead of a status line."),
]


def up(
    host: Host = None,
    port: Port = None,
    only: Only = None,
    sim: WithSim = True,
    fresh: Fresh = False,
    *,
    logs: WithLogs = False,
) -> None:
    settings = load_settings(host, port, only)
    with explained_errors():
        listening = listen(settings.host, settings.port)
        if fresh and (aside := archive_data_dir(settings.data_dir)):
            typer.echo(f"Moved the data in {settings.data_dir} to {aside}.")
        log_file = None
        if sys.stderr.isatty() and not logs:
            # Log lines would tear the table of URLs apart.
            log_file = LogFile(settings.data_dir)
        running = Up(settings, with_simulators=sim, log_file=log_file)
        with server_log(settings, log_file):
            run_until_stopped(lambda stop: running.run(listening, stop))
