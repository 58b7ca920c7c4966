"""GetItem, PutItem, UpdateItem and DeleteItem."""

from collections.abc import Awaitable, Mapping
from typing import Any, Final, TypeVar, cast

from tally.store.api import Delete, Engine, Get, Put, Returns, Update, WriteResult
from tally.store.errors import ConditionFailed
from tally.store.expressions import Action, Condition
from tally.store.parse import Substitutions
from tally.store.schema import Table
from tally.store.wire.consumed_capacity import (
    add_capacity,
    add_collection_metrics,
    add_write_capacity,
)
from tally.store.wire.item_encoding import raw_item
from tally.store.wire.keys import check_index_keys, read_checked_item, read_primary_key
from tally.store.wire.legacy import (
    legacy_actions,
    legacy_condition,
    legacy_projection,
)
from tally.store.wire.request_expressions import read_substitutions, reject_mixed
from tally.store.wire.service_errors import invalid, translate
from tally.store.wire.table_names import find_table

T = TypeVar("T")
Body = Mapping[str, Any]
_CONDITION: Final = ("ConditionExpression",)
_UPDATE: Final = ("UpdateExpression", "ConditionExpression")


async def get_item(engine: Engine, body: Body) -> dict[str, Any]:
    modern = ("ProjectionExpression",)
    reject_mixed(body, ("AttributesToGet",), modern)
    substitutions = read_substitutions(body, modern)
    projection = legacy_projection(body)
    if (text := body.get("ProjectionExpression")) is not None:
        projection = substitutions.projection(text)
    substitutions.check_all_used()
    table = await find_table(engine, body["TableName"])
    key = read_primary_key(table, body["Key"])
    operation = Get(table, key, projection, bool(body.get("ConsistentRead")))
    result = await engine.get(operation)
    response: dict[str, Any] = {}
    if result.item is not None:
        response["Item"] = raw_item(result.item)
    add_capacity(response, body, table, result.capacity)
    return response


async def put_item(engine: Engine, body: Body) -> dict[str, Any]:
    returns = body.get("ReturnValues", "NONE")
    if returns not in ("NONE", "ALL_OLD"):
        raise invalid("1 validation error detected: ReturnValues can only be ALL_OLD or NONE")
    condition = read_condition(body, read_substitutions(body, _CONDITION), _CONDITION)
    table = await find_table(engine, body["TableName"])
    item = read_checked_item(table, body["Item"])
    operation = Put(table, item, condition, returns, is_parsed=True)
    result = await write(body, engine.put(operation))
    return _written(body, table, item, result)


async def update_item(engine: Engine, body: Body) -> dict[str, Any]:
    reject_mixed(body, ("AttributeUpdates", "Expected", "ConditionalOperator"), _UPDATE)
    substitutions = read_substitutions(body, _UPDATE)
    actions = read_actions(body, substitutions)
    condition = read_condition(body, substitutions, _UPDATE)
    table = await find_table(engine, body["TableName"])
    key = read_primary_key(table, body["Key"])
    actions = (*actions, *legacy_actions(body))
    check_targets(table, actions)
    returns = cast("Returns", body.get("ReturnValues", "NONE"))
    result = await write(
        body, engine.update(Update(table, key, actions, condition, returns, is_parsed=True))
    )
    return _written(body, table, key, result)


async def delete_item(engine: Engine, body: Body) -> dict[str, Any]:
    returns = body.get("ReturnValues", "NONE")
    if returns not in ("NONE", "ALL_OLD"):
        raise invalid(
            f"1 validation error detected: Value '{returns}' at 'returnValues' failed to satisfy"
            " constraint: Member must satisfy enum value set: [ALL_OLD, NONE]"
        )
    condition = read_condition(body, read_substitutions(body, _CONDITION), _CONDITION)
    table = await find_table(engine, body["TableName"])
    key = read_primary_key(table, body["Key"])
    result = await write(
        body, engine.delete(Delete(table, key, condition, returns, is_parsed=True))
    )
    return _written(body, table, key, result)


def read_condition(
    body: Body, substitutions: Substitutions, modern: tuple[str, ...]
) -> Condition | None:
    """Read the condition of a write, and check that all names and values were used."""
    reject_mixed(body, ("Expected", "ConditionalOperator"), modern)
    text = body.get("ConditionExpression")
    condition = None if text is None else substitutions.condition("ConditionExpression", text)
    substitutions.check_all_used()
    return legacy_condition(body) if condition is None else condition


def read_actions(body: Body, substitutions: Substitutions) -> tuple[Action, ...]:
    """Read the actions of an update expression."""
    text = body.get("UpdateExpression")
    return () if text is None else substitutions.update(text)


def check_targets(table: Table, actions: tuple[Action, ...]) -> None:
    """Reject an update of the key, and values that an index cannot have as its key."""
    for action in actions:
        name = str(action.path.parts[0])
        if name in table.key_names:
            raise invalid(
                f"One or more parameter values were invalid: Cannot update attribute {name}. This"
                " attribute is part of the key"
            )
    literals = {
        str(action.path.parts[0]): value
        for action in actions
        if len(action.path.parts) == 1
        and (value := getattr(getattr(action, "value", None), "value", None)) is not None
    }
    check_index_keys(table, literals, is_update=True)


async def write(body: Body, operation: Awaitable[T]) -> T:
    """Run a write; a failed condition returns the item, if the request asks for it."""
    try:
        return await operation
    except ConditionFailed as error:
        with_item = body.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
        raise translate(error, with_item=with_item) from None


def _written(body: Body, table: Table, key: Body, result: WriteResult) -> dict[str, Any]:
    response: dict[str, Any] = {}
    if result.item is not None:
        response["Attributes"] = raw_item(result.item)
    add_write_capacity(response, body, table, result)
    add_collection_metrics(response, body, table, key)
    return response
