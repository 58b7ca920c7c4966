"""Query and Scan."""

from collections.abc import Mapping
from typing import Any, Final

from tally.store.api import Engine, Page, Query, Scan, ScanSegment
from tally.store.errors import InvalidPageKey, UnknownIndex
from tally.store.expressions import Condition, Path
from tally.store.parse import Substitutions
from tally.store.schema import Index, Table, index_key, projected_names
from tally.store.validate_expressions import attribute_names
from tally.store.values import Item, type_of
from tally.store.wire.consumed_capacity import add_capacity
from tally.store.wire.item_encoding import raw_item, raw_items
from tally.store.wire.key_conditions import check_key_schema
from tally.store.wire.legacy import legacy_filter, legacy_projection
from tally.store.wire.request_expressions import read_substitutions, reject_mixed
from tally.store.wire.service_errors import ServiceError, invalid
from tally.store.wire.table_names import find_table
from tally.store.wire.values import read_item

Body = Mapping[str, Any]
_QUERY: Final = ("FilterExpression", "KeyConditionExpression", "ProjectionExpression")
_SCAN: Final = ("FilterExpression", "ProjectionExpression")
_LEGACY: Final = ("AttributesToGet", "ConditionalOperator")


async def query(engine: Engine, body: Body) -> dict[str, Any]:
    reject_mixed(body, ("KeyConditions", "QueryFilter", *_LEGACY), _QUERY)
    _check_select(body)
    has_values = body.get("ExpressionAttributeValues") is not None
    if not has_values and not (body.get("KeyConditionExpression") or body.get("KeyConditions")):
        await find_table(engine, body["TableName"])  # a missing table is reported first
        raise _missing_key_condition()
    substitutions = read_substitutions(body, _QUERY)
    found = _read_filter(body, substitutions, "QueryFilter")
    where = _read_key_condition(body, substitutions)
    projection = _read_projection(body, substitutions)
    substitutions.check_all_used()
    table = await find_table(engine, body["TableName"])
    index = _find_index(table, body)
    source = index or table
    check_key_schema(where, source.partition, source.sort)
    _check_filter(found, source, body)
    operation = Query(
        table,
        where,
        index=None if index is None else index.name,
        filter=found,
        projection=_projected(table, index, projection),
        forward=body.get("ScanIndexForward", True),
        limit=body.get("Limit"),
        start=_read_start(table, index, body),
        consistent=bool(body.get("ConsistentRead")),
        count_only=body.get("Select") == "COUNT",
        whole_items=_selects_whole_items(body, index),
        is_parsed=True,
    )
    _check_index_projection(table, index, operation)
    try:
        page = await engine.query(operation)
    except InvalidPageKey:
        raise invalid(
            "The provided starting key is outside query boundaries based on provided conditions"
        ) from None
    return await _respond(body, table, index, page)


async def scan(engine: Engine, body: Body) -> dict[str, Any]:
    reject_mixed(body, ("ScanFilter", *_LEGACY), _SCAN)
    _check_select(body, is_scan=True)
    segment = _read_segment(body)
    substitutions = read_substitutions(body, _SCAN)
    found = _read_filter(body, substitutions, "ScanFilter")
    projection = _read_projection(body, substitutions)
    substitutions.check_all_used()
    table = await find_table(engine, body["TableName"])
    index = _find_index(table, body)
    operation = Scan(
        table,
        index=None if index is None else index.name,
        filter=found,
        projection=_projected(table, index, projection),
        limit=body.get("Limit"),
        start=_read_start(table, index, body),
        consistent=bool(body.get("ConsistentRead")),
        count_only=body.get("Select") == "COUNT",
        segment=segment,
        whole_items=_selects_whole_items(body, index),
        is_parsed=True,
    )
    _check_index_projection(table, index, operation)
    try:
        page = await engine.scan(operation)
    except InvalidPageKey:
        raise invalid("The provided starting key is invalid") from None
    return await _respond(body, table, index, page)


async def _respond(body: Body, table: Table, index: Index | None, page: Page) -> dict[str, Any]:
    response: dict[str, Any] = {"Count": page.count, "ScannedCount": page.scanned}
    if body.get("Select") != "COUNT":
        response["Items"] = await raw_items(page.items)
    if page.next is not None:
        response["LastEvaluatedKey"] = raw_item(page.next)
    add_capacity(response, body, table, page.capacity, None if index is None else index.name)
    return response


def _selects_whole_items(body: Body, index: Index | None) -> bool:
    return index is not None and index.local and body.get("Select") == "ALL_ATTRIBUTES"


def _read_key_condition(body: Body, substitutions: Substitutions) -> Condition:
    text = body.get("KeyConditionExpression")
    if text is not None:
        return substitutions.key_condition(text)
    conditions = {"KeyConditions": body.get("KeyConditions")}
    where = legacy_filter(conditions, "KeyConditions")
    if where is None:
        raise _missing_key_condition()
    return where


