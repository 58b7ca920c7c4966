"""Describes tables as the control plane's responses do."""

from collections.abc import Collection, Sequence
from typing import Any

from tally.store.schema import Index, Table, index_key
from tally.store.wire.table_metadata import TableMetadata, table_arn
from tally.store.wire.table_options import INDEX_OPTIONS, describe_options


def table_description(
    table: Table,
    metadata: TableMetadata,
    *,
    status: str = "ACTIVE",
    building: Collection[str] = (),
    deleted: Sequence[Index] = (),
    counts: tuple[int, int] = (0, 0),
) -> dict[str, Any]:
    """Return a TableDescription; `counts` are the number of items and their bytes.

    `deleted` are the global indexes that this request removes.
    """
    units = (metadata.read_units, metadata.write_units)
    described: dict[str, Any] = {
        "TableName": table.name,
        "TableArn": table_arn(table.name),
        "TableId": metadata.id,
        "TableStatus": status,
        "CreationDateTime": metadata.created_at,
        "AttributeDefinitions": _definitions(table),
        "KeySchema": key_schema(table),
        "ItemCount": counts[0],
        "TableSizeBytes": counts[1],
        "ProvisionedThroughput": _throughput(*units),
        **describe_options(metadata.settings, units, is_new=status == "CREATING"),
    }
    local = [index for index in table.by_name.values() if index.local]
    global_ = [index for index in table.by_name.values() if not index.local]
    if local:
        described["LocalSecondaryIndexes"] = [_index(table, index) for index in local]
    if global_ or deleted:
        described["GlobalSecondaryIndexes"] = [
            *(_global_index(table, index, metadata, status, building) for index in global_),
            *({**_index(table, index), "IndexStatus": "DELETING"} for index in deleted),
        ]
    return described | _stream(table, metadata)


def _stream(table: Table, metadata: TableMetadata) -> dict[str, Any]:
    """Describe the stream of a table; the name of the last one remains when it is disabled."""
    described: dict[str, Any] = {}
    if table.stream is not None:
        described["StreamSpecification"] = {"StreamEnabled": True, "StreamViewType": table.stream}
    if metadata.stream_label is not None:
        described["LatestStreamLabel"] = metadata.stream_label
        described["LatestStreamArn"] = f"{table_arn(table.name)}/stream/{metadata.stream_label}"
    return described


def _definitions(table: Table) -> list[dict[str, str]]:
    parts = [*table.key, *(part for index in table.by_name.values() for part in index_key(index))]
    types = {part.name: part.type for part in parts}
    return [{"AttributeName": name, "AttributeType": kind} for name, kind in types.items()]


def key_schema(keyed: Table | Index) -> list[dict[str, str]]:
    """Describe the key of a table or an index."""
    schema = [{"AttributeName": keyed.partition.name, "KeyType": "HASH"}]
    if keyed.sort is not None:
        schema.append({"AttributeName": keyed.sort.name, "KeyType": "RANGE"})
    return schema


def _index(table: Table, index: Index) -> dict[str, Any]:
    projection: dict[str, Any] = {"ProjectionType": index.projection.kind}
    if index.projection.names:
        projection["NonKeyAttributes"] = [*index.projection.names]
    return {
        "IndexName": index.name,
        "IndexArn": f"{table_arn(table.name)}/index/{index.name}",
        "KeySchema": key_schema(index),
        "Projection": projection,
        "ItemCount": 0,
        "IndexSizeBytes": 0,
    }


def _global_index(
    table: Table, index: Index, metadata: TableMetadata, status: str, building: Collection[str]
) -> dict[str, Any]:
    described = _index(table, index)
    is_building = index.name in building
    described["IndexStatus"] = "CREATING" if is_building or status == "CREATING" else "ACTIVE"
    if is_building:
        described["Backfilling"] = True
    units = metadata.index_units.get(index.name, (0, 0))
    options = metadata.settings.get(INDEX_OPTIONS, {}).get(index.name, {})
    described["ProvisionedThroughput"] = _throughput(*units)
    is_new = described["IndexStatus"] == "CREATING"
    return described | describe_options(options, units, is_new=is_new)


def _throughput(read_units: int, write_units: int) -> dict[str, int]:
    return {
        "NumberOfDecreasesToday": 0,
        "ReadCapacityUnits": read_units,
        "WriteCapacityUnits": write_units,
    }
