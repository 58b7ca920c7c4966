"""The command line: `tally up` for a demo, `tally serve` for production, and administration.

`COMMANDS` lists every command. A command's module is imported when the command runs, so that
`tally --help` and `tally --version` start fast. Exit codes: 0 for success, 1 for a failure, 2 for a
command that could not start, for example because of an invalid setting or a port in use.
"""

import os
from typing import Annotated, Final

import typer

from tally import __version__
from tally.cli.lazy import LazyCommand, lazy_group

COMMANDS: Final = (
    LazyCommand(
        "up",
        "tally.cli.up:up",
        "Start all backends with simulators, demo data and the console.",
        extra="demo",
    ),
    LazyCommand("serve", "tally.cli.serve:serve_backends", "Serve the backends in production."),
    LazyCommand("settings", "tally.cli.settings:show_settings", "Print the settings in effect."),
    LazyCommand(
        "doctor",
        "tally.cli.doctor:diagnose",
        "Check settings, data, disk, clocks and servers, and suggest remedies.",
    ),
    LazyCommand(
        "operator",
        "tally.cli.operator:operator_commands",
        "Add, list and remove operators, and print what they changed.",
    ),
    LazyCommand(
        "collect",
        "tally.cli.collect:collect_commands",
        "Register, show and remove the webhook subscription at Strava.",
    ),
    LazyCommand(
        "devices",
        "tally.cli.devices:devices_commands",
        "Show or rebuild the roll-ups of readings.",
    ),
    LazyCommand("job", "tally.cli.jobs:job_commands", "List scheduled jobs, or run one now."),
    LazyCommand(
        "patterns", "tally.cli.schema:patterns", "Print the access patterns of the backends."
    ),
    LazyCommand(
        "schema", "tally.cli.schema:schema", "Lock, compare and create the tables of the store."
    ),
    LazyCommand(
        "store",
        "tally.cli.store:store_commands",
        "Check the embedded database, and repair what only an operator may decide.",
    ),
    LazyCommand(
        "move",
        "tally.cli.move:move_commands",
        "Move the tables between the embedded store and DynamoDB while servers run.",
    ),
    LazyCommand(
        "dynamodb",
        "tally.cli.dynamodb:serve_dynamodb",
        "Serve an embedded store over DynamoDB's protocol.",
    ),
    LazyCommand(
        "backup", "tally.cli.backup:backup", "Back up the data directory, also while Tally runs."
    ),
    LazyCommand("restore", "tally.cli.backup:restore", "Restore a backup to a new data directory."),
    LazyCommand(
        "sim",
        "tally.sim.commands:sim",
        "Simulate external services, devices, players, athletes and phones.",
        extra="demo",
    ),
)

cli = typer.Typer(
    cls=lazy_group(COMMANDS),
    help="Live backends for sports, games and sensors on an embedded store.",
    no_args_is_help=True,
    add_completion=False,
)
for _command in COMMANDS:
    cli.command(_command.name, help=_command.help)(_command.load)


def main() -> None:
    """Run the command line; the entry point of the `tally` program."""
    os.umask(0o077)  # makes the files of libraries private too, such as console sessions
    cli()


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(__version__)
        raise typer.Exit


@cli.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Declare the options that precede the command."""
