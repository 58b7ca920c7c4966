"""`tally settings`: prints each setting with its value and source."""

import os
import sys
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from tally.cli.startup import AsJson, load_settings
from tally.settings import setting_rows, settings_markdown


def show_settings(
    as_json: AsJson = False,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the page docs/settings.md.")
    ] = False,
) -> None:
    if as_markdown:
        typer.echo(settings_markdown(), nl=False)
        return
    settings = setting_rows(load_settings(), os.environ)
    if as_json:
        typer.echo(msgspec.json.encode(settings))
    elif sys.stdout.isatty():
        table = Table("Setting", "Value", "Source", "Description")
        for row in settings:
            table.add_row(row.variable, row.value, row.source, row.help)
        Console().print(table)
    else:
        for row in settings:
            typer.echo(f"{row.variable}={row.value}  # {row.source}; {row.type}; {row.help}")
