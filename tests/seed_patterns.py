"""Checks declared access patterns against those that a seed specifies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from typer.testing import CliRunner

from tally.app import CATALOGUE
from tally.cli import cli
from tally.store.catalogue import Catalogue, find_problems
from tally.store.report import PatternRow


@dataclass(frozen=True, slots=True)
class SeedAccess:
    """An access that a seed specifies."""

    table: str
    operation: str
    index: str | None = None
    key: tuple[str, ...] = ()  # words of the key condition, filter, condition or projection


def read_patterns(backend: str) -> list[PatternRow]:
    """Return the output of `tally patterns BACKEND --json`."""
    result = CliRunner().invoke(cli, ["patterns", backend, "--json"])
    assert result.exit_code == 0, result.output
    return msgspec.json.decode(result.stdout, type=list[PatternRow])


def matching_patterns(rows: Sequence[PatternRow], access: SeedAccess) -> list[PatternRow]:
    """Return the patterns with the table, operation, index and request form of an access."""
    return [
        row
        for row in rows
        if (row.table, row.operation, row.index) == (access.table, access.operation, access.index)
        and all(words in _form(row) for words in access.key)
    ]


def _form(row: PatternRow) -> str:
    """What the store enforces for each request, generated from the declaration."""
    return f"{row.key_condition} / {row.filter} / {row.condition} / {row.projection}"


def check_descriptions(backend: str, rows: Sequence[PatternRow]) -> None:
    """Assert that all patterns are described, bounded and free of scans."""
    for row in rows:
        assert row.trigger, row.pattern
        assert row.frequency, row.pattern
        assert "Scan" not in row.operation
    assert find_problems(Catalogue({backend: CATALOGUE.backends[backend]})) == []


def check_usage(rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Assert that all operations of all patterns, rows by name, were called without an error."""
    for name, row in rows.items():
        assert row["errors"] == 0, name
        if row["operation"] == "GetRecords":  # a subscription has no end, and costs no capacity
            continue
        assert row["calls"] > 0, name
        for operation in row["operations"]:
            units = operation["read_units"] + operation["write_units"]
            assert operation["calls"] > 0, (name, operation["operation"])
            assert units > 0, (name, operation["operation"])
