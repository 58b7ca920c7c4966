"""The command line: `tally up` to see it run, `tally serve` in production, and what one wants to know or do by hand.

A group of commands that lives elsewhere is a typer of its own, and one line here:
`cli.add_typer(patterns, name="patterns")`. Commands end with 0 if they did it, 1 if it failed, and
2 if it could not be tried: a wrong setting, a port in use.
"""

import asyncio
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from tally import __version__
from tally.app import CATALOGUE, build_app, open_application, open_engine
from tally.backup.create import create_backup
from tally.backup.errors import BackupFailed
from tally.backup.restore import restore_backup
from tally.errors import TallyError
from tally.kit import logs
from tally.kit.clock import SystemClock
from tally.kit.jobs import Job, JobOutcome, JobRun
from tally.kit.server import ListenError, Server, listen, run_until_stopped, socket_url
from tally.settings import (
    Settings,
    SettingsError,
    read_settings,
    setting_rows,
    settings_markdown,
    unknown_variables,
)
from tally.sim.commands import sim
from tally.store.commands import StoreCommands
from tally.store.errors import StoreError
from tally.up import Up, archive_data_dir, build_console

cli = typer.Typer(
    help="Keeps score of live things, and tells everyone who is watching.",
    no_args_is_help=True,
    add_completion=False,
)
job_commands = typer.Typer(help="The jobs that run on timers.", no_args_is_help=True)
cli.add_typer(job_commands, name="job")
store_commands = StoreCommands(
    catalogue=lambda: CATALOGUE,
    open_engine=lambda: open_engine(_settings(), SystemClock()),
    table_prefix=lambda: _settings().dynamodb_table_prefix,
)
cli.add_typer(store_commands.patterns(), name="patterns")
cli.add_typer(store_commands.schema(), name="schema")
cli.add_typer(sim, name="sim")

Host = Annotated[str | None, typer.Option(help="Address to listen on, instead of TALLY_HOST.")]
Port = Annotated[
    int | None, typer.Option(min=0, max=65535, help="Port to listen on, instead of TALLY_PORT.")
]
Only = Annotated[
    list[str] | None,
    typer.Option(help="Backends to start, separated by commas, instead of TALLY_BACKENDS."),
]
WithSim = Annotated[
    bool,
    typer.Option("--sim/--no-sim", help="With simulators and made-up people, or the server alone."),
]
WithConsole = Annotated[
    bool,
    typer.Option(
        "--console",
        help="With the console under /console, behind its password (TALLY_CONSOLE_PASSWORD).",
    ),
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Begin anew: what is in the data directory is set aside.")
]
Target = Annotated[
    Path, typer.Argument(help="The file to write; in a folder, it is named after the time.")
]
Source = Annotated[Path, typer.Argument(help="The file that `tally backup` wrote.")]
Backends = Annotated[
    list[str] | None, typer.Argument(help="The backends to serve, instead of TALLY_BACKENDS.")
]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]


def main() -> None:
    """Where the `tally` program starts."""
    cli()


def _tell_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(__version__)
        raise typer.Exit


@cli.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and stop.", callback=_tell_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Take what stands before the command."""


@cli.command()
def up(
    host: Host = None,
    port: Port = None,
    only: Only = None,
    sim: WithSim = True,
    fresh: Fresh = False,
) -> None:
    """Start everything in one process, with a simulated outside world and made-up people, and print where it is."""
    settings = _settings(host, port, only, quiet=True)
    with _explained():
        listening = listen(settings.host, settings.port)
        if fresh and (aside := archive_data_dir(settings.data_dir)):
            typer.echo(f"What was in {settings.data_dir} is in {aside} now.")
        running = Up(settings, with_simulators=sim)
        run_until_stopped(lambda stop: running.run(listening, stop))


@cli.command()
def serve(
    backends: Backends = None, host: Host = None, port: Port = None, console: WithConsole = False
) -> None:
    """Serve in production: logs alone, and a clean stop on SIGTERM."""

    def announce(url: str, _: Settings) -> None:
        logs.logger().info("Listening", action="listening", url=url)

    _serve(_settings(host, port, backends), announce, with_console=console)


@cli.command()
def backup(target: Target) -> None:
    """Write what is in the data directory to one file, also while Tally runs: tables, scores, keys."""
    settings = _settings()
    with _explained():
        taken = asyncio.run(create_backup(settings.data_dir, target, SystemClock()))
    typer.echo(f"{taken.path}: {len(taken.manifest.entries)} files, {taken.size / 1e6:.1f} MB")
    if settings.store_engine == "dynamodb":
        typer.echo("The tables are in DynamoDB: back them up there.")
    if "scoreboard" in settings.backends and settings.scoreboard_database_url is not None:
        typer.echo("The scores are in a PostgreSQL of your own: back it up there.")


