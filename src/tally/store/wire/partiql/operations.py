"""ExecuteStatement, BatchExecuteStatement and ExecuteTransaction."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from tally.store.api import (
    Capacity,
    Delete,
    Engine,
    Get,
    IndexUnits,
    Put,
    Transaction,
    TransactionGet,
    Update,
    Write,
    WriteResult,
)
from tally.store.encode import item_to_wire
from tally.store.errors import ConditionFailed, Reason, StoreError, TransactionCancelled
from tally.store.evaluate import matches
from tally.store.schema import Table
from tally.store.values import Item
from tally.store.wire.batches import check_distinct_keys
from tally.store.wire.consumed_capacity import (
    add_capacity,
    add_write_capacity,
    describe_write_capacity,
)
from tally.store.wire.partiql.grammar import parse_statement
from tally.store.wire.partiql.selects import pick_columns, select_page
from tally.store.wire.partiql.statements import (
    ExistsStatement,
    SelectStatement,
    Statement,
    WriteStatement,
)
from tally.store.wire.partiql.tokens import not_well_formed
from tally.store.wire.partiql.writes import plan_get, plan_write
from tally.store.wire.service_errors import (
    DUPLICATE_ITEM,
    ServiceError,
    cancelled,
    dynamodb_error,
    invalid,
    translate,
)
from tally.store.wire.transactions import (
    add_read_capacities,
    add_write_capacities,
    check_distinct_targets,
)

Body = Mapping[str, Any]
Consumption: TypeAlias = tuple[Table, Capacity, IndexUnits]
_DUPLICATE: Final = "Duplicate primary key exists in table"
_NO_KEY_IN_BATCH: Final = (
    "Select statements within BatchExecuteStatement must specify the primary key in the where"
    " clause."
)
# The codes of errors in batches, by the type of the exception.
_CODES: Final = {
    "ConditionalCheckFailedException": "ConditionalCheckFailed",
    "DuplicateItemException": DUPLICATE_ITEM,
    "InternalServerError": "InternalServerError",
    "ProvisionedThroughputExceededException": "ProvisionedThroughputExceeded",
    "ResourceNotFoundException": "ResourceNotFound",
    "ValidationException": "ValidationError",
}


async def execute_statement(engine: Engine, body: Body) -> dict[str, Any]:
    statement = _parse(body)
    if isinstance(statement, ExistsStatement):
        raise not_well_formed("Expected data manipulation")
    if not isinstance(statement, SelectStatement):
        write = await plan_write(engine, statement)
        result = await _write(engine, write, body)
        response: dict[str, Any] = {}
        if getattr(write, "returns", "NONE") != "NONE":
            response["Items"] = [] if result.item is None else [item_to_wire(result.item)]
        add_write_capacity(response, body, write.table, result)
        return response
    page = await select_page(engine, statement, body)
    response = {"Items": [item_to_wire(item) for item in page.items]}
    if page.next_token is not None:
        response["NextToken"] = page.next_token
        if page.next_key is not None:
            response["LastEvaluatedKey"] = item_to_wire(page.next_key)
    add_capacity(response, body, page.table, page.capacity, page.index)
    return response


def _parse(request: Body) -> Statement:
    if request.get("Parameters") == []:
        raise invalid(
            "1 validation error detected: Value '[]' at 'parameters' failed to satisfy constraint:"
            " Member must have length greater than or equal to 1"
        )
    return parse_statement(request["Statement"], request.get("Parameters") or ())


async def _write(engine: Engine, write: Write, request: Body) -> WriteResult:
    try:
        if isinstance(write, Put):
            return await engine.put(write)
        if isinstance(write, Update):
            return await engine.update(write)
        if isinstance(write, Delete):
            return await engine.delete(write)
    except ConditionFailed as error:
        if isinstance(write, Put):
            raise dynamodb_error("DuplicateItemException", _DUPLICATE) from None
        with_item = request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
        raise translate(error, with_item=with_item) from None
    raise not_well_formed("Expected data manipulation")


async def batch_execute_statement(engine: Engine, body: Body) -> dict[str, Any]:
    """Run up to 25 statements, each with its own result."""
    requests = body["Statements"]
    parsed = [_try_parse(request) for request in requests]
    statements = [found for found in parsed if not isinstance(found, ServiceError)]
    if len({isinstance(found, SelectStatement) for found in statements}) > 1:
        raise invalid("Read and write requests together in the same batch is not supported.")
    planned = [await _plan_in_batch(engine, *pair) for pair in zip(parsed, requests, strict=True)]
    operations = [found for found, _ in planned if not isinstance(found, ServiceError)]
    check_distinct_keys((part.table, _target(part)) for part in operations)
    capacities: list[Consumption] = []
    responses = []
    for statement, request, (operation, condition) in zip(parsed, requests, planned, strict=True):
        entry: dict[str, Any] = {}
        if isinstance(operation, ServiceError):
            entry["Error"] = _batch_error(operation)
            if isinstance(statement, ServiceError) or "primary key in the" in str(operation):
                responses.append(entry)
                continue
        else:
            run = _run_get if isinstance(operation, Get) else _run_write
            entry |= await run(engine, statement, request, (operation, condition), capacities)
        responses.append({**entry, "TableName": getattr(statement, "table", "")})
    response: dict[str, Any] = {"Responses": responses}
    if body.get("ReturnConsumedCapacity") in ("TOTAL", "INDEXES"):
        response["ConsumedCapacity"] = _sum_capacities(body["ReturnConsumedCapacity"], capacities)
    return response


def _try_parse(request: Body) -> Statement | ServiceError:
    try:
        statement = _parse(request)
    except ServiceError as error:
        return error
    except StoreError as error:
        return translate(error)
    if isinstance(statement, ExistsStatement):
        return not_well_formed("Expected data manipulation")
    return statement


async def _plan_in_batch(
    engine: Engine, statement: Statement | ServiceError, request: Body
) -> tuple[Any, Any]:
    """Return the operation of a statement and the condition of a read, or an error."""
    if isinstance(statement, ServiceError):
        return statement, None
    try:
        if not isinstance(statement, SelectStatement):
            return await plan_write(engine, statement), None
        return await plan_get(engine, statement, consistent=bool(request.get("ConsistentRead")))
    except ServiceError as error:
        if isinstance(statement, SelectStatement) and "Where clause" in str(error):
            return invalid(_NO_KEY_IN_BATCH), None
        return error, None
    except StoreError as error:
        return translate(error), None


async def _run_get(
    engine: Engine,
    statement: Any,
    _request: Body,
    planned: tuple[Any, Any],
    capacities: list[Consumption],
) -> dict[str, Any]:
    operation, condition = planned
    try:
        found = await engine.get(operation)
    except StoreError as error:
        return {"Error": _batch_error(translate(error))}
    capacities.append((operation.table, found.capacity, ()))
    if found.item is None or (condition is not None and not matches(condition, found.item)):
        return {}
    return {"Item": item_to_wire(pick_columns(statement.columns, found.item))}


async def _run_write(
    engine: Engine,
    _statement: Any,
    request: Body,
    planned: tuple[Any, Any],
    capacities: list[Consumption],
) -> dict[str, Any]:
    operation, _ = planned
    try:
        written = await _write(engine, operation, request)
    except ServiceError as error:
        return {"Error": _batch_error(error)}
    except StoreError as error:
        return {"Error": _batch_error(translate(error))}
    capacities.append((operation.table, written.capacity, written.index_units))
    return {} if written.item is None else {"Item": item_to_wire(written.item)}


def _batch_error(error: ServiceError) -> dict[str, Any]:
    kind = error.body["__type"].rpartition("#")[2]
    described = {"Code": _CODES.get(kind, "InternalServerError"), "Message": str(error)}
    if "Item" in error.body:
        described["Item"] = error.body["Item"]
    return described


def _sum_capacities(level: str, used: Iterable[Consumption]) -> list[dict[str, Any]]:
    totals: dict[str, Consumption] = {}
    for table, capacity, units in used:
        _, before, others = totals.get(table.name, (table, Capacity(), ()))
        totals[table.name] = (table, before + capacity, (*others, *units))
    return [describe_write_capacity(level, *total) for total in totals.values()]


async def execute_transaction(engine: Engine, body: Body) -> dict[str, Any]:
    """Run up to 100 reads, or up to 100 writes, atomically."""
    requests = body["TransactStatements"]
    statements = [_parse(request) for request in requests]
    reads = [found for found in statements if isinstance(found, SelectStatement)]
    if reads and len(reads) < len(statements):
        raise invalid(
            "ExecuteTransaction API does not support both read and write operations in the same"
            " request."
        )
    for position, statement in enumerate(statements):
        if getattr(statement, "returns", "NONE") != "NONE":
            raise invalid(
                f"Validation failed in TransactStatements[{position}]: RETURNING clause is not"
                " supported in ExecuteTransaction."
            )
    if reads:
        return await _read_all(engine, body, reads)
    writes = [found for found in statements if not isinstance(found, SelectStatement)]
    return await _write_all(engine, body, writes, requests)


async def _read_all(
    engine: Engine, body: Body, statements: Sequence[SelectStatement]
) -> dict[str, Any]:
    planned = [await plan_get(engine, statement) for statement in statements]
    check_distinct_targets((get.table, get.key) for get, _ in planned)
    result = await engine.transact_get(TransactionGet(tuple(get for get, _ in planned)))
    responses = []
    for statement, (_, condition), item in zip(statements, planned, result.items, strict=True):
        entry: dict[str, Any] = {}
        if item is not None and (condition is None or matches(condition, item)):
            entry["Item"] = item_to_wire(pick_columns(statement.columns, item))
        responses.append(entry)
    response: dict[str, Any] = {"Responses": responses}
    add_read_capacities(response, body, [get.table for get, _ in planned], result)
    return response


async def _write_all(
    engine: Engine, body: Body, statements: Sequence[WriteStatement], requests: Sequence[Body]
) -> dict[str, Any]:
    writes = tuple([await plan_write(engine, statement) for statement in statements])
    check_distinct_targets((write.table, _target(write)) for write in writes)
    try:
        result = await engine.transact(Transaction(writes, body.get("ClientRequestToken")))
    except TransactionCancelled as error:
        reasons = [
            replace_duplicate(write, reason)
            for write, reason in zip(writes, error.reasons, strict=True)
        ]
        with_items = [
            request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD" for request in requests
        ]
        raise cancelled(TransactionCancelled(reasons), with_items) from None
    response: dict[str, Any] = {"Responses": [{} for _ in writes]}
    add_write_capacities(response, body, [write.table for write in writes], result)
    return response


def replace_duplicate(write: Write, reason: Reason) -> Reason:
    """Return the reason of a failed INSERT, whose condition is that the item does not exist."""
    if isinstance(write, Put) and reason.condition_failed:
        return Reason(DUPLICATE_ITEM, _DUPLICATE)
    return reason


def _target(operation: Any) -> Item:
    target: Item = operation.item if isinstance(operation, Put) else dict(operation.key)
    return target
