"""BatchGetItem and BatchWriteItem: several tables in one request, not atomically."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tally.store.api import (
    MAX_BATCH_GET,
    MAX_BATCH_WRITE,
    BatchGet,
    BatchWrite,
    Engine,
)
from tally.store.encode import item_to_wire
from tally.store.schema import Table
from tally.store.wire.consumed_capacity import collection_metrics, describe_write_capacity
from tally.store.wire.keys import read_batch_item, read_primary_key
from tally.store.wire.legacy import legacy_projection
from tally.store.wire.request_expressions import read_substitutions, reject_mixed
from tally.store.wire.service_errors import ServiceError, invalid
from tally.store.wire.table_names import find_table

Body = Mapping[str, Any]
_PROJECTION: Final = ("ProjectionExpression",)
_DUPLICATES: Final = "Provided list of item keys contains duplicates"


async def batch_get_item(engine: Engine, body: Body) -> dict[str, Any]:
    requests = body["RequestItems"]
    if sum(len(request["Keys"]) for request in requests.values()) > MAX_BATCH_GET:
        raise invalid("Too many items requested for the BatchGetItem call")
    batches = [(name, await _read_gets(engine, name, requests[name])) for name in requests]
    response: dict[str, Any] = {"Responses": {}, "UnprocessedKeys": {}}
    consumed = []
    for name, batch in batches:
        result = await engine.batch_get(batch)
        response["Responses"][name] = [item_to_wire(item) for item in result.items]
        if result.unprocessed:
            keys = [item_to_wire(key) for key in result.unprocessed]
            response["UnprocessedKeys"][name] = {**requests[name], "Keys": keys}
        consumed.append((batch.table, result.capacity, ()))
    _add_capacities(response, body, consumed)
    return response


async def _read_gets(engine: Engine, name: str, request: Body) -> BatchGet:
    reject_mixed(request, ("AttributesToGet",), _PROJECTION)
    substitutions = read_substitutions(request, _PROJECTION)
    projection = legacy_projection(request)
    if (text := request.get("ProjectionExpression")) is not None:
        projection = substitutions.projection(text)
    substitutions.check_all_used()
    table = await find_table(engine, name)
    keys = tuple(read_primary_key(table, key) for key in request["Keys"])
    check_distinct_keys((table, key) for key in keys)
    return BatchGet(table, keys, projection, bool(request.get("ConsistentRead")))


async def batch_write_item(engine: Engine, body: Body) -> dict[str, Any]:
    requests = body["RequestItems"]
    if sum(map(len, requests.values())) > MAX_BATCH_WRITE:
        raise invalid("Too many items requested for the BatchWriteItem call")
    batches = [await _read_writes(engine, name, requests[name]) for name in requests]
    response: dict[str, Any] = {"UnprocessedItems": {}}
    consumed = []
    for batch in batches:
        result = await engine.batch_write(batch)
        consumed.append((batch.table, result.capacity, result.index_units))
    _add_capacities(response, body, consumed)
    if body.get("ReturnItemCollectionMetrics") == "SIZE":
        response["ItemCollectionMetrics"] = _metrics(batches)
    return response


async def _read_writes(engine: Engine, name: str, requests: list[Body]) -> BatchWrite:
    for request in requests:
        if len([part for part in request.values() if part is not None]) != 1:
            raise _malformed()
    table = await find_table(engine, name)
    puts, deletes = [], []
    for request in requests:
        if request.get("PutRequest") is not None:
            puts.append(read_batch_item(table, request["PutRequest"]["Item"]))
        elif request.get("DeleteRequest") is not None:
            deletes.append(read_primary_key(table, request["DeleteRequest"]["Key"]))
        else:
            raise _malformed()
    check_distinct_keys((table, item) for item in (*puts, *deletes))
    return BatchWrite(table, tuple(puts), tuple(deletes))


def _malformed() -> ServiceError:
    return invalid(
        "Supplied AttributeValue has more than one datatypes set, must contain exactly one of the"
        " supported datatypes"
    )


def check_distinct_keys(contents: Iterable[tuple[Table, Body]]) -> None:
    """Reject a batch that names an item twice; each content is a key or an item."""
    keys = [(table.name, *[item[name] for name in table.key_names]) for table, item in contents]
    if len(set(keys)) < len(keys):
        raise invalid(_DUPLICATES)


def _add_capacities(response: dict[str, Any], body: Body, consumed: list[Any]) -> None:
    level = body.get("ReturnConsumedCapacity")
    if level in ("TOTAL", "INDEXES"):
        response["ConsumedCapacity"] = [
            describe_write_capacity(level, *consumption) for consumption in consumed
        ]


def _metrics(batches: list[BatchWrite]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for batch in batches:
        partitions: dict[Any, Any] = {}
        for item in (*batch.puts, *batch.deletes):
            metrics = collection_metrics(batch.table, item)
            if metrics is not None:
                partitions[item[batch.table.partition.name]] = metrics
        if partitions:
            found[batch.table.name] = [*partitions.values()]
    return found
