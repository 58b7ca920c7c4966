"""The commands `tally patterns` and `tally schema …`.

    store_commands = StoreCommands(catalogue=lambda: CATALOGUE, open_engine=..., table_prefix=...)
    cli.add_typer(store_commands.patterns(), name="patterns")
    cli.add_typer(store_commands.schema(), name="schema")

Exit codes of `schema check` and `schema diff`: 0 no change since the lock, 3 all changes are safe,
4 a change needs a migration, 5 a change is impossible. `schema lock` uses 4 and 5 if it rejects the
changes and writes nothing. 1 is any other failure, 2 a usage error.
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
from tally.store.iam import iam_policy
from tally.store.lockfile import read_lock, render_lock, write_lock
from tally.store.meters import Meters
from tally.store.provision import (
    ProvisionResult,
    cloudformation,
    create_tables,
    existing_tables,
    table_status,
    terraform,
    terraform_log_groups,
)
from tally.store.report import (
    METRIC_COLUMNS,
    PATTERN_COLUMNS,
    PatternList,
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

LockFile = Annotated[
    Path | None, typer.Option("--file", help="The schema lock, instead of the program's.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Prefix = Annotated[
    str | None, typer.Option(help="Prefix of all table names, instead of the configured one.")
]


@dataclass(frozen=True, slots=True)
class StoreCommands:
    """The commands, with what they need from the program."""

    catalogue: Callable[[], Catalogue]
    open_engine: Callable[[], AbstractAsyncContextManager[Engine]]
    table_prefix: Callable[[], str] = str
    services: tuple[str, ...] = ()  # those with a log group each
    lock_file: Path = Path("schema.lock")

    def patterns(self) -> typer.Typer:
        """Return `tally patterns`, a single command."""
        # A group of commands would not allow options after the name of the backend.
        command = typer.Typer(
            invoke_without_command=True, context_settings={"allow_interspersed_args": True}
        )

        @command.callback(help="Print the access patterns of all backends, or of one.")
        def patterns(
            backend: Annotated[str | None, typer.Argument(help="Show only this backend.")] = None,
            as_json: AsJson = False,
            as_markdown: Annotated[
                bool, typer.Option("--markdown", help="Print the page docs/access-patterns.md.")
            ] = False,
            url: Annotated[
                str | None, typer.Option(help="Show the metrics of this running server.")
            ] = None,
        ) -> None:
            with _report_errors():
                rows = self._rows(backend, url)
            if as_json:
                typer.echo(msgspec.json.format(msgspec.json.encode(rows)))
            elif as_markdown:
                typer.echo(patterns_markdown(rows, measured=url is not None), nl=False)
            else:
                _print_patterns(rows, measured=url is not None)

        return command

    def _rows(self, backend: str | None, url: str | None) -> list[PatternRow]:
        if url is not None:
            return [row for row in _fetch(url) if backend in {None, row.backend}]
        if backend is not None:
            self._check_backend(backend)
        return pattern_rows(self.catalogue(), Meters(), backend)

    def _check_backend(self, name: str) -> None:
        known = self.catalogue().backends
        if name not in known:
            _fail(f"Unknown backend {name}; available: {', '.join(known) or 'none'}", code=2)

    def schema(self) -> typer.Typer:
        """Return `tally schema …`, a group of commands."""
        group = typer.Typer(help="Lock, compare and create the tables.", no_args_is_help=True)
        group.command("lock")(self._lock)
        group.command("check")(self._check)
        group.command("diff")(self._diff)
        group.command("create")(self._create)
        group.command("status")(self._status)
        group.command("cloudformation")(self._cloudformation)
        group.command("terraform")(self._terraform)
        group.command("iam")(self._iam)
        return group

    def _lock(
        self,
        file: LockFile = None,
        drop: Annotated[
            list[str] | None,
            typer.Option(help="A removed table whose data has been moved."),
        ] = None,
    ) -> None:
        """Lock the declared tables.

        Fails if a change is impossible, or needs a migration and has no new major version.
        """
        file = file or self.lock_file
        with _report_errors():
            changes = self._changes(file)
            for table in set(drop or []) - {
                change.table for change in changes if change.removes_table
            }:
                _fail(f"{table} is not a removed table", code=2)
            rejected = [change for change in changes if not _may_be_locked(change, drop or [])]
            if rejected:
                _print_changes(rejected)
                typer.echo("Nothing was locked.", err=True)
                raise typer.Exit(_exit_code(rejected))
            write_lock(file, self.catalogue().tables())
        _print_changes(changes)
        typer.echo(f"{file}: {_count(len(self.catalogue().tables()), 'table')} locked.")

    def _check(self, file: LockFile = None) -> None:
        """Fail unless the lock matches the declared tables exactly."""
        file = file or self.lock_file
        with _report_errors():
            changes = self._changes(file)
            current = file.exists() and file.read_text(encoding="utf-8") == render_lock(
                self.catalogue().tables()
            )
        if current:
            typer.echo(f"{file} is up to date: {_count(len(self.catalogue().tables()), 'table')}.")
            return
        _print_changes(changes)
        blocking = [change for change in changes if not _may_be_locked(change, [])]
        typer.echo(
            f"{file} does not match the code. "
            + (
                "Fix the listed changes first."
                if blocking
                else f"Run `tally schema lock --file {file}`."
            ),
            err=True,
        )
        raise typer.Exit(_exit_code(changes))

    def _diff(
        self,
        against: Annotated[
            Path | None, typer.Option(help="The schema lock to compare with.")
        ] = None,
        service: Annotated[
            bool, typer.Option("--service", help="Compare with the tables of the engine instead.")
        ] = False,
        as_json: AsJson = False,
    ) -> None:
        """Classify each change since the lock: safe, needs a migration, or impossible."""
        with _report_errors():
            changes = (
                asyncio.run(self._service_changes())
                if service
                else self._changes(against or self.lock_file)
            )
        if as_json:
            rows = [
                {
                    "table": change.table,
                    "change": change.description,
                    "class": change.impact.name.lower(),
                    "advice": change.advice,
                    "accepted": change.accepted,
                }
                for change in changes
            ]
            typer.echo(msgspec.json.format(msgspec.json.encode(rows)))
        else:
            _print_changes(changes)
            if not changes:
                typer.echo("No changes.")
        if changes:
            raise typer.Exit(_exit_code(changes))

    def _create(self) -> None:
        """Create the tables on the configured engine, or change them to match the declaration."""

        async def create() -> list[ProvisionResult]:
            async with self.open_engine() as engine:
                return await create_tables(engine, self.catalogue().tables())

        with _report_errors():
            for result in asyncio.run(create()):
                typer.echo(f"{result.table}: {result.status}")

    def _status(self) -> None:
        """Print for each declared table whether it and its indexes exist and are complete."""

        async def read() -> list[str]:
            async with self.open_engine() as engine:
                tables = self.catalogue().tables()
                return [f"{table.name}: {await table_status(engine, table)}" for table in tables]

        with _report_errors():
            for line in asyncio.run(read()):
                typer.echo(line)

    def _cloudformation(self, prefix: Prefix = None) -> None:
        """Print a CloudFormation template of the tables."""
        with _report_errors():
            typer.echo(cloudformation(self.catalogue().tables(), self._prefix(prefix)), nl=False)

    def _terraform(self, prefix: Prefix = None) -> None:
        """Print Terraform resources of the tables and of the log groups."""
        with _report_errors():
            typer.echo(terraform(self.catalogue().tables(), self._prefix(prefix)), nl=False)
            typer.echo(terraform_log_groups(self.services, self._prefix(prefix)), nl=False)

    def _iam(
        self,
        prefix: Prefix = None,
        region: Annotated[str, typer.Option(help="AWS region of the tables.")] = "*",
        account: Annotated[str, typer.Option(help="AWS account of the tables.")] = "*",
        backend: Annotated[
            list[str] | None, typer.Option(help="Only the tables of this backend; repeatable.")
        ] = None,
        provision: Annotated[
            bool, typer.Option("--provision", help="Also allow `tally schema create`.")
        ] = False,
    ) -> None:
        """Print the IAM policy of an instance: the actions that its access patterns need."""
        catalogue = self.catalogue()
        for name in backend or ():
            self._check_backend(name)
        if backend:
            catalogue = Catalogue({name: catalogue.backends[name] for name in backend})
        policy = iam_policy(
            catalogue,
            prefix=self._prefix(prefix),
            region=region,
            account=account,
            provision=provision,
        )
        typer.echo(policy, nl=False)

    def _prefix(self, override: str | None) -> str:
        return self.table_prefix() if override is None else override

    def _changes(self, lock: Path) -> list[SchemaChange]:
        return compare_schemas(read_lock(lock), self.catalogue().tables(), self._index_users)

    async def _service_changes(self) -> list[SchemaChange]:
        tables = self.catalogue().tables()
        async with self.open_engine() as engine:
            existing = await existing_tables(engine, tables)
        return compare_schemas(existing, tables, self._index_users)

    def _index_users(self, table: str, index: str) -> list[str]:
        entries = self.catalogue().patterns_using_index(table, index)
        return [entry.qualified_name for entry in entries]


def _may_be_locked(change: SchemaChange, dropped: Sequence[str]) -> bool:
    return (
        change.impact is ChangeImpact.SAFE
        or change.accepted
        or (change.removes_table and change.table in dropped)
    )


def _exit_code(changes: Sequence[SchemaChange]) -> int:
    """The code of the worst change.

    A lock that differs only in its text counts as a safe change.
    """
    return EXIT_CODES[max((change.impact for change in changes), default=ChangeImpact.SAFE)]


def _print_changes(changes: Sequence[SchemaChange]) -> None:
    for change in changes:
        accepted = ", new major version" if change.accepted else ""
        typer.echo(f"{change.table}: {change.description} [{_LABELS[change.impact]}{accepted}]")
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
    endpoint = f"{url.rstrip('/')}/patterns"
    try:
        response = (
            pyreqwest_get(endpoint)
            .timeout(timedelta(seconds=_FETCH_SECONDS))
            .error_for_status(enable=True)
            .send()
        )
        return msgspec.json.decode(bytes(response.bytes()), type=PatternList).items
    except PyreqwestError as error:
        _fail(f"{endpoint} did not return access patterns: {error.args[0]}")
    except ValueError as error:
        _fail(f"{endpoint} did not return access patterns: {error}")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


@contextmanager
def _report_errors() -> Iterator[None]:
    """Print an error of the store or the system as one sentence and exit with 1."""
    try:
        yield
    except (StoreError, OSError) as error:
        _fail(str(error))


def _fail(message: str, code: int = 1) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(code)
