"""Validates requests by DynamoDB's rules.

Every engine calls these checks first, so all engines reject the same requests. Each `check_…`
raises a subclass of `InvalidRequest`. `check_query` also returns the key range.
"""

from collections.abc import Callable, Iterable, Mapping
from operator import eq
from typing import Any

from msgspec import Struct

from tally.store.api import (
    MAX_BATCH_GET,
    MAX_BATCH_WRITE,
    MAX_LIMIT,
    MAX_SEGMENTS,
    MAX_TRANSACTION,
    MAX_TRANSACTION_BYTES,
    BatchGet,
    BatchWrite,
    Check,
    Delete,
    Get,
    Put,
    Query,
    Scan,
    ScanSegment,
    Transaction,
    TransactionGet,
    Update,
    Write,
)
from tally.store.errors import (
    DuplicateItem,
    InvalidExpression,
    InvalidPageKey,
    InvalidRequest,
    RequestTooLarge,
    TooManyItems,
)
from tally.store.evaluate import ORDER
from tally.store.expressions import (
    And,
    BeginsWith,
    Between,
    Compare,
    Condition,
    Literal,
    Operand,
    Path,
)
from tally.store.schema import (
    Index,
    KeyPart,
    Table,
    check_item_keys,
    check_key,
    check_key_part,
    check_key_size,
    index_key,
    projected_names,
)
from tally.store.validate_expressions import (
    attribute_names,
    check_actions,
    check_condition,
    check_projection,
)
from tally.store.values import (
    Item,
    Key,
    measure_item,
    measure_value,
    type_of,
)

_MAX_TOKEN_CHARACTERS = 36
_WRITES = (Put, Update, Delete, Check)
_RETURNS = ("ALL_OLD", "ALL_NEW", "UPDATED_OLD", "UPDATED_NEW")  # the first by any write


class KeyRange(Struct, frozen=True):
    """One partition and a condition on the sort key.

    `operator` is one of = < <= > >= between begins_with, or None for the whole partition.
    """

    partition: Any
    operator: str | None = None
    low: Any = None
    high: Any = None


def check_get(operation: Get) -> None:
    """Require exactly the table's key and a projection without overlaps."""
    check_key(operation.table, operation.key)
    check_projection(operation.projection)


def check_put(operation: Put) -> int:
    """Return the size of the item."""
    size = _check_item(operation.table, operation.item)
    check_expressions(operation.table, operation)
    return size


def check_write(operation: Update | Delete | Check) -> None:
    """Require exactly the table's key and actions that do not touch the key or overlap."""
    check_key(operation.table, operation.key)
    check_expressions(operation.table, operation)


def check_expressions(table: Table, write: Write) -> None:
    """Check everything but the key or the item: actions, condition, and what the write returns."""
    if isinstance(write, Check):
        check_condition(write.condition, is_parsed=write.is_parsed)
        return
    if isinstance(write, Update):
        check_actions(table, write.actions, is_parsed=write.is_parsed)
    if write.condition is not None:
        check_condition(write.condition, is_parsed=write.is_parsed)
    if write.returns != "NONE":
        allowed = _RETURNS if type(write) is Update else _RETURNS[:1]
        if write.returns not in allowed:
            raise InvalidRequest(
                f"this operation may return NONE, {', '.join(allowed)}, not {write.returns}"
            )


def check_query(operation: Query) -> KeyRange:
    """Return the key range that the key condition describes."""
    index = _index(operation)
    partition, sort = (index or operation.table).partition, (index or operation.table).sort
    key_range = _key_range(operation.where, partition, sort)
    if operation.filter is not None:
        check_condition(operation.filter, is_parsed=operation.is_parsed)
        taken = attribute_names(operation.filter) & {
            part.name for part in (partition, sort) if part
        }
        if taken:
            raise InvalidExpression(
                f"a filter cannot use the key attribute {min(taken)}: use the key condition"
            )
    _check_page(operation, index)
    if operation.start is not None:
        _check_start_in_range(operation.start, key_range, partition, sort)
    return key_range


def check_scan(operation: Scan) -> None:
    """Require an existing index and a valid page key."""
    index = _index(operation)
    if operation.filter is not None:
        check_condition(operation.filter, is_parsed=operation.is_parsed)
    _check_page(operation, index)
    if operation.segment is not None:
        _check_segment(operation.segment)


def _check_segment(segment: ScanSegment) -> None:
    number, total = segment.number, segment.total
    if type(total) is not int or not 1 <= total <= MAX_SEGMENTS:
        raise InvalidRequest(
            f"the number of segments must be an integer from 1 to {MAX_SEGMENTS}, not {total!r}"
        )
    if type(number) is not int or not 0 <= number < total:
        raise InvalidRequest(
            f"the segment must be an integer from 0 to {total - 1}, not {number!r}"
        )


