"""The commands `tally patterns` and `tally schema …`, for the command line to take in:

    store_commands = StoreCommands(catalogue=lambda: CATALOGUE, open_engine=..., table_prefix=...)
    cli.add_typer(store_commands.patterns(), name="patterns")
    cli.add_typer(store_commands.schema(), name="schema")

`schema check` and `schema diff` end with 0 if nothing has changed since the lock, 3 if all changes
are safe, 4 if one needs a migration, 5 if one is impossible. `schema lock` ends so if it refuses,
and then has written nothing. 1 is any other failure, 2 a command that makes no sense.
"""

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, NoReturn

import msgspec
import typer
from pyreqwest.exceptions import PyreqwestError
from pyreqwest.simple.sync_request import pyreqwest_get
from rich.console import Console
from rich.table import Table as RichTable

from tally.store.api import Engine
from tally.store.catalogue import Catalogue
from tally.store.errors import StoreError
from tally.store.lockfile import read_lock, render_lock, write_lock
from tally.store.meters import Meters
from tally.store.provision import ProvisionResult, cloudformation, create_tables, terraform
from tally.store.report import (
    METRIC_COLUMNS,
    PATTERN_COLUMNS,
    PatternRow,
    format_cell,
    pattern_rows,
    patterns_markdown,
)
from tally.store.schema_diff import ChangeImpact, SchemaChange, compare_schemas

EXIT_CODES = {ChangeImpact.SAFE: 3, ChangeImpact.MIGRATION: 4, ChangeImpact.IMPOSSIBLE: 5}
_LABELS = {
    ChangeImpact.SAFE: "safe",
    ChangeImpact.MIGRATION: "needs a migration",
    ChangeImpact.IMPOSSIBLE: "impossible",
}
_FETCH_SECONDS = 10.0

LockFile = Annotated[Path, typer.Option("--file", help="The schema lock.")]
LOCK_FILE = Path("schema.lock")
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
Prefix = Annotated[
    str | None, typer.Option(help="Put before every table's name, instead of the configured one.")
]


@dataclass(frozen=True, slots=True)
class StoreCommands:
    """What the commands need to know of the program that they are part of."""

    catalogue: Callable[[], Catalogue]
    open_engine: Callable[[], AbstractAsyncContextManager[Engine]]
    table_prefix: Callable[[], str] = str

    def patterns(self) -> typer.Typer:
        """`tally patterns`, a single command."""
        # Options may stand behind the name of the backend, which they may not for a group of
        # commands.
        single = typer.Typer(
            invoke_without_command=True, context_settings={"allow_interspersed_args": True}
        )

        @single.callback(help="Print the access patterns of all backends, or of one.")
        def patterns(
            backend: Annotated[str | None, typer.Argument(help="Only this one.")] = None,
            as_json: AsJson = False,
            as_markdown: Annotated[
                bool, typer.Option("--markdown", help="As the page docs/access-patterns.md.")
            ] = False,
            url: Annotated[
                str | None, typer.Option(help="A running server, whose figures are shown.")
            ] = None,
        ) -> None:
            with _explained():
                rows = self._rows(backend, url)
            if as_json:
                typer.echo(msgspec.json.format(msgspec.json.encode(rows)))
            elif as_markdown:
                typer.echo(patterns_markdown(rows, measured=url is not None), nl=False)
            else:
                _print_patterns(rows, measured=url is not None)

        return single

    def _rows(self, backend: str | None, url: str | None) -> list[PatternRow]:
        if url is not None:
            return [row for row in _fetch(url) if backend in {None, row.backend}]
        catalogue = self.catalogue()
        if backend is not None and backend not in catalogue.backends:
            _fail(
                f"There is no backend {backend}; there are: {', '.join(catalogue.backends) or 'none yet'}",
                code=2,
            )
        return pattern_rows(catalogue, Meters(), backend)

    def schema(self) -> typer.Typer:
        """`tally schema …`, a group of commands."""
        group = typer.Typer(help="The tables: locked, compared, and made.", no_args_is_help=True)
        group.command("lock")(self._lock)
        group.command("check")(self._check)
        group.command("diff")(self._diff)
        group.command("create")(self._create)
        group.command("cloudformation")(self._cloudformation)
        group.command("terraform")(self._terraform)
        return group

    def _lock(
        self,
        file: LockFile = LOCK_FILE,
        drop: Annotated[
            list[str] | None,
            typer.Option(help="A table that is gone, and whose data has been moved."),
        ] = None,
    ) -> None:
        """Agree on the tables as declared, unless a change is impossible, or needs a migration and has no new major version."""
        with _explained():
            changes = self._changes(file)
            for table in set(drop or []) - {
                change.table for change in changes if change.removes_table
            }:
                _fail(f"{table} is no table that is locked and gone", code=2)
            refused = [change for change in changes if not _may_be_locked(change, drop or [])]
            if refused:
                _print_changes(refused)
                typer.echo("Nothing was locked.", err=True)
                raise typer.Exit(_exit_code(refused))
            write_lock(file, self.catalogue().tables())
        _print_changes(changes)
        typer.echo(f"{file}: {_count(len(self.catalogue().tables()), 'table')} locked.")

    def _check(self, file: LockFile = LOCK_FILE) -> None:
        """Fail unless the lock holds exactly the tables that the code declares."""
        with _explained():
            changes = self._changes(file)
            current = file.exists() and file.read_text(encoding="utf-8") == render_lock(
                self.catalogue().tables()
            )
        if current:
            typer.echo(f"{file} is current: {_count(len(self.catalogue().tables()), 'table')}.")
            return
        _print_changes(changes)
        waiting = [change for change in changes if not _may_be_locked(change, [])]
        typer.echo(
            f"{file} is not what the code declares. "
            + (
                "Mend what is listed first."
                if waiting
                else f"`tally schema lock --file {file}` brings it up to date."
            ),
            err=True,
        )
        raise typer.Exit(_exit_code(changes))

    def _diff(
        self,
        against: Annotated[
            Path, typer.Option(help="A schema lock to compare the declared tables with.")
        ] = LOCK_FILE,
        as_json: AsJson = False,
    ) -> None:
        """Say of each change since the lock whether it is safe, needs a migration, or is impossible."""
        with _explained():
            changes = self._changes(against)
        if as_json:
            rows = [
                {
                    "table": change.table,
                    "change": change.what,
                    "class": change.cost.name.lower(),
                    "advice": change.advice,
                    "accepted": change.accepted,
                }
                for change in changes
            ]
            typer.echo(msgspec.json.format(msgspec.json.encode(rows)))
        else:
            _print_changes(changes)
            if not changes:
                typer.echo("No change.")
        if changes:
            raise typer.Exit(_exit_code(changes))

    def _create(self) -> None:
        """Make the tables where the settings say that they live, or bring them up to their declaration."""

        async def create() -> list[ProvisionResult]:
            async with self.open_engine() as engine:
                return await create_tables(engine, self.catalogue().tables())

        with _explained():
            for made in asyncio.run(create()):
                typer.echo(f"{made.table}: {made.outcome}")

    def _cloudformation(self, prefix: Prefix = None) -> None:
        """Print a CloudFormation template of the tables."""
        with _explained():
            typer.echo(cloudformation(self.catalogue().tables(), self._prefix(prefix)), nl=False)

    def _terraform(self, prefix: Prefix = None) -> None:
        """Print Terraform's resources for the tables."""
        with _explained():
            typer.echo(terraform(self.catalogue().tables(), self._prefix(prefix)), nl=False)

    def _prefix(self, given: str | None) -> str:
        return self.table_prefix() if given is None else given

    def _changes(self, lock: Path) -> list[SchemaChange]:
        catalogue = self.catalogue()

        def users(table: str, index: str) -> list[str]:
            return [entry.place for entry in catalogue.users_of(table, index)]

        return compare_schemas(read_lock(lock), catalogue.tables(), users)


