"""Builds DynamoDB's requests from operations.

Every request returns the consumed capacity; a failed conditional write returns the item.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from tally.store.api import (
    BatchGet,
    BatchWrite,
    Check,
    Delete,
    Get,
    Put,
    Query,
    Scan,
    Transaction,
    TransactionGet,
    Update,
    Write,
)
from tally.store.encode import Placeholders, item_to_wire
from tally.store.expressions import Condition
from tally.store.schema import Table

Request: TypeAlias = dict[str, Any]
TableNamer: TypeAlias = Callable[[Table], str]

_CAPACITY: Request = {"ReturnConsumedCapacity": "TOTAL"}


def get_request(operation: Get, table_name: TableNamer) -> Request:
    """Build a GetItem request."""
    return {**_get(operation, table_name), "ConsistentRead": operation.consistent, **_CAPACITY}


def put_request(operation: Put, table_name: TableNamer) -> Request:
    """Build a PutItem request."""
    return {**_put(operation, table_name), "ReturnValues": operation.returns, **_CAPACITY}


def update_request(operation: Update, table_name: TableNamer) -> Request:
    """Build an UpdateItem request."""
    return {**_update(operation, table_name), "ReturnValues": operation.returns, **_CAPACITY}


def delete_request(operation: Delete, table_name: TableNamer) -> Request:
    """Build a DeleteItem request."""
    return {**_delete(operation, table_name), "ReturnValues": operation.returns, **_CAPACITY}


def query_request(operation: Query, table_name: TableNamer) -> Request:
    """Build a Query request."""
    placeholders = Placeholders()
    request: Request = {
        "KeyConditionExpression": placeholders.condition(operation.where),
        "ScanIndexForward": operation.forward,
    }
    return {**request, **_page(operation, table_name, placeholders)}


def scan_request(operation: Scan, table_name: TableNamer) -> Request:
    """Build a Scan request."""
    request = _page(operation, table_name, Placeholders())
    if operation.segment is not None:
        request["Segment"] = operation.segment.number
        request["TotalSegments"] = operation.segment.total
    return request


def batch_get_request(operation: BatchGet, table_name: TableNamer) -> Request:
    """Build a BatchGetItem request for one table."""
    placeholders = Placeholders()
    table_request: Request = {
        "Keys": [item_to_wire(key) for key in operation.keys],
        "ConsistentRead": operation.consistent,
    }
    if operation.projection:
        table_request["ProjectionExpression"] = placeholders.projection(operation.projection)
    return {
        "RequestItems": {table_name(operation.table): {**table_request, **placeholders.fields()}},
        **_CAPACITY,
    }


def batch_write_request(operation: BatchWrite, table_name: TableNamer) -> Request:
    """Build a BatchWriteItem request for one table."""
    writes: list[Request] = [
        {"PutRequest": {"Item": item_to_wire(item)}} for item in operation.puts
    ]
    writes += [{"DeleteRequest": {"Key": item_to_wire(key)}} for key in operation.deletes]
    return {"RequestItems": {table_name(operation.table): writes}, **_CAPACITY}


def transaction_request(operation: Transaction, table_name: TableNamer, token: str) -> Request:
    """Build a TransactWriteItems request; the token makes it idempotent."""
    writes = [_write(write, table_name) for write in operation.writes]
    return {"TransactItems": writes, "ClientRequestToken": token, **_CAPACITY}


def transaction_get_request(operation: TransactionGet, table_name: TableNamer) -> Request:
    """Build a TransactGetItems request."""
    return {
        "TransactItems": [{"Get": _get(get, table_name)} for get in operation.gets],
        **_CAPACITY,
    }


def _write(write: Write, table_name: TableNamer) -> Request:
    match write:
        case Put():
            return {"Put": _put(write, table_name)}
        case Update():
            return {"Update": _update(write, table_name)}
        case Delete():
            return {"Delete": _delete(write, table_name)}
        case Check():
            return {
                "ConditionCheck": {
                    "Key": item_to_wire(write.key),
                    **_conditional(write, table_name, Placeholders()),
                }
            }


def _get(operation: Get, table_name: TableNamer) -> Request:
    placeholders = Placeholders()
    request: Request = {
        "TableName": table_name(operation.table),
        "Key": item_to_wire(operation.key),
    }
    if operation.projection:
        request["ProjectionExpression"] = placeholders.projection(operation.projection)
    return {**request, **placeholders.fields()}


def _put(operation: Put, table_name: TableNamer) -> Request:
    return {
        "Item": item_to_wire(operation.item),
        **_conditional(operation, table_name, Placeholders()),
    }


def _update(operation: Update, table_name: TableNamer) -> Request:
    placeholders = Placeholders()
    request: Request = {"Key": item_to_wire(operation.key)}
    if operation.actions:  # an update without actions is valid: it creates the item
        request["UpdateExpression"] = placeholders.update(operation.actions)
    return {**request, **_conditional(operation, table_name, placeholders)}


def _delete(operation: Delete, table_name: TableNamer) -> Request:
    return {
        "Key": item_to_wire(operation.key),
        **_conditional(operation, table_name, Placeholders()),
    }


def _conditional(operation: Write, table_name: TableNamer, placeholders: Placeholders) -> Request:
    request: Request = {"TableName": table_name(operation.table)}
    condition: Condition | None = operation.condition
    if condition is not None:
        request["ConditionExpression"] = placeholders.condition(condition)
        request["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
    return {**request, **placeholders.fields()}


def _page(operation: Query | Scan, table_name: TableNamer, placeholders: Placeholders) -> Request:
    request: Request = {
        "TableName": table_name(operation.table),
        "ConsistentRead": operation.consistent,
    }
    if operation.index is not None:
        request["IndexName"] = operation.index
    if operation.filter is not None:
        request["FilterExpression"] = placeholders.condition(operation.filter)
    if operation.projection:
        request["ProjectionExpression"] = placeholders.projection(operation.projection)
    if operation.count_only:
        request["Select"] = "COUNT"
    elif operation.whole_items:
        request["Select"] = "ALL_ATTRIBUTES"
    if operation.limit is not None:
        request["Limit"] = operation.limit
    if operation.start is not None:
        request["ExclusiveStartKey"] = item_to_wire(operation.start)
    return {**request, **placeholders.fields(), **_CAPACITY}