def check_batch_get(operation: BatchGet) -> None:
    """Require 1 to 100 distinct keys."""
    _check_count("a batch get", len(operation.keys), MAX_BATCH_GET)
    for key in operation.keys:
        check_key(operation.table, key)
    check_distinct((operation.table, key) for key in operation.keys)
    check_projection(operation.projection)


def check_batch_write(operation: BatchWrite) -> list[int]:
    """Require 1 to 25 distinct items; return the sizes of the puts."""
    _check_count("a batch write", len(operation.puts) + len(operation.deletes), MAX_BATCH_WRITE)
    sizes = [_check_item(operation.table, item) for item in operation.puts]
    for key in operation.deletes:
        check_key(operation.table, key)
    keys = [operation.table.primary_key(item) for item in operation.puts] + list(operation.deletes)
    check_distinct((operation.table, key) for key in keys)
    return sizes


def check_transaction(operation: Transaction) -> None:
    """Require 1 to 100 writes of distinct items, 4 MB in total."""
    check_transaction_form(operation)
    total = 0
    for write in operation.writes:
        if isinstance(write, Put):
            total += check_put(write)
        else:
            check_write(write)
            total += measure_item(write.key)
    check_distinct_writes(operation.writes)
    check_transaction_size(total)


def check_transaction_form(operation: Transaction) -> None:
    """Check everything but the writes' keys, items and expressions."""
    _check_count("a transaction", len(operation.writes), MAX_TRANSACTION)
    for write in operation.writes:
        if getattr(write, "returns", "NONE") != "NONE":
            raise InvalidRequest("a write in a transaction cannot return an item")
        if type(write) is Update and not write.actions:
            raise InvalidExpression("an update in a transaction must have an action")
        if type(write) not in _WRITES:
            kind = type(write).__name__
            raise InvalidRequest(
                f"a transaction may contain Put, Update, Delete and Check, not {kind}"
            )
    if operation.token is not None:
        _check_token(operation.token)


def check_distinct_writes(writes: Iterable[Write]) -> None:
    """Reject a transaction that writes or checks an item twice."""
    check_distinct(
        (write.table, write.item if isinstance(write, Put) else write.key) for write in writes
    )


def _check_token(token: str) -> None:
    if not isinstance(token, str) or not 0 < len(token) <= _MAX_TOKEN_CHARACTERS:
        raise InvalidRequest(f"a client token must have 1 to {_MAX_TOKEN_CHARACTERS} characters")
    measure_value(token, "client token")


def check_transaction_get(operation: TransactionGet) -> None:
    """Require 1 to 100 distinct items."""
    _check_count("a transaction", len(operation.gets), MAX_TRANSACTION)
    for get in operation.gets:
        check_get(get)
    check_distinct((get.table, get.key) for get in operation.gets)


def check_transaction_size(total: int) -> None:
    """Reject a transaction of items that are too large together."""
    if total > MAX_TRANSACTION_BYTES:
        raise RequestTooLarge(
            f"the transaction has {total} bytes; the limit is {MAX_TRANSACTION_BYTES}"
        )


def check_distinct(contents: Iterable[tuple[Table, Key]]) -> None:
    """Reject a request that names an item twice; each content is a key or a whole item."""
    seen: set[tuple[Any, ...]] = set()
    for table, content in contents:
        identity = (table.name, *[content[name] for name in table.key_names])
        if identity in seen:
            raise DuplicateItem(
                f"table {table.name}: the request names the item {table.primary_key(content)} twice"
            )
        seen.add(identity)


def _check_item(table: Table, item: Item) -> int:
    size = measure_item(item)
    check_item_keys(table, item, size)
    return size


def _check_count(what: str, count: int, limit: int) -> None:
    if not count:
        raise InvalidRequest(f"{what} is empty")
    if count > limit:
        raise TooManyItems(f"{what} may have at most {limit} items, not {count}")


def _index(operation: Query | Scan) -> Index | None:
    if operation.index is None:
        return None
    index = operation.table.index(operation.index)
    if operation.consistent and not index.local:
        raise InvalidRequest(f"global index {index.name} does not support consistent reads")
    return index


def _check_page(operation: Query | Scan, index: Index | None) -> None:
    limit = operation.limit
    if limit is not None and (type(limit) is not int or not 1 <= limit <= MAX_LIMIT):
        raise InvalidRequest(f"limit must be an integer from 1 to {MAX_LIMIT}, not {limit!r}")
    check_projection(operation.projection)
    if operation.count_only and operation.projection:
        raise InvalidRequest("a count returns no attributes: leave the projection out")
    if index is not None and index.projection.kind != "ALL":
        _check_projected(operation, index)
    if operation.start is not None:
        _check_start(operation.table, index, operation.start)


