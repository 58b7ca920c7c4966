"""Enforces access patterns: which operations a call may send, and how many items it may touch.

`authorize` rejects an operation before it is sent. `limit_page` caps a page at one item past the
bound, `record_result` counts the items of a result, and `check_bound` raises `BoundExceeded` if
that extra item was there. This runs for every operation, so type-specific code is found by
dictionary lookup.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from tally.store.access import Invocation
from tally.store.api import (
    BatchGet,
    BatchGetResult,
    BatchWrite,
    BatchWriteResult,
    Delete,
    Get,
    Operation,
    Page,
    Put,
    Query,
    Scan,
    Transaction,
    TransactionBatch,
    TransactionGet,
    Update,
    operation_name,
)
from tally.store.errors import AccessViolation, BoundExceeded
from tally.store.patterns import OperationUse, UseKey

Paged = TypeVar("Paged", Query, Scan)


def authorize(invocation: Invocation, operation: Operation, *, bounded: bool = False) -> UseKey:
    """Return the declared use that this operation matches, or raise AccessViolation.

    `bounded`: the caller limits its page loop itself.
    """
    if invocation.ended:
        raise _violation(
            invocation, "the method has returned; tasks that it started may not access the store"
        )
    return _AUTHORIZE[type(operation)](invocation, operation, bounded)


def _authorize_page(invocation: Invocation, operation: Query | Scan, bounded: bool) -> UseKey:
    pattern, key = invocation.pattern, (operation_name(operation), operation.index)
    use = _declared(invocation, key, operation.table.name)
    if operation.filter is not None and use.name == "Scan" and not use.filtered:
        raise _violation(invocation, "its Scan is not declared as filtered")
    if operation.start is not None and invocation.pages and pattern.bound is None and not bounded:
        raise _violation(
            invocation, "a second page requires a bound: declare one, or use items(bound=...)"
        )
    check_bound(invocation)
    invocation.pages += 1
    return key


def _authorize_get(invocation: Invocation, operation: Get, _: bool) -> UseKey:
    key = ("GetItem", None)
    _declared(invocation, key, operation.table.name)
    _reserve(invocation, 1, 0)
    return key


def _authorize_write(invocation: Invocation, operation: Put | Update | Delete, _: bool) -> UseKey:
    key = (operation_name(operation), None)
    use = _declared(invocation, key, operation.table.name)
    if use.conditional and operation.condition is None:
        raise _violation(invocation, f"its {use.name} requires a condition")
    _reserve(invocation, 0, 1)
    return key


def _authorize_batch_get(invocation: Invocation, operation: BatchGet, _: bool) -> UseKey:
    key = ("BatchGetItem", None)
    _declared(invocation, key, operation.table.name)
    _reserve(invocation, len(operation.keys), 0)
    return key


def _authorize_batch_write(invocation: Invocation, operation: BatchWrite, _: bool) -> UseKey:
    key = ("BatchWriteItem", None)
    _declared(invocation, key, operation.table.name)
    _reserve(invocation, 0, _size(operation))
    return key


def _authorize_transaction(
    invocation: Invocation, operation: Transaction | TransactionGet, _: bool
) -> UseKey:
    pattern, key = invocation.pattern, (operation_name(operation), None)
    _declared(invocation, key, pattern.table.name)
    writes = operation.writes if isinstance(operation, Transaction) else ()
    gets = operation.gets if isinstance(operation, TransactionGet) else ()
    for part in writes or gets:
        if part.table.name not in pattern.table_names:
            raise _violation(invocation, f"it does not declare table {part.table.name}")
    _reserve(invocation, len(gets), len(writes))
    return key


def authorize_batch(invocation: Invocation, operations: Sequence[Transaction]) -> UseKey:
    """Authorize many transactions as one transaction with all of their writes."""
    if not isinstance(operations, TransactionBatch):
        return authorize(
            invocation,
            Transaction(tuple(write for operation in operations for write in operation.writes)),
        )
    _reserve(invocation, 0, (len(operations) - 1) * len(operations.puts))
    return authorize(invocation, operations[0])


def _declared(invocation: Invocation, key: UseKey, table: str) -> OperationUse:
    pattern = invocation.pattern
    use = pattern.allowed.get(key)
    if use is None:
        where = "" if key[1] is None else f" on {key[1]}"
        raise _violation(invocation, f"it declares {pattern.operation_label}, not {key[0]}{where}")
    if table != pattern.table.name:
        raise _violation(invocation, f"it declares table {pattern.table.name}, not {table}")
    return use


def _reserve(invocation: Invocation, reads: int, writes: int) -> None:
    """Count items before they are sent, so concurrent requests cannot exceed the bound."""
    if invocation.pattern.bound is not None:
        check_bound(invocation, reads, writes)
        invocation.read += reads
        invocation.written += writes


def check_bound(invocation: Invocation, reads: int = 0, writes: int = 0) -> None:
    """Raise BoundExceeded if this many more reads or writes would exceed the bound."""
    bound = invocation.pattern.bound
    if bound is None:
        return
    if invocation.read + reads > bound:
        raise bound_exceeded(invocation, "read", bound)
    if invocation.written + writes > bound:
        raise bound_exceeded(invocation, "written", bound)


def resolve_bound(invocation: Invocation, bound: int | None, used: int) -> int:
    """Return how many items a method may touch: the given bound, or the rest of the pattern's."""
    pattern = invocation.pattern
    if bound is None:
        if pattern.bound is None:
            raise _violation(invocation, "a bound is required: declare one, or pass bound=...")
        return pattern.bound - used
    if bound < 1 or (pattern.bound is not None and bound > pattern.bound):
        raise _violation(
            invocation, f"bound must be between 1 and the declared {pattern.bound}, not {bound}"
        )
    return bound


