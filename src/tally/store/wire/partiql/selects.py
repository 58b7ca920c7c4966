"""Runs SELECT statements as queries and scans, page by page."""

import base64
import binascii
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import compress
from typing import Any, Final

from msgspec import Struct

from tally.kit.time_slices import map_in_turns
from tally.store.api import Capacity, Engine, Query, Scan
from tally.store.encode import item_to_wire
from tally.store.errors import InvalidPageKey, UnknownIndex
from tally.store.evaluate import MISSING, predicate, resolve_path
from tally.store.expressions import And, Compare, Condition, Literal, Path, make_path
from tally.store.schema import Index, Table
from tally.store.validate_expressions import attribute_names
from tally.store.values import Item
from tally.store.wire.key_conditions import check_key_schema
from tally.store.wire.partiql.key_lookup import conjuncts, partition_values, sort_condition
from tally.store.wire.partiql.statements import SelectStatement
from tally.store.wire.service_errors import ServiceError, invalid
from tally.store.wire.table_names import find_table
from tally.store.wire.values import read_item

Body = Mapping[str, Any]
_PAGE_UNITS: Final = 128.0  # a megabyte of eventually consistent reads


class SelectPage(Struct, frozen=True):
    """The items of one page, and where the next page begins."""

    table: Table
    index: str | None
    items: list[Item]
    capacity: Capacity
    next_token: str | None
    next_key: Item | None


class _Reads(Struct, frozen=True):
    """The queries of a statement, or one scan."""

    operations: Sequence[Query | Scan]
    matches: Callable[[Mapping[str, Any]], bool]


async def select_page(engine: Engine, statement: SelectStatement, body: Body) -> SelectPage:
    """Read the page that `Limit` and `NextToken` of the request describe."""
    table = await find_table(engine, statement.table)
    index = _find_index(table, statement.index, consistent=bool(body.get("ConsistentRead")))
    reads = _plan(statement, table, index, consistent=bool(body.get("ConsistentRead")))
    position, start = _read_token(body, len(reads.operations))
    limit, found, cost = body.get("Limit"), list[Item](), Capacity()
    while position < len(reads.operations):
        operation = reads.operations[position]
        page = await _read(engine, operation, limit, start)
        found += compress(page.items, await map_in_turns(reads.matches, page.items))
        cost += page.capacity
        start = page.next
        if start is None:
            position += 1
        if limit is not None:
            limit -= page.scanned
        if start is not None or limit == 0 or cost.read >= _PAGE_UNITS:
            break
    if statement.order is not None and len(reads.operations) > 1:
        _sort(found, statement)
    more = position < len(reads.operations)
    return SelectPage(
        table,
        None if index is None else index.name,
        await map_in_turns(partial(pick_columns, statement.columns), found),
        cost,
        _make_token(body, position, start) if more else None,
        start,
    )


async def _read(engine: Engine, operation: Query | Scan, limit: int | None, start: Any) -> Any:
    changed = {"limit": limit, "start": start}
    try:
        if isinstance(operation, Query):
            return await engine.query(_replaced(operation, changed))
        return await engine.scan(_replaced(operation, changed))
    except InvalidPageKey:
        raise _invalid_token() from None


def _replaced(operation: Any, changed: Mapping[str, Any]) -> Any:
    fields = {name: getattr(operation, name) for name in operation.__struct_fields__}
    return type(operation)(**{**fields, **changed})


def pick_columns(columns: Sequence[Path], item: Item) -> Item:
    """Return the selected values by the last name of each path; no columns select all."""
    if not columns:
        return item
    picked = {}
    for path in columns:
        value = resolve_path(item, path)
        if value is not MISSING:
            picked[_column_name(path)] = value
    return picked


def _column_name(path: Path) -> str:
    names = [at for at, part in enumerate(path.parts) if isinstance(part, str)]
    first, *positions = path.parts[names[-1] :]
    return f"{first}{''.join(f'[{position}]' for position in positions)}"


def _find_index(table: Table, name: str | None, *, consistent: bool) -> Index | None:
    if name is None:
        return None
    try:
        index = table.index(name)
    except UnknownIndex:
        raise invalid("The table does not have the specified index") from None
    if consistent and not index.local:
        raise invalid("Strongly consistent read is not supported on Global Secondary Indexes")
    return index


def _plan(
    statement: SelectStatement, table: Table, index: Index | None, *, consistent: bool
) -> _Reads:
    source = index or table
    nodes = conjuncts(statement.where)
    values = partition_values(nodes, source.partition)
    _check_order(statement, source, values)
    matches = (lambda _item: True) if statement.where is None else predicate(statement.where)
    name = None if index is None else index.name
    projection = _projection(statement, index)
    if values is None:
        scan = Scan(table, name, projection=projection, consistent=consistent)
        return _Reads((scan,), matches)
    sort = sort_condition(nodes, source.sort)
    queries = []
    for value in values:
        where: Condition = Compare("=", make_path(source.partition.name), Literal(value))
        where = where if sort is None else And(where, sort)
        check_key_schema(where, source.partition, source.sort)
        forward = statement.forward or statement.order != (source.sort and source.sort.name)
        queries.append(Query(table, where, name, None, projection, forward, consistent=consistent))
    return _Reads(queries, matches)


def _projection(statement: SelectStatement, index: Index | None) -> tuple[Path, ...]:
    """Return the attributes that a local index fetches from the table; others need none."""
    if index is None or not index.local or index.projection.kind == "ALL" or not statement.columns:
        return ()
    names = {str(path.parts[0]) for path in statement.columns}
    if statement.where is not None:
        names |= attribute_names(statement.where)
    return tuple(make_path(name) for name in sorted(names))


def _check_order(statement: SelectStatement, source: Table | Index, values: Any) -> None:
    if statement.order is None:
        return
    if statement.where is None:
        raise invalid("Must have WHERE clause in the statement when using ORDER BY clause.")
    if values is None:
        raise invalid(
            "Must have at least one non-optional hash key condition in WHERE clause when using"
            " ORDER BY clause."
        )
    if statement.order not in [part.name for part in (source.partition, source.sort) if part]:
        raise invalid(
            f"Variable reference {statement.order} in ORDER BY clause must be part of the primary"
            " key"
        )


def _sort(items: list[Item], statement: SelectStatement) -> None:
    """Order the items of several partitions by the attribute, a key of one type."""
    name = str(statement.order)

    def key(item: Item) -> Any:
        value = item[name]
        return value.encode() if isinstance(value, str) else value

    items.sort(key=key, reverse=not statement.forward)


def _fingerprint(body: Body) -> int:
    statement = [body["Statement"], body.get("Parameters")]
    return zlib.crc32(json.dumps(statement, sort_keys=True).encode())


def _make_token(body: Body, position: int, start: Item | None) -> str:
    key = None if start is None else item_to_wire(start)
    text = json.dumps([_fingerprint(body), position, key])
    return base64.b64encode(text.encode()).decode()


def _read_token(body: Body, count: int) -> tuple[int, Item | None]:
    token = body.get("NextToken")
    if token is None:
        return 0, None
    try:
        fingerprint, position, key = json.loads(base64.b64decode(token, validate=True))
    except (ValueError, TypeError, RecursionError, binascii.Error):
        raise _invalid_token() from None
    is_valid = fingerprint == _fingerprint(body) and type(position) is int
    if not is_valid or not 0 <= position < count or not isinstance(key, dict | None):
        raise _invalid_token()
    return position, None if key is None else read_item(key)


def _invalid_token() -> ServiceError:
    return invalid("Invalid NextToken")
