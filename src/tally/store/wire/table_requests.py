"""Turns the definitions of CreateTable and UpdateTable into the store's declarations."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tally.store.schema import (
    ALL,
    KEYS_ONLY,
    Index,
    KeyPart,
    LocalIndex,
    Projection,
    Table,
    index_key,
)
from tally.store.wire.service_errors import ServiceError, invalid
from tally.store.wire.table_names import INVALID_NAME, table_name

Body = Mapping[str, Any]
_MAX_GLOBAL: Final = 20
_MAX_LOCAL: Final = 5


def read_table(body: Body) -> Table:
    """Read the declaration of a new table."""
    name = table_name(body["TableName"])
    if name != body["TableName"]:
        raise invalid(INVALID_NAME)
    types = _read_types(body["AttributeDefinitions"])
    if len(types) < len(body["KeySchema"]):
        raise invalid("Invalid KeySchema: Some index key attribute have no definition")
    partition, sort = read_key_schema(body["KeySchema"], types)
    _check_index_counts(body)
    indexes: list[Index | LocalIndex] = [
        _read_local(entry, types, (partition, sort))
        for entry in _entries(body, "LocalSecondaryIndexes")
    ]
    indexes += [read_index(entry, types) for entry in _entries(body, "GlobalSecondaryIndexes")]
    names = [index.name for index in indexes]
    for position, index_name in enumerate(names):
        if index_name in names[:position]:
            raise _parameter(f"Duplicate index name: {index_name}")
    _check_definitions(body, types)
    return Table(name, partition, sort, indexes=tuple(indexes), stream=read_stream(body))


def read_stream(body: Body) -> Any:
    """Read the view type of a stream; None if there is none."""
    specification = body.get("StreamSpecification") or {}
    if not specification.get("StreamEnabled"):
        if specification.get("StreamViewType") is not None:
            raise _parameter(
                "Table is being created with a stream disabled, UpdateViewType should not be"
                " specified"
            )
        return None
    view = specification.get("StreamViewType")
    if view is None:
        raise _parameter("StreamViewType is required when StreamEnabled is true")
    return view


def read_index(entry: Body, types: Mapping[str, Any]) -> Index:
    """Read the declaration of a global index."""
    partition, sort = read_key_schema(entry["KeySchema"], types)
    return Index(entry["IndexName"], partition, sort, _read_projection(entry))


def _read_local(
    entry: Body, types: Mapping[str, Any], key: tuple[KeyPart, KeyPart | None]
) -> LocalIndex:
    partition, sort = key
    if sort is None:
        raise _parameter(
            "Table KeySchema does not have a range key, which is required when specifying a"
            " LocalSecondaryIndex"
        )
    index_partition, index_sort = read_key_schema(entry["KeySchema"], types)
    if index_partition != partition:
        raise _parameter(
            "Index KeySchema does not have the same leading hash key as table KeySchema for index:"
            f" {entry['IndexName']}. index hash key: {index_partition.name}, table hash key:"
            f" {partition.name}"
        )
    if index_sort is None:
        raise _parameter(
            "Index KeySchema does not have a range key for index: " + entry["IndexName"]
        )
    return LocalIndex(entry["IndexName"], index_sort, _read_projection(entry))


def _read_projection(entry: Body) -> Projection:
    projection = entry["Projection"]
    kind, names = projection.get("ProjectionType"), projection.get("NonKeyAttributes")
    if kind is None:
        raise _parameter("Unknown ProjectionType: null")
    if names is not None and kind != "INCLUDE":
        raise _parameter(f"ProjectionType is {kind}, but NonKeyAttributes is specified")
    if kind == "INCLUDE":
        if not names:
            raise _parameter("ProjectionType is INCLUDE, but NonKeyAttributes is not specified")
        return Projection("INCLUDE", tuple(names))
    return ALL if kind == "ALL" else KEYS_ONLY


def read_key_schema(
    schema: Sequence[Body], types: Mapping[str, Any]
) -> tuple[KeyPart, KeyPart | None]:
    """Read the partition key and the sort key, if there is one."""
    if schema[0]["KeyType"] != "HASH":
        raise invalid("Invalid KeySchema: The first KeySchemaElement is not a HASH key type")
    if len(schema) > 1 and schema[1]["KeyType"] != "RANGE":
        raise invalid("Invalid KeySchema: The second KeySchemaElement is not a RANGE key type")
    names = [element["AttributeName"] for element in schema]
    if len(set(names)) < len(names):
        raise invalid(
            "Both the Hash Key and the Range Key element in the KeySchema have the same name"
        )
    parts = [KeyPart(name, types[name]) for name in names if name in types]
    if len(parts) < len(names):
        raise _parameter(
            "Some index key attributes are not defined in AttributeDefinitions. Keys:"
            f" [{', '.join(names)}], AttributeDefinitions: [{', '.join(types)}]"
        )
    return parts[0], parts[1] if len(parts) > 1 else None


def _read_types(definitions: Sequence[Body]) -> dict[str, Any]:
    types: dict[str, Any] = {}
    for definition in definitions:
        name = definition["AttributeName"]
        if name in types:
            raise _parameter(f"Duplicate AttributeName in AttributeDefinitions: {name}")
        types[name] = definition["AttributeType"]
    return types


def attribute_types(body: Body, table: Table) -> dict[str, Any]:
    """Return the types that an update of a table may use in the keys of indexes."""
    types = _read_types(body.get("AttributeDefinitions") or ())
    parts = [*table.key, *(part for index in table.by_name.values() for part in index_key(index))]
    for part in parts:
        if types.get(part.name, part.type) != part.type:
            raise _parameter(
                f"The type of a key attribute cannot change: {part.name}, from {part.type} to"
                f" {types[part.name]}"
            )
    return types


def _check_index_counts(body: Body) -> None:
    if len(body.get("GlobalSecondaryIndexes") or ()) > _MAX_GLOBAL:
        raise _parameter(f"GlobalSecondaryIndex count exceeds the per-table limit of {_MAX_GLOBAL}")
    if len(body.get("LocalSecondaryIndexes") or ()) > _MAX_LOCAL:
        raise _parameter(f"Number of LocalSecondaryIndexes exceeds per-table limit of {_MAX_LOCAL}")


def _check_definitions(body: Body, types: Mapping[str, Any]) -> None:
    """Require that keys use exactly the defined attributes."""
    used = {element["AttributeName"] for element in body["KeySchema"]}
    has_indexes = False
    for parameter in ("LocalSecondaryIndexes", "GlobalSecondaryIndexes"):
        for entry in _entries(body, parameter):
            has_indexes = True
            used |= {element["AttributeName"] for element in entry["KeySchema"]}
    unused = types.keys() - used
    if not unused:
        return
    if not has_indexes:
        raise _parameter(
            "Number of attributes in KeySchema does not exactly match number of attributes defined"
            " in AttributeDefinitions"
        )
    raise _parameter(
        f"Some AttributeDefinitions are not used. AttributeDefinitions: [{', '.join(types)}], keys"
        f" used: [{', '.join(sorted(used))}]"
    )


def _entries(body: Body, parameter: str) -> Sequence[Body]:
    entries = body.get(parameter)
    if entries is None:
        return ()
    if not entries:
        raise _parameter(f"List of {parameter} is empty")
    return entries  # type: ignore[no-any-return]  # the model requires a list


def _parameter(message: str) -> ServiceError:
    return invalid(f"One or more parameter values were invalid: {message}")
