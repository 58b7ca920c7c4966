"""Tables in DynamoDB's words, both ways: the requests that make and change them, and the descriptions that come back."""

from collections.abc import Iterable, Mapping
from typing import Any

from tally.store.errors import TableDiffers
from tally.store.schema import Index, KeyPart, Projection, Table, index_key


def create_request(table: Table, name: str) -> dict[str, Any]:
    """A CreateTable with all indexes."""
    indexes = table.by_name.values()
    parts = [*table.key, *(part for index in indexes for part in index_key(index))]
    request: dict[str, Any] = {
        "TableName": name,
        "KeySchema": _key_schema(table.key),
        "AttributeDefinitions": _definitions(parts),
        "BillingMode": "PAY_PER_REQUEST",
    }
    for field, local in (("LocalSecondaryIndexes", True), ("GlobalSecondaryIndexes", False)):
        chosen = [_index_request(index) for index in indexes if index.local is local]
        if chosen:
            request[field] = chosen
    return request


def next_change(table: Table, current: Table, name: str) -> dict[str, Any] | None:
    """The UpdateTable that brings the table one index closer to its declaration; what is in the way goes first."""
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
    """Refuse to go on where the declared table cannot be made of the one that is there."""
    if table.key != current.key:
        raise TableDiffers(
            f"table {table.name} has the key {_names(current.key)}, not {_names(table.key)}"
        )
    wanted, there = _local(table), _local(current)
    for name in wanted.keys() | there.keys():
        if not _same(wanted.get(name), there.get(name)):
            raise TableDiffers(
                f"table {table.name}: the local index {name} differs, and is made with the table only"
            )


def table_from(description: Mapping[str, Any], name: str, ttl: str | None = None) -> Table:
    """The table behind a description, its indexes in the order of their names."""
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
    return Table(name, partition, sort, tuple(sorted(indexes, key=lambda index: index.name)), ttl)


def moving(description: Mapping[str, Any]) -> str | None:
    """What of the table is not at rest, in words, if anything is."""
    if description["TableStatus"] != "ACTIVE":
        return f"it is still {description['TableStatus']}"
    for index in description.get("GlobalSecondaryIndexes") or ():
        if index.get("IndexStatus", "ACTIVE") != "ACTIVE":
            return f"its index {index['IndexName']} is still {index['IndexStatus']}"
    return None


def _local(table: Table) -> dict[str, Index]:
    return {index.name: index for index in table.by_name.values() if index.local}


def _same(one: Index | None, other: Index | None) -> bool:
    return one is not None and other is not None and _essence(one) == _essence(other)


def _essence(index: Index) -> tuple[Any, ...]:
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
