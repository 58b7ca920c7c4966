"""Prints the IAM policy of an instance on DynamoDB: the actions that its access patterns need.

A table allows only the operations that some pattern declares, and an index only reads, so that a
stolen key of an instance cannot drop a table. `provision` adds what `tally schema create` needs.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from tally.store.catalogue import Catalogue
from tally.store.pattern_operations import OperationUse
from tally.store.schema import Table

# A transaction needs the actions of its parts.
_TRANSACTIONS: Final = frozenset({"TransactWriteItems", "TransactGetItems"})
_ACTIONS: Final = {"ConditionCheck": "ConditionCheckItem"}
# A consumer of a stream reads the description of its table first.
_STREAM_ACTIONS: Final = ("DescribeStream", "GetRecords", "GetShardIterator")
# Readiness lists the tables and describes their indexes.
_EVERY_TABLE: Final = ("DescribeTable",)
_PROVISION: Final = (
    *("CreateTable", "DescribeTable", "DescribeTimeToLive"),
    *("UpdateTable", "UpdateTimeToLive"),
)


def iam_policy(
    catalogue: Catalogue,
    *,
    prefix: str = "",
    region: str = "*",
    account: str = "*",
    provision: bool = False,
) -> str:
    """Return the policy as JSON."""
    arn = f"arn:aws:dynamodb:{region}:{account}:table/{prefix}"
    by_resource = _actions_by_resource(catalogue)
    # One statement per set of actions, because IAM limits the length of a policy.
    resources: dict[tuple[str, ...], list[str]] = {}
    for resource, actions in sorted(by_resource.items()):
        resources.setdefault(tuple(sorted(actions)), []).append(arn + resource)
    statements = [_statement(actions, names) for actions, names in sorted(resources.items())]
    statements.append(_statement(("ListTables",), ["*"]))
    if provision:
        tables = [arn + table.name for table in catalogue.tables()]
        statements.append(_statement(_PROVISION, tables))
    return json.dumps({"Version": "2012-10-17", "Statement": statements}, indent=2) + "\n"


def _statement(actions: Iterable[str], resources: list[str]) -> dict[str, Any]:
    return {
        "Effect": "Allow",
        "Action": [f"dynamodb:{action}" for action in actions],
        "Resource": resources,
    }


def _actions_by_resource(catalogue: Catalogue) -> dict[str, set[str]]:
    actions = {table.name: set(_EVERY_TABLE) for table in catalogue.tables()}
    for entry in catalogue.entries():
        for use in entry.pattern.operation.uses:
            for resource, action in _actions(use, entry.pattern.table):
                actions.setdefault(resource, set()).add(action)
    for table in catalogue.tables():
        if table.stream is not None:
            actions[f"{table.name}/stream/*"] = set(_STREAM_ACTIONS)
    return actions


def _actions(use: OperationUse, table: Table) -> Iterator[tuple[str, str]]:
    if use.name in _TRANSACTIONS:
        for part in use.parts:
            yield from _actions(part, table)
    elif use.name not in _STREAM_ACTIONS:
        name = (use.table or table).name
        resource = name if use.index is None else f"{name}/index/*"
        yield resource, _ACTIONS.get(use.name, use.name)