def _may_be_locked(change: SchemaChange, dropped: Sequence[str]) -> bool:
    return (
        change.cost is ChangeImpact.SAFE
        or change.accepted
        or (change.removes_table and change.table in dropped)
    )


def _exit_code(changes: Sequence[SchemaChange]) -> int:
    """By the worst of them; a lock that differs in its text alone counts as a safe change."""
    return EXIT_CODES[max((change.cost for change in changes), default=ChangeImpact.SAFE)]


def _print_changes(changes: Sequence[SchemaChange]) -> None:
    for change in changes:
        accepted = ", new major version" if change.accepted else ""
        typer.echo(f"{change.table}: {change.what} [{_LABELS[change.cost]}{accepted}]")
        if change.advice:
            typer.echo(f"    {change.advice}")


def _print_patterns(rows: Sequence[PatternRow], *, measured: bool) -> None:
    columns = {
        "backend": "Backend",
        "table": "Table",
        **PATTERN_COLUMNS,
        **(METRIC_COLUMNS if measured else {}),
    }
    if not sys.stdout.isatty():
        for row in rows:
            typer.echo("\t".join(format_cell(getattr(row, name)) for name in columns))
        return
    table = RichTable(*columns.values())
    for row in rows:
        table.add_row(*(format_cell(getattr(row, name)) for name in columns))
    Console().print(table)


def _fetch(url: str) -> list[PatternRow]:
    place = f"{url.rstrip('/')}/patterns"
    try:
        response = (
            pyreqwest_get(place)
            .timeout(timedelta(seconds=_FETCH_SECONDS))
            .error_for_status(enable=True)
            .send()
        )
        return msgspec.json.decode(bytes(response.bytes()), type=list[PatternRow])
    except (PyreqwestError, ValueError) as error:
        _fail(f"{place} does not answer with access patterns: {error}")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


@contextmanager
def _explained() -> Iterator[None]:
    """Turn what the store or the system refuses into a sentence and exit code 1."""
    try:
        yield
    except (StoreError, OSError) as error:
        _fail(str(error))


def _fail(sentence: str, code: int = 1) -> NoReturn:
    typer.echo(sentence, err=True)
    raise typer.Exit(code)