def limit_page(invocation: Invocation, operation: Paged) -> Paged:
    """Limit the page to one item past the bound."""
    bound = invocation.pattern.bound
    if bound is None:
        return operation
    limit = max(bound - invocation.read, 0) + 1
    if operation.limit is not None and (
        type(operation.limit) is not int or operation.limit <= limit
    ):
        return operation
    return replace(operation, limit=limit)


def record_result(invocation: Invocation, operation: Operation, result: Any) -> int:
    """Return how many items a result found or changed.

    Pages count against the bound here; unprocessed items of a batch are credited.
    """
    return _RECORD[type(operation)](invocation, operation, result)


def _record_page(invocation: Invocation, _: Query | Scan, page: Page) -> int:
    invocation.read += page.scanned
    return len(page.items)


def _record_batch_get(invocation: Invocation, _: BatchGet, result: BatchGetResult) -> int:
    invocation.read -= len(result.unprocessed)
    return len(result.items)


def _record_batch_write(
    invocation: Invocation, operation: BatchWrite, result: BatchWriteResult
) -> int:
    unprocessed = _size(result.unprocessed)
    invocation.written -= unprocessed
    return _size(operation) - unprocessed


def bound_exceeded(invocation: Invocation, what: str, limit: int) -> BoundExceeded:
    """Create the error of a call that exceeds its bound, and count it."""
    _count_error(invocation)
    return BoundExceeded(
        f"access pattern {invocation.pattern.name!r}: more than {limit} items would be {what} in"
        " one call"
    )


def _violation(invocation: Invocation, why: str) -> AccessViolation:
    _count_error(invocation)
    return AccessViolation(f"access pattern {invocation.pattern.name!r}: {why}")


def _count_error(invocation: Invocation) -> None:
    if invocation.meter is not None:
        invocation.meter.whole.errors += 1


def _size(operation: BatchWrite | None) -> int:
    return 0 if operation is None else len(operation.puts) + len(operation.deletes)


_AUTHORIZE: dict[type, Callable[[Invocation, Any, bool], UseKey]] = {
    Get: _authorize_get,
    Put: _authorize_write,
    Update: _authorize_write,
    Delete: _authorize_write,
    Query: _authorize_page,
    Scan: _authorize_page,
    BatchGet: _authorize_batch_get,
    BatchWrite: _authorize_batch_write,
    Transaction: _authorize_transaction,
    TransactionGet: _authorize_transaction,
}

_RECORD: dict[type, Callable[[Invocation, Any, Any], int]] = {
    Get: lambda _, __, found: 0 if found.item is None else 1,
    Put: lambda _, __, ___: 1,
    Update: lambda _, __, ___: 1,
    Delete: lambda _, __, ___: 1,
    Query: _record_page,
    Scan: _record_page,
    BatchGet: _record_batch_get,
    BatchWrite: _record_batch_write,
    Transaction: lambda _, transaction, __: len(transaction.writes),
    TransactionGet: lambda _, __, found: sum(item is not None for item in found.items),
}
