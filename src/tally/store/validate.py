"""What makes a request wrong in itself, by DynamoDB's rules.

Every engine asks here first, so all refuse the same things.

Each `check_…` raises a subclass of `InvalidRequest` that names what is wrong. `check_query` returns
the range it understood, and `check_update` nothing but peace of mind: what an update does to an
item is only known once the item is.
"""

from collections.abc import Callable, Iterable, Mapping
from operator import eq
from typing import Any

from msgspec import Struct

from tally.store.api import (
    MAX_BATCH_GET,
    MAX_BATCH_WRITE,
    MAX_TRANSACTION,
    MAX_TRANSACTION_BYTES,
    BatchGet,
    BatchWrite,
    Check,
    Delete,
    Get,
    Put,
    Query,
    Returns,
    Scan,
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
    Action,
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
    check_size,
    measure_attribute,
    measure_item,
    measure_value,
    type_of,
)

_MAX_TOKEN = 36


class KeyRange(Struct, frozen=True):
    """One partition, and what the sort key must be: `operator` is one of = < <= > >= between begins_with, or None for all."""

    partition: Any
    operator: str | None = None
    low: Any = None
    high: Any = None


def check_get(operation: Get) -> None:
    """A get wants exactly the table's key, and a projection without overlaps."""
    check_key(operation.table, operation.key)
    check_projection(operation.projection)


def check_put(operation: Put) -> int:
    """The size of the item that is to be put."""
    size = _check_item(operation.table, operation.item)
    if operation.condition is not None:
        check_condition(operation.condition)
    _check_returns(operation.returns, ("NONE", "ALL_OLD"))
    return size


def check_update(operation: Update) -> None:
    """An update leaves the key alone, and no two of its steps touch the same place."""
    check_key(operation.table, operation.key)
    check_actions(operation.table, operation.actions)
    if operation.condition is not None:
        check_condition(operation.condition)
    _check_returns(operation.returns, ("NONE", "ALL_OLD", "ALL_NEW", "UPDATED_OLD", "UPDATED_NEW"))


def check_delete(operation: Delete) -> None:
    """A delete wants exactly the table's key."""
    check_key(operation.table, operation.key)
    if operation.condition is not None:
        check_condition(operation.condition)
    _check_returns(operation.returns, ("NONE", "ALL_OLD"))


def check_check(operation: Check) -> None:
    """A check wants exactly the table's key, and a condition."""
    check_key(operation.table, operation.key)
    check_condition(operation.condition)


def check_query(operation: Query) -> KeyRange:
    """The range that the key condition describes."""
    index = _index(operation)
    partition, sort = (index or operation.table).partition, (index or operation.table).sort
    wanted = _key_range(operation.where, partition, sort)
    if operation.filter is not None:
        check_condition(operation.filter)
        taken = attribute_names(operation.filter) & {
            part.name for part in (partition, sort) if part
        }
        if taken:
            raise InvalidExpression(
                f"a filter cannot use the key attribute {min(taken)}: put it in the key condition"
            )
    _check_page(operation, index)
    if operation.start is not None:
        _check_start_in_range(operation.start, wanted, partition, sort)
    return wanted


def check_scan(operation: Scan) -> None:
    """A scan wants an index that is there and a page key of its own."""
    index = _index(operation)
    if operation.filter is not None:
        check_condition(operation.filter)
    _check_page(operation, index)


def check_batch_get(operation: BatchGet) -> None:
    """A batch names 1 to 100 different keys."""
    _check_count("a batch get", len(operation.keys), MAX_BATCH_GET)
    for key in operation.keys:
        check_key(operation.table, key)
    check_distinct((operation.table, key) for key in operation.keys)
    check_projection(operation.projection)


