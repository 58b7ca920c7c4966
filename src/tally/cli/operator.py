"""`tally operator`: adds, lists and removes operators, and prints the audit trail.

The commands write to the store directly, also while servers run on it.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Annotated, Final, TypeVar

import msgspec
import typer

from tally.app import open_engine
from tally.cli.startup import AsJson, explained_errors, load_settings, local_user
from tally.instance.operators import OperatorAccounts, open_operators
from tally.instance.repository.operators import OperatorAccount
from tally.kit.clock import SystemClock
from tally.kit.operators import Role
from tally.store.store import Store

T = TypeVar("T")
MAX_AUDIT_ROWS: Final = 1_000
_lifetime = re.compile(r"([1-9][0-9]{0,4})([dh])")

operator_commands = typer.Typer(no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="Lower-case letters, digits and dashes.")]


def _parse_lifetime(text: str) -> timedelta | None:
    """Return the lifetime of a token, or None if it does not expire."""
    if text == "never":
        return None
    if not (match := _lifetime.fullmatch(text)):
        raise typer.BadParameter(
            "must be a number of days or hours such as 90d or 12h, or never", param_hint="--expires"
        )
    return timedelta(days=int(match[1])) if match[2] == "d" else timedelta(hours=int(match[1]))


@operator_commands.command("add")
def add_operator(
    name: Name,
    role: Annotated[
        Role, typer.Option(help="viewer: may only read; operator: may also make changes.")
    ],
    expires: Annotated[str, typer.Option(help="Lifetime of the token: 90d, 12h or never.")] = "90d",
) -> None:
    """Add an operator and print its token, which cannot be shown again."""
    lifetime = _parse_lifetime(expires)
    until = None if lifetime is None else SystemClock().now() + lifetime

    async def add(operators: OperatorAccounts) -> str:
        async with operators.recording(
            local_user(), "operator_add", name, role=role.value, expires=_until(until)
        ):
            return await operators.add(name, role, until)

    token = _run(add)
    typer.echo(f"Operator {name}: role {role.value}, expires {_until(until)}.", err=True)
    typer.echo(token)


@operator_commands.command("list")
def list_operators(as_json: AsJson = False) -> None:
    """Print the operators with role, expiry and last use."""
    accounts = _run(lambda operators: operators.list())
    rows = [
        {key: value for key, value in asdict(account).items() if key != "token_hash"}
        for account in accounts
    ]
    if as_json:
        typer.echo(msgspec.json.encode(rows))
        return
    for row in rows:
        typer.echo(
            f"{row['name']}  {row['role']}  created {row['created_at']}"
            f"  expires {row['expires_at'] or 'never'}  last used {row['last_used_at'] or 'never'}"
        )


@operator_commands.command("remove")
def remove_operator(name: Name) -> None:
    """Remove an operator. Running servers refuse its token within five seconds."""

    async def remove(operators: OperatorAccounts) -> Sequence[OperatorAccount]:
        async with operators.recording(local_user(), "operator_remove", name):
            await operators.remove(name)
        return await operators.list()

    remaining = _run(remove)
    typer.echo(f"Operator {name} removed.")
    if not any(account.role is Role.OPERATOR for account in remaining):
        typer.echo(
            "No operator who may make changes remains."
            " To add one: tally operator add NAME --role operator",
            err=True,
        )


@operator_commands.command("audit")
def print_audit(
    operator: Annotated[str | None, typer.Option(help="Only the changes of this operator.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=MAX_AUDIT_ROWS, help="Number of changes.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Print the changes that operators made, newest first."""
    records, _ = _run(lambda operators: operators.changes(operator, limit))
    if as_json:
        typer.echo(msgspec.json.encode(records))
        return
    for record in records:
        outcome = record.outcome if record.error is None else f"{record.outcome}: {record.error}"
        line = (
            f"{record.time}  {record.operator}  {record.action}  {record.target}  {outcome}"
            f"  {record.request_id or ''}".rstrip()
        )
        # A target comes from a URL: its control characters could forge a line.
        typer.echo("".join(each if each.isprintable() else ascii(each)[1:-1] for each in line))


def _until(expires: datetime | None) -> str:
    return "never" if expires is None else f"{expires:%Y-%m-%d %H:%M} UTC"


def _run(action: Callable[[OperatorAccounts], Awaitable[T]]) -> T:
    async def run() -> T:
        async with _open_operators() as operators:
            return await action(operators)

    with explained_errors():
        return asyncio.run(run())


@asynccontextmanager
async def _open_operators() -> AsyncIterator[OperatorAccounts]:
    settings, clock = load_settings(), SystemClock()
    async with open_engine(settings, clock) as engine:
        yield open_operators(settings, Store(engine, clock), clock)
