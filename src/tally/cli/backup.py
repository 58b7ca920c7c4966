"""`tally backup` and `tally restore`."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from tally.backup.create import create_backup
from tally.backup.restore import restore_backup
from tally.cli.startup import explained_errors, load_settings
from tally.kit.clock import SystemClock

Target = Annotated[
    Path, typer.Argument(help="File to write; in a directory, the file is named after the time.")
]
Source = Annotated[Path, typer.Argument(help="File that `tally backup` wrote.")]


def backup(target: Target) -> None:
    settings = load_settings()
    with explained_errors():
        created = asyncio.run(create_backup(settings.data_dir, target, SystemClock()))
    typer.echo(
        f"{created.path}: {len(created.manifest.entries)} files, {created.size / 1e6:.1f} MB"
    )
    if settings.store_engine == "dynamodb":
        typer.echo("The tables are in DynamoDB: back them up there.")
    if "scoreboard" in settings.backends and settings.scoreboard_database_url is not None:
        typer.echo("The scores are in your PostgreSQL server: back them up there.")


def restore(source: Source) -> None:
    settings = load_settings()
    with explained_errors():
        manifest = asyncio.run(restore_backup(source, settings.data_dir, SystemClock()))
    typer.echo(
        f"Restored {settings.data_dir.resolve()} from the backup of {manifest.created} "
        f"(Tally {manifest.version})."
    )
