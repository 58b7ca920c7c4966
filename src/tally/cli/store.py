"""`tally store`: checks the embedded database, and what only an operator may decide."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from tally.app import open_engine
from tally.cli.startup import explained_errors, load_settings, local_user
from tally.instance.operators import open_operators
from tally.kit.clock import SystemClock
from tally.settings import Settings, SettingsError
from tally.store.clock_guard import confirm_clock
from tally.store.errors import StorageDamaged
from tally.store.sqlite import SqliteEngine
from tally.store.sqlite.directory import DirectoryLease, check_directory
from tally.store.sqlite.files import FILE_NAME
from tally.store.sqlite.scrub import find_damage
from tally.store.sqlite.wal_check import WAL_SUFFIX, cut_log, find_wal_damage
from tally.store.store import Store

store_commands = typer.Typer(no_args_is_help=True)


@store_commands.command("check")
def check_database() -> None:
    """Check the whole database, also while Tally runs; exit with 1 if it is damaged.

    Verifies the write-ahead log, the page checksums, the structure, every item, and every index
    against its table.
    """
    settings = load_settings()
    with explained_errors(), _leased_database(settings) as (path, lease):
        problems = _count_problems(path, lease)
    if problems:
        typer.echo(f"{path} is damaged: stop Tally and restore a backup.", err=True)
        raise typer.Exit(1)
    typer.echo(f"{path} is intact.")


@store_commands.command("confirm-clock")
def confirm_wall_clock() -> None:
    """Accept the current time after a clock jump, so that expired items are deleted again."""
    settings, clock = load_settings(), SystemClock()

    async def confirm() -> None:
        async with open_engine(settings, clock) as engine:
            if not isinstance(engine, SqliteEngine):
                raise SettingsError(["TALLY_STORE_ENGINE: DynamoDB deletes expired items itself"])
            operators = open_operators(settings, Store(engine, clock), clock)
            async with operators.recording(local_user(), "clock_confirm", "store"):
                await confirm_clock(clock, engine)

    with explained_errors():
        asyncio.run(confirm())
    typer.echo(f"Confirmed: it is {clock.now().isoformat(timespec='seconds')}.")


@store_commands.command("cut-log")
def cut_damaged_log() -> None:
    """Give up all transactions after the damage in the write-ahead log; keep a copy of the log."""
    settings = load_settings()
    with explained_errors(), _leased_database(settings) as (path, lease):
        log = path.with_name(path.name + WAL_SUFFIX)
        if not lease.is_first:
            raise SettingsError([f"{path} is in use; stop Tally first"])
        damage = find_wal_damage(log)
        if damage is None:
            typer.echo(f"{log} is not damaged.")
            return
        copy = cut_log(log, damage)
    typer.echo(f"Cut {log} before frame {max(damage.frame, 1)}; the complete log is in {copy}.")


def _count_problems(path: Path, lease: DirectoryLease) -> int:
    count = 0
    try:
        check_directory(path, is_first=lease.is_first)
        lease.share()
        if not path.exists():
            raise SettingsError([f"TALLY_DATA_DIR: {path} does not exist"])
        for problem in find_damage(path):
            typer.echo(problem)
            count += 1
    except StorageDamaged as error:
        typer.echo(str(error))
        count += 1
    return count


@contextmanager
def _leased_database(settings: Settings) -> Iterator[tuple[Path, DirectoryLease]]:
    if settings.store_engine == "dynamodb":
        raise SettingsError(["TALLY_STORE_ENGINE: the tables are in DynamoDB; nothing to check"])
    path = settings.data_dir / FILE_NAME
    if not settings.data_dir.is_dir():
        raise SettingsError([f"TALLY_DATA_DIR: {settings.data_dir} does not exist"])
    lease = DirectoryLease(settings.data_dir)
    try:
        yield path, lease
    finally:
        lease.close()
