"""Formats the consumed capacity and the item collection metrics of responses."""

from collections.abc import Iterable, Mapping
from typing import Any

from tally.store.api import Capacity, WriteResult
from tally.store.encode import item_to_wire
from tally.store.schema import Table


def add_capacity(
    response: dict[str, Any],
    body: Mapping[str, Any],
    table: Table,
    capacity: Capacity,
    index: str | None = None,
) -> None:
    """Add the consumed capacity of a read, if the request asks for it."""
    level = body.get("ReturnConsumedCapacity")
    if level in ("TOTAL", "INDEXES"):
        response["ConsumedCapacity"] = describe_capacity(level, table, capacity, index)


def add_write_capacity(
    response: dict[str, Any], body: Mapping[str, Any], table: Table, result: WriteResult
) -> None:
    """Add the consumed capacity of a single write, if the request asks for it."""
    level = body.get("ReturnConsumedCapacity")
    if level in ("TOTAL", "INDEXES"):
        response["ConsumedCapacity"] = describe_write_capacity(
            level, table, result.capacity, result.index_units
        )


def describe_capacity(
    level: str, table: Table, capacity: Capacity, index: str | None = None
) -> dict[str, Any]:
    """Return the capacity that one table consumed; reads of an index count for the index."""
    units = capacity.read + capacity.write
    indexes = () if index is None else ((index, units),)
    return _describe(level, table, units, indexes)


def describe_write_capacity(
    level: str, table: Table, capacity: Capacity, index_units: Iterable[tuple[str, float]]
) -> dict[str, Any]:
    """Return the capacity of writes; `index_units` is the part of each index."""
    return _describe(level, table, capacity.read + capacity.write, index_units)


def _describe(
    level: str, table: Table, units: float, index_units: Iterable[tuple[str, float]]
) -> dict[str, Any]:
    described: dict[str, Any] = {"TableName": table.name, "CapacityUnits": units}
    if level != "INDEXES":
        return described
    totals: dict[str, float] = {}
    for name, cost in index_units:
        totals[name] = totals.get(name, 0.0) + cost
    described["Table"] = {"CapacityUnits": units - sum(totals.values())}
    for name, cost in totals.items():
        kind = "Local" if table.index(name).local else "Global"
        parts = described.setdefault(f"{kind}SecondaryIndexes", {})
        parts[name] = {"CapacityUnits": cost}
    return described


def describe_transaction_capacity(
    level: str,
    table: Table,
    capacity: Capacity,
    index_units: Iterable[tuple[str, float]] = (),
) -> dict[str, Any]:
    """Return the capacity of one table in a transaction, with reads and writes apart."""
    described = describe_write_capacity(level, table, capacity, index_units)
    kind = "WriteCapacityUnits" if capacity.write else "ReadCapacityUnits"
    parts = [described]
    if level == "INDEXES":
        parts.append(described["Table"])
        for indexes in ("GlobalSecondaryIndexes", "LocalSecondaryIndexes"):
            parts += described.get(indexes, {}).values()
    for part in parts:
        part[kind] = part["CapacityUnits"]
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