def check_batch_write(operation: BatchWrite) -> list[int]:
    """The sizes of the puts of a batch of 1 to 25 different items."""
    _check_count("a batch write", len(operation.puts) + len(operation.deletes), MAX_BATCH_WRITE)
    sizes = [_check_item(operation.table, item) for item in operation.puts]
    for key in operation.deletes:
        check_key(operation.table, key)
    keys = [operation.table.key_of(item) for item in operation.puts] + list(operation.deletes)
    check_distinct((operation.table, key) for key in keys)
    return sizes


def check_transaction(operation: Transaction) -> list[int]:
    """The sizes of the items or keys that a transaction of 1 to 100 writes of different items holds, 4 MB together."""
    _check_count("a transaction", len(operation.writes), MAX_TRANSACTION)
    sizes = [_check_write(write) for write in operation.writes]
    total = sum(sizes)
    if len({write.table.name for write in operation.writes}) < len(operation.writes):
        check_distinct(
            (write.table, write.item if isinstance(write, Put) else write.key)
            for write in operation.writes
        )
    if total > MAX_TRANSACTION_BYTES:
        raise RequestTooLarge(
            f"the transaction has {total} bytes; at most {MAX_TRANSACTION_BYTES} fit"
        )
    token = operation.token
    if token is not None and not (isinstance(token, str) and 0 < len(token) <= _MAX_TOKEN):
        raise InvalidRequest(f"a client token has 1 to {_MAX_TOKEN} characters")
    return sizes


def check_transaction_get(operation: TransactionGet) -> None:
    """A transaction reads 1 to 100 different items."""
    _check_count("a transaction", len(operation.gets), MAX_TRANSACTION)
    for get in operation.gets:
        check_get(get)
    check_distinct((get.table, get.key) for get in operation.gets)


def check_distinct(contents: Iterable[tuple[Table, Key]]) -> None:
    """Refuse a request that names one item twice, be it by its key or with all that is in it."""
    seen: set[tuple[Any, ...]] = set()
    for table, content in contents:
        identity = (table.name, *[content[name] for name in table.key_names])
        if identity in seen:
            raise DuplicateItem(
                f"table {table.name}: the item {table.key_of(content)} is named twice in one request"
            )
        seen.add(identity)


def check_updated(
    table: Table, before: Item, size: int, after: Item, actions: Iterable[Action]
) -> int:
    """The size of what an update made of an item, found good.

    Only what it touched is looked at again.
    """
    for name in {str(action.path.parts[0]) for action in actions}:
        if name in before:
            size -= measure_attribute(name, before[name])
        if name in after:
            size += measure_attribute(name, after[name])
    check_size(size)
    if table.by_name:
        check_item_keys(table, after)
    return size


def _check_item(table: Table, item: Item) -> int:
    size = measure_item(item)
    check_item_keys(table, item)
    return size


def _check_write(write: Write) -> int:
    if getattr(write, "returns", "NONE") != "NONE":
        raise InvalidRequest("a transaction returns no items")
    if isinstance(write, Put):
        return check_put(write)
    if isinstance(write, Update):
        check_update(write)
    elif isinstance(write, Delete):
        check_delete(write)
    elif isinstance(write, Check):
        check_check(write)
    else:
        raise InvalidRequest(
            f"a transaction holds Put, Update, Delete and Check, not {type(write).__name__}"
        )
    return measure_item(dict(write.key))


def _check_count(what: str, count: int, most: int) -> None:
    if not count:
        raise InvalidRequest(f"{what} is empty")
    if count > most:
        raise TooManyItems(f"{what} holds at most {most} items, not {count}")


def _check_returns(returns: Returns, allowed: tuple[Returns, ...]) -> None:
    if returns not in allowed:
        raise InvalidRequest(f"this operation returns one of {', '.join(allowed)}, not {returns}")


def _index(operation: Query | Scan) -> Index | None:
    if operation.index is None:
        return None
    index = operation.table.index(operation.index)
    if operation.consistent and not index.local:
        raise InvalidRequest(f"index {index.name} is global: it cannot be read consistently")
    return index


