"""The IAM policy allows what the access patterns need, and nothing else."""

import json
from typing import Any

import pytest

from tally.app import CATALOGUE as TALLY_CATALOGUE
from tally.store.catalogue import Catalogue
from tally.store.iam import iam_policy
from tests.store.example import CATALOGUE

# AWS counts a managed policy without white space.
MAX_POLICY_CHARACTERS = 6_144
ARN = "arn:aws:dynamodb:eu-west-1:123456789012:table/"


def actions(policy: str, resource: str) -> set[str]:
    """Return what the policy allows on a resource."""
    statements: list[dict[str, Any]] = json.loads(policy)["Statement"]
    return {
        action.removeprefix("dynamodb:")
        for statement in statements
        if resource in statement["Resource"]
        for action in statement["Action"]
    }


def test_a_table_allows_the_operations_of_its_patterns() -> None:
    policy = iam_policy(CATALOGUE, prefix="prod-", region="eu-west-1", account="123456789012")
    fixtures = actions(policy, f"{ARN}prod-example-fixtures")
    assert {"GetItem", "DescribeTable"} <= fixtures
    assert actions(policy, f"{ARN}prod-example-fixtures/index/*") <= {"Query", "Scan"}
    # The operations of transactions are those of their parts.
    everything = {
        action
        for table in CATALOGUE.tables()
        for action in actions(policy, f"{ARN}prod-{table.name}")
    }
    assert not {name for name in everything if name.startswith("Transact")}
    assert actions(policy, "*") == {"ListTables"}
    assert "Allow" in policy
    assert "DeleteTable" not in policy


def test_only_a_policy_for_provisioning_changes_tables() -> None:
    assert "UpdateTable" not in iam_policy(CATALOGUE)
    provision = iam_policy(CATALOGUE, provision=True)
    table = "arn:aws:dynamodb:*:*:table/example-locks"
    assert {"CreateTable", "UpdateTable", "UpdateTimeToLive"} <= actions(provision, table)
    assert "DeleteTable" not in provision


@pytest.mark.parametrize("backend", TALLY_CATALOGUE.backends)
def test_the_policy_of_a_backend_fits_into_a_managed_policy(backend: str) -> None:
    catalogue = Catalogue({backend: TALLY_CATALOGUE.backends[backend]})
    policy = iam_policy(catalogue, prefix="production-", region="ap-southeast-2", account="1" * 12)
    compact = json.dumps(json.loads(policy), separators=(",", ":"))
    assert len(compact) <= MAX_POLICY_CHARACTERS


def test_streams_may_be_read_by_their_consumers_only() -> None:
    for table in TALLY_CATALOGUE.tables():
        stream = f"arn:aws:dynamodb:*:*:table/{table.name}/stream/*"
        expected = {"DescribeStream", "GetRecords", "GetShardIterator"} if table.stream else set()
        assert actions(iam_policy(TALLY_CATALOGUE), stream) == expected
