"""Translates table declarations to DynamoDB's requests, and table descriptions back."""

from collections.abc import Iterable, Mapping
from typing import Any

from tally.store.errors import TableDiffers
from tally.store.schema import Index, KeyPart, Projection, StreamView, Table, index_key


def create_request(table: Table, name: str) -> dict[str, Any]:
    """Build a CreateTable request with all indexes."""
    indexes = table.by_name.values()
    parts = [*table.key, *(part for index in indexes for part in index_key(index))]
    request: dict[str, Any] = {
        "TableName": name,
        "KeySchema": _key_schema(table.key),
        "AttributeDefinitions": _definitions(parts),
        "BillingMode": "PAY_PER_REQUEST",
    }
    if table.stream is not None:
        request["StreamSpecification"] = stream_specification(table.stream)
    for field, local in (("LocalSecondaryIndexes", True), ("GlobalSecondaryIndexes", False)):
        requests = [_index_request(index) for index in indexes if index.local is local]
        if requests:
            request[field] = requests
    return request


def stream_specification(view: StreamView | None) -> dict[str, Any]:
    """Build the specification that turns a stream on, or off if there is no view."""
    return {"StreamEnabled": view is not None, **({"StreamViewType": view} if view else {})}


def next_change(table: Table, current: Table, name: str) -> dict[str, Any] | None:
    """Build the UpdateTable request for the next index to delete or create, or for the stream.

    None if there is none. A stream with another view must be turned off first.
    """
    if table.stream != current.stream:
        view = table.stream if current.stream is None else None
        return {"TableName": name, "StreamSpecification": stream_specification(view)}
    for index in current.by_name.values():
        if not index.local and not _same(index, table.by_name.get(index.name)):
            return {
                "TableName": name,
                "GlobalSecondaryIndexUpdates": [{"Delete": {"IndexName": index.name}}],
            }
    for index in table.by_name.values():
        if index.name not in current.by_name:
            return {
                "TableName": name,
                "AttributeDefinitions": _definitions(index_key(index)),
                "GlobalSecondaryIndexUpdates": [{"Create": _index_request(index)}],
            }
    return None


def check_changeable(table: Table, current: Table) -> None:
    """Reject a declaration that the existing table cannot be changed to."""
    if table.key != current.key:
        raise TableDiffers(
            f"table {table.name} has the key {_names(current.key)}, not {_names(table.key)}"
        )
    declared, existing = _local(table), _local(current)
    for name in declared.keys() | existing.keys():
        if not _same(declared.get(name), existing.get(name)):
            raise TableDiffers(
                f"table {table.name}: local index {name} differs; a local index cannot be changed"
            )


def parse_description(description: Mapping[str, Any], name: str, ttl: str | None = None) -> Table:
    """Build a table from its description, with indexes sorted by name."""
    types = {
        entry["AttributeName"]: entry["AttributeType"]
        for entry in description["AttributeDefinitions"]
    }
    indexes = [
        _index_from(entry, types, local=True)
        for entry in description.get("LocalSecondaryIndexes") or ()
    ]
    indexes += [
        _index_from(entry, types, local=False)
        for entry in description.get("GlobalSecondaryIndexes") or ()
    ]
    partition, sort = _key_from(description["KeySchema"], types)
    specification = description.get("StreamSpecification") or {}
    return Table(
        name,
        partition,
        sort,
        tuple(sorted(indexes, key=lambda index: index.name)),
        ttl,
        stream=specification.get("StreamViewType") if specification.get("StreamEnabled") else None,
    )


def pending_status(description: Mapping[str, Any]) -> str | None:
    """Describe why the table is not ready, or return None if it is."""
    if description["TableStatus"] != "ACTIVE":
        return f"its status is {description['TableStatus']}"
    for index in description.get("GlobalSecondaryIndexes") or ():
        if index.get("IndexStatus", "ACTIVE") != "ACTIVE":
            return f"the status of index {index['IndexName']} is {index['IndexStatus']}"
    return None


def _local(table: Table) -> dict[str, Index]:
    return {index.name: index for index in table.by_name.values() if index.local}


def _same(one: Index | None, other: Index | None) -> bool:
    return one is not None and other is not None and _definition(one) == _definition(other)


def _definition(index: Index) -> tuple[Any, ...]:
    return (
        index.local,
        index.partition,
        index.sort,
        index.projection.kind,
        frozenset(index.projection.names),
    )


def _names(key: Iterable[KeyPart]) -> str:
    return " and ".join(f"{part.name} ({part.type})" for part in key)


def _key_schema(key: Iterable[KeyPart]) -> list[dict[str, str]]:
    return [
        {"AttributeName": part.name, "KeyType": kind}
        for part, kind in zip(key, ("HASH", "RANGE"), strict=False)
    ]


def _definitions(parts: Iterable[KeyPart]) -> list[dict[str, str]]:
    types = {part.name: part.type for part in parts}
    return [{"AttributeName": name, "AttributeType": kind} for name, kind in types.items()]


def _index_request(index: Index) -> dict[str, Any]:
    projection: dict[str, Any] = {"ProjectionType": index.projection.kind}
    if index.projection.kind == "INCLUDE":
        projection["NonKeyAttributes"] = list(index.projection.names)
    return {
        "IndexName": index.name,
        "KeySchema": _key_schema(index_key(index)),
        "Projection": projection,
    }


def _index_from(entry: Mapping[str, Any], types: Mapping[str, Any], *, local: bool) -> Index:
    partition, sort = _key_from(entry["KeySchema"], types)
    projection = Projection(
        entry["Projection"]["ProjectionType"],
        tuple(entry["Projection"].get("NonKeyAttributes") or ()),
    )
    return Index(entry["IndexName"], partition, sort, projection, local)


def _key_from(
    schema: Iterable[Mapping[str, str]], types: Mapping[str, Any]
) -> tuple[KeyPart, KeyPart | None]:
    names = {entry["KeyType"]: entry["AttributeName"] for entry in schema}
    sort = names.get("RANGE")
    return KeyPart(names["HASH"], types[names["HASH"]]), None if sort is None else KeyPart(
        sort, types[sort]
    )
