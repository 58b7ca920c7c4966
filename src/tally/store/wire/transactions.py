"""TransactGetItems and TransactWriteItems."""

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from tally.store.api import (
    Capacity,
    Check,
    Delete,
    Engine,
    Get,
    IndexUnits,
    Put,
    Transaction,
    TransactionGet,
    TransactionGetResult,
    TransactionResult,
    Update,
    Write,
    WriteResult,
)
from tally.store.encode import item_to_wire
from tally.store.errors import Reason, TransactionCancelled
from tally.store.schema import Table
from tally.store.wire.consumed_capacity import collection_metrics, describe_transaction_capacity
from tally.store.wire.items import check_targets, read_actions, read_condition
from tally.store.wire.keys import KeySchemaMismatch, read_checked_item, read_primary_key
from tally.store.wire.request_expressions import read_substitutions
from tally.store.wire.service_errors import MISMATCH, ServiceError, cancelled, invalid
from tally.store.wire.table_names import find_table

T = TypeVar("T")
Body = Mapping[str, Any]
_CONDITION: Final = ("ConditionExpression",)
_UPDATE: Final = ("UpdateExpression", "ConditionExpression")
_ACTIONS: Final = ("ConditionCheck", "Put", "Delete", "Update")
_REPEATED: Final = "Transaction request cannot include multiple operations on one item"


async def transact_get_items(engine: Engine, body: Body) -> dict[str, Any]:
    gets = await _read_each([_read_get(engine, entry["Get"]) for entry in body["TransactItems"]])
    check_distinct_targets((get.table, get.key) for get in gets)
    result = await engine.transact_get(TransactionGet(tuple(gets)))
    response: dict[str, Any] = {
        "Responses": [{} if item is None else {"Item": item_to_wire(item)} for item in result.items]
    }
    add_read_capacities(response, body, [get.table for get in gets], result)
    return response


async def transact_write_items(engine: Engine, body: Body) -> dict[str, Any]:
    requests = [_single_action(entry) for entry in body["TransactItems"]]
    writes = await _read_each([_read_write(engine, name, request) for name, request in requests])
    check_distinct_targets(
        (write.table, write.item if isinstance(write, Put) else write.key) for write in writes
    )
    token = body.get("ClientRequestToken")
    try:
        result = await engine.transact(Transaction(tuple(writes), token))
    except TransactionCancelled as error:
        with_items = [
            request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
            for _, request in requests
        ]
        raise cancelled(error, with_items) from None
    response: dict[str, Any] = {}
    add_write_capacities(response, body, [write.table for write in writes], result)
    if body.get("ReturnItemCollectionMetrics") == "SIZE":
        response["ItemCollectionMetrics"] = _metrics(writes)
    return response


async def _read_each(reads: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Read every part; keys that do not fit their tables cancel the transaction."""
    parts: list[T] = []
    reasons: list[Reason] = []
    for position, read in enumerate(reads):
        try:
            parts.append(await read)
            reasons.append(Reason("None"))
        except KeySchemaMismatch as error:
            reasons.append(Reason(MISMATCH, str(error)))
        except BaseException:
            for other in reads[position + 1 :]:
                other.close()
            raise
    if len(parts) < len(reasons):
        raise cancelled(TransactionCancelled(reasons), [False] * len(reasons))
    return parts


async def _read_get(engine: Engine, request: Body) -> Get:
    substitutions = read_substitutions(request, ("ProjectionExpression",))
    text = request.get("ProjectionExpression")
    projection = () if text is None else substitutions.projection(text)
    substitutions.check_all_used()
    table = await find_table(engine, request["TableName"])
    return Get(table, read_primary_key(table, request["Key"]), projection)


def _single_action(entry: Body) -> tuple[str, Body]:
    found = [(name, entry[name]) for name in _ACTIONS if entry.get(name) is not None]
    if len(found) != 1:
        raise invalid(
            "TransactItems can only contain one of Check, Put, Update or Delete"
            if found
            else "Invalid Request: TransactWriteRequest should contain Delete or Put or Update"
            " request"
        )
    return found[0]


async def _read_write(engine: Engine, name: str, request: Body) -> Write:
    parameters = _UPDATE if name == "Update" else _CONDITION
    substitutions = read_substitutions(request, parameters)
    actions = read_actions(request, substitutions)
    condition = read_condition(request, substitutions, parameters)
    table = await find_table(engine, request["TableName"])
    if name == "Put":
        return Put(table, read_checked_item(table, request["Item"]), condition, is_parsed=True)
    key = read_primary_key(table, request["Key"])
    if name == "Delete":
        return Delete(table, key, condition, is_parsed=True)
    if name == "Update":
        check_targets(table, actions)
        return Update(table, key, actions, condition, is_parsed=True)
    if condition is None:
        raise invalid("The ConditionExpression parameter is required for a ConditionCheck")
    return Check(table, key, condition, is_parsed=True)


def check_distinct_targets(contents: Iterable[tuple[Table, Body]]) -> None:
    """Reject a transaction that names an item twice; each content is a key or an item."""
    seen: set[tuple[Any, ...]] = set()
    for table, content in contents:
        identity = (table.name, *[content[name] for name in table.key_names])
        if identity in seen:
            raise _repeated()
        seen.add(identity)


def _repeated() -> ServiceError:
    return invalid(_REPEATED)


def add_read_capacities(
    response: dict[str, Any], body: Body, tables: list[Table], result: TransactionGetResult
) -> None:
    """Add the capacity of the reads of each table, if the request asks for it."""
    parts = [WriteResult(None, Capacity(read=units)) for units in result.parts]
    _add_capacities(response, body, tables, parts)


def add_write_capacities(
    response: dict[str, Any], body: Body, tables: list[Table], result: TransactionResult
) -> None:
    """Add the capacity of the writes of each table, if the request asks for it.

    A repeated token reads the items instead of writing them.
    """
    parts = result.parts or [
        WriteResult(None, Capacity(read=result.capacity.read / len(tables))) for _ in tables
    ]
    _add_capacities(response, body, tables, parts)


def _add_capacities(
    response: dict[str, Any], body: Body, tables: list[Table], parts: Sequence[WriteResult]
) -> None:
    level = body.get("ReturnConsumedCapacity")
    if level not in ("TOTAL", "INDEXES"):
        return
    totals: dict[str, tuple[Table, Capacity, IndexUnits]] = {}
    for table, part in zip(tables, parts, strict=True):
        _, capacity, units = totals.get(table.name, (table, Capacity(), ()))
        totals[table.name] = (table, capacity + part.capacity, (*units, *part.index_units))
    response["ConsumedCapacity"] = [
        describe_transaction_capacity(level, *total) for total in totals.values()
    ]


def _metrics(writes: list[Write]) -> dict[str, Any]:
    found: dict[str, list[Any]] = {}
    for write in writes:
        key = write.item if isinstance(write, Put) else write.key
        metrics = collection_metrics(write.table, key)
        if metrics is not None and metrics not in found.setdefault(write.table.name, []):
            found[write.table.name].append(metrics)
    return found
