"""Declared access patterns match the design, and the code matches the declarations.

`designed.tsv` contains the design. Where it contradicts itself or DynamoDB, `CORRECTED` contains
the correction and its reason.
"""

import csv
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from tally.app import CATALOGUE
from tally.cli import cli
from tally.store.api import Engine
from tally.store.catalogue import Catalogue, find_problems
from tally.store.report import PatternRow, pattern_rows
from tally.store.store import Store
from tests.cricket.access_pattern_calls import call_all_access_patterns

CRICKET = Catalogue({"cricket": CATALOGUE.backends["cricket"]})
FIELDS = ("table", "by", "trigger", "frequency")

with Path(__file__).with_name("designed.tsv").open(newline="", encoding="utf-8") as designed:
    DESIGNED = {row["pattern"]: row for row in csv.DictReader(designed, delimiter="\t")}

BATCH_DELETE = {
    "operation": "Query + BatchWriteItem"
}  # DynamoDB has no BatchDeleteItem; the key condition starts with a Query
CORRECTED: dict[str, dict[str, str]] = {
    # A Query on the league index needs a league.
    "Get starting-soon matches": {
        "key_condition": (
            "leagueCode-startTime-index, leagueCode = :code AND startTime BETWEEN :now AND :until"
            " with filter attribute_not_exists(liveUpdatedAt) AND attribute_not_exists(archivedAt)"
        )
    },
    # The text below the table requires the condition.
    "Archive fixture": {
        "key_condition": "PK=matchId with ConditionExpression: attribute_exists(matchId)"
    },
    # Write first, then clean up: concurrent registrations always leave a record.
    "Register device (upsert)": {"operation": "Query + DeleteItem + UpdateItem"},
    "Remove all follows for match": BATCH_DELETE,
    "Remove all subscriptions for match": BATCH_DELETE,
    "Remove user’s subscriptions for match": {"operation": "Query + DeleteItem"},  # noqa: RUF001
    # The key has two parts, and one of several instances may send.
    "Check if notification sent": {"key_condition": "PK=matchId, SK=userId"},
    "Mark notification sent": {
        "key_condition": "PK=matchId, SK=userId with ConditionExpression:"
        " attribute_not_exists(matchId) OR expiresAt <= :now"
    },
    # The names of the table.
    "Acquire lock": {
        "key_condition": (
            "PK=lockKey with ConditionExpression: attribute_not_exists(lockKey) OR expiresAt < :now"
        )
    },
    "Release lock": {"key_condition": "PK=lockKey with ConditionExpression: owner = :owner"},
    "Extend lock": {"key_condition": "PK=lockKey with ConditionExpression: owner = :owner"},
    # Reads only the entries of one page.
    "Get fixtures by league": {
        "key_condition": (
            "leagueId-startingAt-index, leagueId = :lid AND startingAt BETWEEN :from AND :to "
            "with filter ttl > :now"
        )
    },
    # Preserves enrichment: see repository/fixture_cache.py.
    "Put single fixture": {
        "operation": "PutItem + GetItem (if enrichment was added meanwhile)",
        "key_condition": (
            "PK=matchId with ConditionExpression:"
            " attribute_not_exists(enrichedAt) OR enrichedAt <= :time"
        ),
    },
    "Batch put fixtures": {
        "operation": "BatchGetItem + BatchWriteItem + UpdateItem (around the match)"
    },
    "Hydrate cache from DynamoDB": {"operation": "GetItem (per match) + Scan"},
}


def without_qualifiers(operation: str) -> str:
    """Remove what the design writes into the key condition: conditions and filters."""
    for qualifier in (" (conditional)", "conditional, ", " + filter"):
        operation = operation.replace(qualifier, "")
    return operation


def designed_parts(key_condition: str) -> dict[str, list[str]]:
    """Return what the design's text says about the key, the condition, the filter and the index."""
    index = re.match(r"([\w-]+-index)", key_condition)
    keys = re.findall(r"[PS]K=(\w+)", key_condition)
    composites = re.findall(r"composite: (\S+)\)", key_condition)
    ranges = re.findall(r"-index, (.+?)(?: with filter.*)?$", key_condition)
    return {
        "index": [index[1]] if index else [],
        "key_condition": [f"{name} = " for name in keys] + composites + ranges,
        "condition": re.findall(r"ConditionExpression: (.+)$", key_condition),
        "filter": re.findall(r"(?:filter|FilterExpression:) (.+?)(?:, then.*)?$", key_condition),
    }


@pytest.fixture(scope="module")
def printed_patterns() -> Mapping[str, PatternRow]:
    """Return the output of `tally patterns cricket --json` by pattern."""
    result = CliRunner().invoke(cli, ["patterns", "cricket", "--json"])
    assert result.exit_code == 0, result.output
    return {row.pattern: row for row in msgspec.json.decode(result.stdout, type=list[PatternRow])}


def test_the_design_has_57_patterns_of_13_tables() -> None:
    """The file is complete, and every correction refers to a pattern."""
    assert len(DESIGNED) == 57
    assert len({row["table"] for row in DESIGNED.values()}) == 13
    assert CORRECTED.keys() <= DESIGNED.keys()


@pytest.mark.parametrize("name", DESIGNED)
def test_a_designed_access_is_declared_as_designed(
    printed_patterns: Mapping[str, PatternRow], name: str
) -> None:
    """Table, operation, trigger and frequency match the design or correction.

    So do the key, the condition and the filter, which are generated from the code.
    """
    row = DESIGNED[name]
    expected = row | {"by": row["by"].lower()} | CORRECTED.get(name, {})
    found = printed_patterns[name]
    assert {field: getattr(found, field) for field in FIELDS} == {
        field: expected[field] for field in FIELDS
    }
    assert without_qualifiers(found.operation) == without_qualifiers(expected["operation"])
    for field, parts in designed_parts(expected["key_condition"]).items():
        for part in parts:
            assert part in (getattr(found, field) or ""), (field, part)


def test_every_table_has_one_valid_repository(
    printed_patterns: Mapping[str, PatternRow],
) -> None:
    """Every pattern has a role, trigger and frequency, and every Scan a bound."""
    assert find_problems(CRICKET) == []
    assert (len(CRICKET.tables()), len(CRICKET.backends["cricket"])) == (20, 20)
    for row in printed_patterns.values():
        assert row.trigger, row.pattern
        assert row.frequency, row.pattern
        assert row.bound is not None or "Scan" not in row.operation, row.pattern


async def test_every_method_performs_its_declared_operations(engine: Engine) -> None:
    """One call per pattern performs all declared operations and no other."""
    store = Store(engine)
    await call_all_access_patterns(store)
    for row in pattern_rows(CRICKET, store.meters):
        assert row.errors == 0, row.pattern
        if row.operation == "GetRecords":  # a subscription has no end, and costs no capacity
            assert row.calls + row.operations[0].calls > 0, row.pattern
            continue
        assert row.calls > 0, row.pattern
        for operation in row.operations:
            assert operation.calls > 0, (row.pattern, operation.operation)
            assert operation.read_units + operation.write_units > 0, (
                row.pattern,
                operation.operation,
            )