def _check_page(operation: Query | Scan, index: Index | None) -> None:
    if operation.limit is not None and (type(operation.limit) is not int or operation.limit < 1):
        raise InvalidRequest(f"a limit is a whole number from 1 up, not {operation.limit!r}")
    check_projection(operation.projection)
    if index is not None and index.projection.kind != "ALL":
        _check_carried(operation, index)
    if operation.start is not None:
        _check_start(operation.table, index, operation.start)


def _check_carried(operation: Query | Scan, index: Index) -> None:
    """A global index shows only what it carries; a query filters only by that, while a scan takes the rest for missing."""
    used: set[str] = set()
    if not index.local:
        used |= {str(path.parts[0]) for path in operation.projection}
    if operation.filter is not None and isinstance(operation, Query):
        used |= attribute_names(operation.filter)
    missing = used - projected_names(operation.table, index)
    if missing:
        raise InvalidExpression(f"index {index.name} does not carry {min(missing)}")


def _check_start(table: Table, index: Index | None, start: Key) -> None:
    parts = {part.name: part for part in (*table.key, *(index_key(index) if index else ()))}
    if not isinstance(start, Mapping) or set(start) != set(parts):
        raise InvalidPageKey(
            f"the page key of table {table.name} must hold exactly {', '.join(parts)}"
        )
    for part in parts.values():
        try:
            check_key_part(table, part, start)
        except InvalidRequest as error:
            raise InvalidPageKey(f"the page key is not one of this query: {error}") from None


def _check_start_in_range(
    start: Key, wanted: KeyRange, partition: KeyPart, sort: KeyPart | None
) -> None:
    if start[partition.name] != wanted.partition:
        raise InvalidPageKey("the page key belongs to another partition")
    if sort is not None and not in_range(start[sort.name], wanted):
        raise InvalidPageKey("the page key lies outside of the key condition")


def in_range(value: Any, wanted: KeyRange) -> bool:
    """Whether a sort key's value is in the range."""
    if wanted.operator is None:
        return True
    value, low, high = (_ordered(each) for each in (value, wanted.low, wanted.high))
    if wanted.operator == "begins_with":
        return bool(value.startswith(low))
    if wanted.operator == "between":
        return bool(low <= value <= high)
    return _COMPARE[wanted.operator](value, low)


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
            first = _key_value(partition, low)
        elif sort is not None and name == sort.name and second is None:
            second = (
                operator,
                _key_value(sort, low, operator),
                None if high is None else _key_value(sort, high),
            )
        else:
            raise InvalidExpression(f"a key condition cannot use {name} here")
    if first is None:
        raise InvalidExpression(f"a key condition must name the partition key {partition.name}")
    if second is None:
        return KeyRange(first)
    if second[0] == "between" and _ordered(second[1]) > _ordered(second[2]):
        raise InvalidExpression("between wants its lower bound first")
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
        f"a key condition is = on the partition key and one test of the sort key, not {what}"
    )


def _key_name(operand: Operand) -> str:
    if isinstance(operand, Path) and len(operand.parts) == 1:
        return str(operand.parts[0])
    raise InvalidExpression("a key condition compares a key attribute with a value")


def _key_literal(operand: Operand) -> Any:
    if isinstance(operand, Literal):
        return operand.value
    raise InvalidExpression("a key condition compares a key attribute with a value")


def _key_value(part: KeyPart, value: Any, operator: str = "=") -> Any:
    measure_value(value, part.name)
    if type_of(value) != part.type:
        raise InvalidExpression(
            f"the key attribute {part.name} is of type {part.type}, not {type_of(value)}"
        )
    if operator == "begins_with" and part.type == "N":
        raise InvalidExpression(f"begins_with wants a string or binary; {part.name} is a number")
    if value in ("", b""):
        raise InvalidExpression(
            f"the key attribute {part.name} cannot be compared with an empty value"
        )
    return value