@cli.command()
def restore(source: Source) -> None:
    """Make the data directory from a back-up; there must be none yet, or an empty one."""
    settings = _settings()
    with _explained():
        manifest = asyncio.run(restore_backup(source, settings.data_dir, SystemClock()))
    typer.echo(
        f"{settings.data_dir.resolve()} is as it was at {manifest.created}, with Tally {manifest.version}."
    )


@cli.command("settings")
def show_settings(
    as_json: AsJson = False,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="As the page docs/settings.md.")
    ] = False,
) -> None:
    """Print every setting, its value and where the value comes from."""
    if as_markdown:
        typer.echo(settings_markdown(), nl=False)
        return
    found = setting_rows(_settings(), os.environ)
    if as_json:
        typer.echo(msgspec.json.encode(found))
    elif sys.stdout.isatty():
        table = Table("Setting", "Value", "From", "What for")
        for row in found:
            table.add_row(row.variable, row.value, row.source, row.help)
        Console().print(table)
    else:
        for row in found:
            typer.echo(f"{row.variable}={row.value}  # {row.source}; {row.type}; {row.help}")


@job_commands.command("list")
def list_jobs(as_json: AsJson = False) -> None:
    """Print the jobs and how often they run."""

    async def read() -> tuple[Job, ...]:
        async with open_application(_settings()) as application:
            return application.jobs

    with _explained():
        jobs = asyncio.run(read())
    if as_json:
        fields = ("name", "description", "interval", "lock_seconds", "deadline")
        typer.echo(
            msgspec.json.encode([{field: getattr(job, field) for field in fields} for job in jobs])
        )
        return
    for job in jobs:
        typer.echo(f"{job.name}  every {job.interval:g} s  {job.description}")


@job_commands.command("run")
def run_job(name: str) -> None:
    """Run a job once, now, beside the instances that are running."""

    async def run() -> JobRun:
        async with open_application(_settings()) as application:
            return await application.job_runner().run(name)

    with _explained():
        done = asyncio.run(run())
    typer.echo(
        f"{name} {done.outcome} in {done.seconds:.3f} s" + (f": {done.error}" if done.error else "")
    )
    if done.outcome is not JobOutcome.SUCCEEDED:
        raise typer.Exit(1)


def _serve(
    settings: Settings, announce: Callable[[str, Settings], None], *, with_console: bool
) -> None:
    with _explained():
        listening = listen(settings.host, settings.port)
        url = socket_url(listening)

        async def serve_until(stop: asyncio.Event) -> None:
            async with open_application(settings) as application:
                server = Server(
                    build_app(
                        application,
                        build_extra=partial(build_console, application, None)
                        if with_console
                        else None,
                    ),
                    grace=settings.shutdown_grace,
                    trusted_proxies=settings.trusted_proxies,
                    owns_process=True,
                    on_listening=lambda: announce(url, settings),
                    on_stopping=application.drain,
                )
                await server.serve_on(listening, stop)

        run_until_stopped(serve_until)


def _settings(
    host: str | None = None,
    port: int | None = None,
    backends: list[str] | None = None,
    *,
    quiet: bool = False,
) -> Settings:
    """The settings in force, with what the command line says instead; logging is set up by them.

    `quiet` is for a command whose table on the terminal should not be buried: there, only what is
    amiss is logged.
    """
    instead = {"TALLY_BACKENDS": ",".join(backends)} if backends else {}
    usual = {"TALLY_LOG_LEVEL": "warning"} if quiet and sys.stderr.isatty() else {}
    with _explained():
        settings = read_settings(usual | os.environ | instead)
    settings = dataclasses.replace(
        settings,
        host=settings.host if host is None else host,
        port=settings.port if port is None else port,
    )
    logs.configure(settings, SystemClock())
    for sentence in unknown_variables(os.environ):
        typer.echo(sentence, err=True)
    return settings


@contextmanager
def _explained() -> Iterator[None]:
    """Turn what a person can mend into a sentence and exit code 2, or 1 where it was begun and failed."""
    try:
        yield
    except SettingsError as error:
        _refuse(*error.problems)
    except ListenError as error:
        _refuse(f"{error}. Choose another with --host and --port, or TALLY_HOST and TALLY_PORT.")
    except BackupFailed as error:
        _refuse(error.message, code=1)
    except TallyError as error:
        _refuse(error.message)
    except StoreError as error:
        _refuse(f"The store: {error}")


def _refuse(*sentences: str, code: int = 2) -> NoReturn:
    for sentence in sentences:
        typer.echo(sentence, err=True)
    raise typer.Exit(code)


if __name__ == "__main__":
    main()
