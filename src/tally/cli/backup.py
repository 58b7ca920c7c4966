"""`tally backup` and `tally restore`."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from tally.backup.create import create_backup
from tally.backup.errors import BackupRejected
from tally.backup.restore import restore_backup
from tally.cli.startup import explained_errors, load_settings
from tally.kit.clock import SystemClock
from tally.kit.data_directory import secure_data_directory

# Text, because a path does not have the slash at its end.
Target = Annotated[
    str, typer.Argument(help="File to write; in a directory, the file is named after the time.")
]
Trust = Annotated[
    bool,
    typer.Option("--trust", help="Restore a backup that is not signed with TALLY_BACKUP_KEY."),
]
Source = Annotated[Path, typer.Argument(help="File that `tally backup` wrote.")]


def backup(target: Target) -> None:
    settings = load_settings()
    with explained_errors():
        if target.endswith("/") and not Path(target).is_dir():
            raise BackupRejected(
                f"{target} is not a directory; create it, or name a file without a slash at the end"
            )
        secure_data_directory(settings.data_dir)
        created = asyncio.run(
            create_backup(settings.data_dir, Path(target), SystemClock(), settings.backup_key)
        )
    typer.echo(
        f"{created.path}: {len(created.manifest.entries)} files, {created.size / 1e6:.1f} MB"
    )
    if created.omitted:
        typer.echo(f"Not included, because Tally did not create it: {', '.join(created.omitted)}")
    if settings.store_engine == "dynamodb":
        typer.echo("The tables are in DynamoDB: back them up there.")
    if "scoreboard" in settings.backends and settings.scoreboard_database_url is not None:
        typer.echo("The scores are in your PostgreSQL server: back them up there.")


def restore(source: Source, trust: Trust = False) -> None:
    settings = load_settings()
    with explained_errors():
        manifest = asyncio.run(
            restore_backup(
                source, settings.data_dir, SystemClock(), settings.backup_key, trust=trust
            )
        )
    typer.echo(
        f"Restored {settings.data_dir.resolve()} from the backup of {manifest.created} "
        f"(Tally {manifest.version})."
    )
