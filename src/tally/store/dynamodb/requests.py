"""Operations as the requests that DynamoDB takes: dictionaries for the client's methods, and nothing else.

Every request asks for the consumed capacity, and every conditional write for the item that stood in
its way.
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
TableName: TypeAlias = Callable[[Table], str]

_CAPACITY: Request = {"ReturnConsumedCapacity": "TOTAL"}


def get_request(operation: Get, name: TableName) -> Request:
    """A GetItem."""
    return {**_get(operation, name), "ConsistentRead": operation.consistent, **_CAPACITY}


def put_request(operation: Put, name: TableName) -> Request:
    """A PutItem."""
    return {**_put(operation, name), "ReturnValues": operation.returns, **_CAPACITY}


def update_request(operation: Update, name: TableName) -> Request:
    """An UpdateItem."""
    return {**_update(operation, name), "ReturnValues": operation.returns, **_CAPACITY}


def delete_request(operation: Delete, name: TableName) -> Request:
    """A DeleteItem."""
    return {**_delete(operation, name), "ReturnValues": operation.returns, **_CAPACITY}


def query_request(operation: Query, name: TableName) -> Request:
    """A Query."""
    placeholders = Placeholders()
    request: Request = {
        "KeyConditionExpression": placeholders.condition(operation.where),
        "ScanIndexForward": operation.forward,
    }
    return {**request, **_page(operation, name, placeholders)}


def scan_request(operation: Scan, name: TableName) -> Request:
    """A Scan."""
    return _page(operation, name, Placeholders())


def batch_get_request(operation: BatchGet, name: TableName) -> Request:
    """A BatchGetItem of one table."""
    placeholders = Placeholders()
    wanted: Request = {
        "Keys": [item_to_wire(key) for key in operation.keys],
        "ConsistentRead": operation.consistent,
    }
    if operation.projection:
        wanted["ProjectionExpression"] = placeholders.projection(operation.projection)
    return {
        "RequestItems": {name(operation.table): {**wanted, **placeholders.fields()}},
        **_CAPACITY,
    }


def batch_write_request(operation: BatchWrite, name: TableName) -> Request:
    """A BatchWriteItem of one table."""
    writes: list[Request] = [
        {"PutRequest": {"Item": item_to_wire(item)}} for item in operation.puts
    ]
    writes += [{"DeleteRequest": {"Key": item_to_wire(key)}} for key in operation.deletes]
    return {"RequestItems": {name(operation.table): writes}, **_CAPACITY}


def transaction_request(operation: Transaction, name: TableName, token: str) -> Request:
    """A TransactWriteItems with a token, so that it can be sent twice and happens once."""
    writes = [_write(write, name) for write in operation.writes]
    return {"TransactItems": writes, "ClientRequestToken": token, **_CAPACITY}


def transaction_get_request(operation: TransactionGet, name: TableName) -> Request:
    """A TransactGetItems."""
    return {"TransactItems": [{"Get": _get(get, name)} for get in operation.gets], **_CAPACITY}


def _write(write: Write, name: TableName) -> Request:
    match write:
        case Put():
            return {"Put": _put(write, name)}
        case Update():
            return {"Update": _update(write, name)}
        case Delete():
            return {"Delete": _delete(write, name)}
        case Check():
            return {
                "ConditionCheck": {
                    "Key": item_to_wire(write.key),
                    **_conditional(write, name, Placeholders()),
                }
            }


def _get(operation: Get, name: TableName) -> Request:
    placeholders = Placeholders()
    request: Request = {"TableName": name(operation.table), "Key": item_to_wire(operation.key)}
    if operation.projection:
        request["ProjectionExpression"] = placeholders.projection(operation.projection)
    return {**request, **placeholders.fields()}


def _put(operation: Put, name: TableName) -> Request:
    return {"Item": item_to_wire(operation.item), **_conditional(operation, name, Placeholders())}


def _update(operation: Update, name: TableName) -> Request:
    placeholders = Placeholders()
    request: Request = {"Key": item_to_wire(operation.key)}
    if (
        operation.actions
    ):  # an update without a step is legal: it makes the item where there is none
        request["UpdateExpression"] = placeholders.update(operation.actions)
    return {**request, **_conditional(operation, name, placeholders)}


def _delete(operation: Delete, name: TableName) -> Request:
    return {"Key": item_to_wire(operation.key), **_conditional(operation, name, Placeholders())}


def _conditional(operation: Write, name: TableName, placeholders: Placeholders) -> Request:
    request: Request = {"TableName": name(operation.table)}
    condition: Condition | None = operation.condition
    if condition is not None:
        request["ConditionExpression"] = placeholders.condition(condition)
        request["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
    return {**request, **placeholders.fields()}


def _page(operation: Query | Scan, name: TableName, placeholders: Placeholders) -> Request:
    request: Request = {"TableName": name(operation.table), "ConsistentRead": operation.consistent}
    if operation.index is not None:
        request["IndexName"] = operation.index
    if operation.filter is not None:
        request["FilterExpression"] = placeholders.condition(operation.filter)
    if operation.projection:
        request["ProjectionExpression"] = placeholders.projection(operation.projection)
    if operation.limit is not None:
        request["Limit"] = operation.limit
    if operation.start is not None:
        request["ExclusiveStartKey"] = item_to_wire(operation.start)
    return {**request, **placeholders.fields(), **_CAPACITY}
