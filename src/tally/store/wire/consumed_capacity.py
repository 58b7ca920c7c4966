"""Formats the consumed capacity and the item collection metrics of responses."""

from collections.abc import Mapping
from typing import Any

from tally.store.api import Capacity
from tally.store.encode import item_to_wire
from tally.store.schema import Table


def add_capacity(
    response: dict[str, Any],
    body: Mapping[str, Any],
    table: Table,
    capacity: Capacity,
    index: str | None = None,
) -> None:
    """Add the consumed capacity of a single operation, if the request asks for it."""
    level = body.get("ReturnConsumedCapacity")
    if level in ("TOTAL", "INDEXES"):
        response["ConsumedCapacity"] = describe_capacity(level, table, capacity, index)


def describe_capacity(
    level: str, table: Table, capacity: Capacity, index: str | None = None
) -> dict[str, Any]:
    """Return the capacity that one table consumed; reads of an index count for the index."""
    units = capacity.read + capacity.write
    described: dict[str, Any] = {"TableName": table.name, "CapacityUnits": units}
    if level == "INDEXES":
        described["Table"] = {"CapacityUnits": 0.0 if index else units}
        if index is not None:
            kind = "Local" if table.index(index).local else "Global"
            described[f"{kind}SecondaryIndexes"] = {index: {"CapacityUnits": units}}
    return described


def describe_transaction_capacity(level: str, table: Table, capacity: Capacity) -> dict[str, Any]:
    """Return the capacity of one table in a transaction, with reads and writes apart."""
    described = describe_capacity(level, table, capacity)
    parts = [described, described["Table"]] if level == "INDEXES" else [described]
    for part in parts:
        if capacity.write:
            part["WriteCapacityUnits"] = capacity.write
        if capacity.read:
            part["ReadCapacityUnits"] = capacity.read
    return described


def add_collection_metrics(
    response: dict[str, Any], body: Mapping[str, Any], table: Table, key: Mapping[str, Any]
) -> None:
    """Add the estimated size of an item collection; only tables with local indexes have one."""
    if body.get("ReturnItemCollectionMetrics") == "SIZE":
        metrics = collection_metrics(table, key)
        if metrics is not None:
            response["ItemCollectionMetrics"] = metrics


def collection_metrics(table: Table, key: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the metrics of the item collection that a key belongs to."""
    if not any(index.local for index in table.by_name.values()):
        return None
    name = table.partition.name
    return {
        "ItemCollectionKey": item_to_wire({name: key[name]}),
        "SizeEstimateRangeGB": [0.0, 1.0],
    }
