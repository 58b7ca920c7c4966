"""Commands whose modules are imported when they run.

Typer needs a command's parameters to run it, but only its name and help to list it. A lazy group
lists commands from a table and replaces the entry of the table with the real command on use.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from tally.cli.extras import MissingExtra, explain_missing_extra


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """A command and the place of its implementation: a function, or a Typer for a group.

    `extra` names the optional dependencies that the command requires.
    """

    name: str
    target: str
    help: str
    extra: str | None = None

    def load(self) -> Any:
        """Import the implementation and return the command."""
        module, _, attribute = self.target.partition(":")
        with explain_missing_extra(f"tally {self.name}", self.extra):
            implementation = getattr(import_module(module), attribute)
        parent = typer.Typer(add_completion=False)
        if isinstance(implementation, typer.Typer):
            parent.add_typer(implementation, name=self.name, help=self.help)
        else:
            parent.command(self.name, help=self.help)(implementation)
        return typer.main.get_group(parent).commands[self.name]


def lazy_group(commands: Sequence[LazyCommand]) -> type[TyperGroup]:
    """Create a group class that loads the command that the user calls."""
    by_name = {command.name: command for command in commands}

    class LazyGroup(TyperGroup):
        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            name, _, rest = super().resolve_command(ctx, args)
            try:
                return name, by_name[str(name)].load(), rest
            except MissingExtra as error:
                typer.echo(str(error), err=True)
                raise typer.Exit(2) from error

    return LazyGroup