def _check_projected(operation: Query | Scan, index: Index) -> None:
    """Reject attributes that a projected index lacks.

    A query's filter may use projected attributes only; a scan's filter treats others as missing.
    """
    used: set[str] = set()
    if not index.local:
        used |= {str(path.parts[0]) for path in operation.projection}
    is_whole = index.local and operation.whole_items
    if operation.filter is not None and isinstance(operation, Query) and not is_whole:
        used |= attribute_names(operation.filter)
    missing = used - projected_names(operation.table, index)
    if missing:
        raise InvalidExpression(f"index {index.name} does not project {min(missing)}")


def _check_start(table: Table, index: Index | None, start: Key) -> None:
    parts = {part.name: part for part in (*table.key, *(index_key(index) if index else ()))}
    if not isinstance(start, Mapping) or set(start) != set(parts):
        raise InvalidPageKey(
            f"the page key of table {table.name} must have exactly {', '.join(parts)}"
        )
    for part in parts.values():
        try:
            check_key_part(table, part, start)
        except InvalidRequest as error:
            raise InvalidPageKey(f"the page key does not belong to this query: {error}") from None


def _check_start_in_range(
    start: Key, key_range: KeyRange, partition: KeyPart, sort: KeyPart | None
) -> None:
    if start[partition.name] != key_range.partition:
        raise InvalidPageKey("the page key belongs to another partition")
    if sort is not None and not in_range(start[sort.name], key_range):
        raise InvalidPageKey("the page key is outside the key condition")


def in_range(value: Any, key_range: KeyRange) -> bool:
    """Whether a sort-key value is in the range."""
    if key_range.operator is None:
        return True
    value, low, high = map(_ordered, (value, key_range.low, key_range.high))
    if key_range.operator == "begins_with":
        return bool(value.startswith(low))
    if key_range.operator == "between":
        return bool(low <= value <= high)
    return _COMPARE[key_range.operator](value, low)


def _ordered(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {"=": eq, **ORDER}


def _key_range(where: Condition, partition: KeyPart, sort: KeyPart | None) -> KeyRange:
    parts = [where.left, where.right] if isinstance(where, And) else [where]
    first: Any = None
    second: tuple[str, Any, Any] | None = None
    for part in parts:
        name, operator, low, high = _key_test(part)
        if name == partition.name and first is None:
            if operator != "=":
                raise InvalidExpression(f"the partition key {name} must be compared with =")
            first = _key_value(partition, low, is_partition=True)
        elif sort is not None and name == sort.name and second is None:
            second = (
                operator,
                _key_value(sort, low, operator),
                None if high is None else _key_value(sort, high),
            )
        else:
            raise InvalidExpression(f"a key condition cannot use {name} here")
    if first is None:
        raise InvalidExpression(f"a key condition must include the partition key {partition.name}")
    if second is None:
        return KeyRange(first)
    if second[0] == "between" and _ordered(second[1]) > _ordered(second[2]):
        raise InvalidExpression("between requires the lower bound first")
    return KeyRange(first, *second)


def _key_test(part: Any) -> tuple[str, str, Any, Any]:
    if isinstance(part, Compare) and part.operator != "<>":
        return _key_name(part.left), part.operator, _key_literal(part.right), None
    if isinstance(part, Between):
        return _key_name(part.value), "between", _key_literal(part.low), _key_literal(part.high)
    if isinstance(part, BeginsWith):
        return _key_name(part.path), "begins_with", _key_literal(part.prefix), None
    what = type(part).__name__
    raise InvalidExpression(
        f"a key condition is = on the partition key and one condition on the sort key, not {what}"
    )


def _key_name(operand: Operand) -> str:
    if isinstance(operand, Path) and len(operand.parts) == 1:
        return str(operand.parts[0])
    raise InvalidExpression("a key condition compares a key attribute with a value")


def _key_literal(operand: Operand) -> Any:
    if isinstance(operand, Literal):
        return operand.value
    raise InvalidExpression("a key condition compares a key attribute with a value")


def _key_value(
    part: KeyPart, value: Any, operator: str = "=", *, is_partition: bool = False
) -> Any:
    size = measure_value(value, part.name)
    if type_of(value) != part.type:
        raise InvalidExpression(
            f"the key attribute {part.name} is of type {part.type}, not {type_of(value)}"
        )
    if operator == "begins_with" and part.type == "N":
        raise InvalidExpression(f"begins_with requires a string or binary; {part.name} is a number")
    if value in ("", b""):
        raise InvalidExpression(
            f"the key attribute {part.name} cannot be compared with an empty value"
        )
    check_key_size("key condition", part, size, is_partition=is_partition)
    return value
