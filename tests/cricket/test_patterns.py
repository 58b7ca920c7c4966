"""Every access of the design is a declared pattern in its words, and every declared pattern is one that the code makes.

`designed.tsv` is the design, row for row. Where it contradicts itself or DynamoDB, `CORRECTED` has
what stands instead, and why.
"""

import csv
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
FIELDS = ("table", "by", "operation", "key_condition", "trigger", "frequency")

with Path(__file__).with_name("designed.tsv").open(newline="", encoding="utf-8") as designed:
    DESIGNED = {row["pattern"]: row for row in csv.DictReader(designed, delimiter="\t")}

CONDITIONAL = {
    "operation": "UpdateItem (conditional)"
}  # the condition is in its key condition: the store holds it to that
BATCH_DELETE = {
    "operation": "Query + BatchWriteItem"
}  # DynamoDB has no BatchDeleteItem, and its key condition begins with a Query
CORRECTED: dict[str, dict[str, str]] = {
    # Without a league there is no Query on an index of leagues.
    "Get starting-soon matches": {
        "key_condition": (
            "leagueCode-startTime-index, leagueCode = :code AND startTime BETWEEN :now AND :until, for each active league, "
            "with filter attribute_not_exists(liveUpdatedAt) AND attribute_not_exists(archivedAt)"
        )
    },
    "Update fixture fields": CONDITIONAL,
    "Update team fields": CONDITIONAL,
    "Update league fields": CONDITIONAL,
    "Update follow team": CONDITIONAL,
    # The text under the table demands the condition.
    "Archive fixture": CONDITIONAL
    | {
        "key_condition": "PK=matchId with attribute_exists(matchId), SETs archivedAt, REMOVEs liveUpdatedAt"
    },
    # Written first, cleaned up afterwards: a device that registers twice at once is never without a
    # record.
    "Register device (upsert)": {
        "operation": "Query + DeleteItem + UpdateItem",
        "key_condition": "UpdateItem PK=userId, SK=deviceToken, then Query PK=userId to find stale records, Delete orphans",
    },
    "Remove all follows for match": BATCH_DELETE,
    "Remove all subscriptions for match": BATCH_DELETE,
    "Remove user’s subscriptions for match": {"operation": "Query + DeleteItem"},  # noqa: RUF001
    # The key has two parts, and of several instances one may send.
    "Check if notification sent": {"key_condition": "PK=matchId, SK=userId"},
    "Mark notification sent": {
        "key_condition": "PK=matchId, SK=userId, with 48h TTL, absent or expired"
    },
    # The table's own names.
    "Acquire lock": {
        "key_condition": "PK=lockKey with ConditionExpression: attribute_not_exists(lockKey) OR expiresAt < :now"
    },
    "Release lock": {"key_condition": "PK=lockKey with ConditionExpression: owner = :owner"},
    "Extend lock": {"key_condition": "PK=lockKey with ConditionExpression: owner = :owner"},
    # So that enrichment is never lost: see repository/fixture_cache.py.
    "Put single fixture": {
        "operation": "PutItem + GetItem (if enrichment was added meanwhile)",
        "key_condition": "PK=matchId, absent or with the enrichment of the entry",
    },
    "Batch put fixtures": {
        "operation": "BatchGetItem + BatchWriteItem + UpdateItem (around the match)"
    },
    "Update enrichment only": CONDITIONAL
    | {
        "key_condition": "PK=matchId with ConditionExpression: attribute_exists(matchId), around the match"
    },
    "Hydrate cache from DynamoDB": {"operation": "GetItem (per match) + Scan"},
}


@pytest.fixture(scope="module")
def printed() -> Mapping[str, PatternRow]:
    """What `tally patterns cricket --json` says, by pattern."""
    result = CliRunner().invoke(cli, ["patterns", "cricket", "--json"])
    assert result.exit_code == 0, result.output
    return {row.pattern: row for row in msgspec.json.decode(result.stdout, type=list[PatternRow])}


def test_the_design_has_57_accesses_of_13_tables() -> None:
    """None was forgotten when they were written down, and none is corrected that is not there."""
    assert len(DESIGNED) == 57
    assert len({row["table"] for row in DESIGNED.values()}) == 13
    assert CORRECTED.keys() <= DESIGNED.keys()


@pytest.mark.parametrize("name", DESIGNED)
def test_an_access_of_the_design_is_a_pattern_in_its_words(
    printed: Mapping[str, PatternRow], name: str
) -> None:
    """Table, operation, key condition, trigger and frequency are what the design says, or what was corrected."""
    row = DESIGNED[name]
    expected = row | {"by": row["by"].lower()} | CORRECTED.get(name, {})
    found = printed[name]
    assert {field: getattr(found, field) for field in FIELDS} == {
        field: expected[field] for field in FIELDS
    }


def test_every_table_has_one_repository_that_keeps_the_rules(
    printed: Mapping[str, PatternRow],
) -> None:
    """Fifteen tables, fifteen owners; every pattern says who and when, and every Scan its bound."""
    assert find_problems(CRICKET) == []
    assert len(CRICKET.tables()) == len(CRICKET.backends["cricket"]) == 15
    for row in printed.values():
        assert row.trigger, row.pattern
        assert row.frequency, row.pattern
        assert row.bound is not None or "Scan" not in row.operation, row.pattern


async def test_every_pattern_is_what_its_method_does(engine: Engine) -> None:
    """One call of each makes every operation that it declares, and no other one is tried."""
    store = Store(engine)
    await call_all_access_patterns(store)
    for row in pattern_rows(CRICKET, store.meters):
        assert row.calls > 0, row.pattern
        assert row.errors == 0, row.pattern
        for operation in row.operations:
            assert operation.calls > 0, (row.pattern, operation.operation)
            assert operation.read_units + operation.write_units > 0, (
                row.pattern,
                operation.operation,
            )