def _missing_key_condition() -> ServiceError:
    return invalid(
        "Either the KeyConditions or KeyConditionExpression parameter must be specified in the"
        " request."
    )


def _read_filter(body: Body, substitutions: Substitutions, legacy: str) -> Condition | None:
    text = body.get("FilterExpression")
    if text is not None:
        return substitutions.condition("FilterExpression", text)
    if body.get("ConditionalOperator") is not None and not body.get(legacy):
        raise invalid("ConditionalOperator cannot be used without Filter or Expected")
    return legacy_filter(body, legacy)


def _read_projection(body: Body, substitutions: Substitutions) -> tuple[Path, ...]:
    text = body.get("ProjectionExpression")
    return legacy_projection(body) if text is None else substitutions.projection(text)


def _check_select(body: Body, *, is_scan: bool = False) -> None:
    select = body.get("Select")
    if select is None:
        return
    parameter = next(
        (name for name in ("ProjectionExpression", "AttributesToGet") if body.get(name)), None
    )
    if select == "SPECIFIC_ATTRIBUTES":
        if parameter is None:
            raise invalid(
                f"{'' if is_scan else '1 validation error detected: '}Must specify the"
                " AttributesToGet or ProjectionExpression when choosing to get SPECIFIC_ATTRIBUTES"
            )
        return
    if parameter is not None:
        chosen = "only the Count" if select == "COUNT" else select
        raise invalid(f"Cannot specify the {parameter} when choosing to get {chosen}")
    if select == "ALL_PROJECTED_ATTRIBUTES" and body.get("IndexName") is None:
        raise invalid("ALL_PROJECTED_ATTRIBUTES can be used only when Querying using an IndexName")


def _find_index(table: Table, body: Body) -> Index | None:
    name = body.get("IndexName")
    if name is None:
        return None
    try:
        index = table.index(name)
    except UnknownIndex:
        raise invalid(f"The table does not have the specified index: {name}") from None
    if index.local:
        return index
    if body.get("ConsistentRead"):
        raise invalid("Consistent reads are not supported on global secondary indexes")
    if body.get("Select") == "ALL_ATTRIBUTES" and index.projection.kind != "ALL":
        raise invalid(
            "One or more parameter values were invalid: Select type ALL_ATTRIBUTES is not supported"
            f" for global secondary index {name} because its projection type is not ALL"
        )
    return index


def _check_filter(found: Condition | None, source: Table | Index, body: Body) -> None:
    if found is None:
        return
    parts = (source.partition, source.sort) if source.sort else (source.partition,)
    used = attribute_names(found)
    parameter = "QueryFilter" if body.get("FilterExpression") is None else "Filter Expression"
    for part in parts:
        if part.name in used:
            raise invalid(
                f"{parameter} can only contain non-primary key attributes: Primary key attribute:"
                f" {part.name}"
            )


def _projected(table: Table, index: Index | None, projection: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the projection that the engine applies; a global index has no other attributes."""
    if index is None or index.local or index.projection.kind == "ALL":
        return projection
    names = projected_names(table, index)
    missing = sorted({str(path.parts[0]) for path in projection} - names)
    if missing:
        raise invalid(
            f"One or more parameter values were invalid: Global secondary index {index.name} does"
            f" not project [{', '.join(missing)}]"
        )
    return projection


def _check_index_projection(table: Table, index: Index | None, operation: Query | Scan) -> None:
    if index is None or operation.filter is None or operation.whole_items:
        return
    if index.projection.kind == "ALL":
        return
    missing = sorted(attribute_names(operation.filter) - projected_names(table, index))
    if missing and isinstance(operation, Query):
        raise invalid(
            f"One or more parameter values were invalid: Secondary index {index.name} does not"
            f" project one or more filter attributes: [{', '.join(missing)}]"
        )


def _read_start(table: Table, index: Index | None, body: Body) -> Item | None:
    start = body.get("ExclusiveStartKey")
    if start is None:
        return None
    values = read_item(start)
    parts = {part.name: part for part in (*table.key, *(index_key(index) if index else ()))}
    if values.keys() != parts.keys():
        raise invalid("The provided starting key is invalid")
    for name, part in parts.items():
        if type_of(values[name]) != part.type:
            raise invalid(
                "The provided starting key is invalid: The provided key element does not match the"
                " schema"
            )
    return values


def _read_segment(body: Body) -> ScanSegment | None:
    number, total = body.get("Segment"), body.get("TotalSegments")
    if number is None and total is None:
        return None
    if total is None:
        raise _segment_error("TotalSegments", "Segment parameter")
    if number is None:
        raise _segment_error("Segment", "parameter TotalSegments")
    if number >= total:
        raise invalid(
            "The Segment parameter is zero-based and must be less than parameter TotalSegments:"
            f" Segment: {number} is not less than TotalSegments: {total}"
        )
    return ScanSegment(number, total)


def _segment_error(missing: str, present: str) -> ServiceError:
    return invalid(
        f"The {missing} parameter is required but was not present in the request when {present} is"
        " present"
    )
