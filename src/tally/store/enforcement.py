"""The rules that hold a call to its access pattern: which operation may go out, and when a call has had enough.

`authorize` refuses before anything is sent. `limit_page` sees to it that a page never brings more than one
item past the bound, `record_result` counts what came back, and `check_bound` raises `BoundExceeded` if that
one item was there. This runs with every operation of the store, so what depends on the operation's
type is looked up, not asked for in turn.
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
    """Which declared use this operation is, or AccessViolation.

    `bounded`: the caller ends its page loop itself.
    """
    if invocation.ended:
        raise _violation(
            invocation, "its method has returned; a task it left behind may not go on in its name"
        )
    return _ADMIT[type(operation)](invocation, operation, bounded)


def _admit_page(invocation: Invocation, operation: Query | Scan, bounded: bool) -> UseKey:
    pattern, key = invocation.pattern, (operation_name(operation), operation.index)
    use = _declared(invocation, key, operation.table.name)
    if operation.filter is not None and use.name == "Scan" and not use.filtered:
        raise _violation(invocation, "it does not declare that its Scan filters")
    if operation.start is not None and invocation.pages and pattern.bound is None and not bounded:
        raise _violation(
            invocation, "a second page wants a bound: declare one, or read with items(bound=...)"
        )
    check_bound(invocation)
    invocation.pages += 1
    return key


def _admit_get(invocation: Invocation, operation: Get, _: bool) -> UseKey:
    key = ("GetItem", None)
    _declared(invocation, key, operation.table.name)
    _reserve(invocation, 1, 0)
    return key


def _admit_write(invocation: Invocation, operation: Put | Update | Delete, _: bool) -> UseKey:
    key = (operation_name(operation), None)
    use = _declared(invocation, key, operation.table.name)
    if use.conditional and operation.condition is None:
        raise _violation(
            invocation, f"it declares a conditional {use.name}, and this one has no condition"
        )
    _reserve(invocation, 0, 1)
    return key


def _admit_batch_get(invocation: Invocation, operation: BatchGet, _: bool) -> UseKey:
    key = ("BatchGetItem", None)
    _declared(invocation, key, operation.table.name)
    _reserve(invocation, len(operation.keys), 0)
    return key


def _admit_batch_write(invocation: Invocation, operation: BatchWrite, _: bool) -> UseKey:
    key = ("BatchWriteItem", None)
    _declared(invocation, key, operation.table.name)
    _reserve(invocation, 0, _size(operation))
    return key


def _admit_transaction(
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
    """The same for many transactions at once, which are as good as one with all of their writes."""
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
        raise _violation(invocation, f"it is about table {pattern.table.name}, not {table}")
    return use


def _reserve(invocation: Invocation, reads: int, writes: int) -> None:
    """Count reads and writes before they are sent, so that many at once cannot pass the bound together."""
    if invocation.pattern.bound is not None:
        check_bound(invocation, reads, writes)
        invocation.read += reads
        invocation.written += writes


def check_bound(invocation: Invocation, reads: int = 0, writes: int = 0) -> None:
    """BoundExceeded if so many more reads or writes would pass the pattern's bound, or if it has been passed already."""
    bound = invocation.pattern.bound
    if bound is None:
        return
    if invocation.read + reads > bound:
        raise bound_exceeded(invocation, "read", bound)
    if invocation.written + writes > bound:
        raise bound_exceeded(invocation, "written", bound)


def resolve_bound(invocation: Invocation, bound: int | None, used: int) -> int:
    """How many more items a helper may touch: the bound it was given, or else what is left of the pattern's."""
    pattern = invocation.pattern
    if bound is None:
        if pattern.bound is None:
            raise _violation(invocation, "this wants a bound: declare one, or give bound=...")
        return pattern.bound - used
    if bound < 1 or (pattern.bound is not None and bound > pattern.bound):
        raise _violation(
            invocation, f"a bound of {bound} is not between 1 and the declared {pattern.bound}"
        )
    return bound


def limit_page(invocation: Invocation, operation: Paged) -> Paged:
    """The same page, read no further than one item past the bound."""
    bound = invocation.pattern.bound
    if bound is None:
        return operation
    most = max(bound - invocation.read, 0) + 1
    if operation.limit is not None and (
        type(operation.limit) is not int or operation.limit <= most
    ):
        return operation
    return replace(operation, limit=most)


def record_result(invocation: Invocation, operation: Operation, answer: Any) -> int:
    """How many items an answer found or changed.

    Pages count against the bound now; what a batch left undone no longer does.
    """
    return _SETTLE[type(operation)](invocation, operation, answer)


def _settle_page(invocation: Invocation, _: Query | Scan, page: Page) -> int:
    invocation.read += page.scanned
    return len(page.items)


def _settle_batch_get(invocation: Invocation, _: BatchGet, answer: BatchGetResult) -> int:
    invocation.read -= len(answer.unprocessed)
    return len(answer.items)


def _settle_batch_write(
    invocation: Invocation, operation: BatchWrite, answer: BatchWriteResult
) -> int:
    undone = _size(answer.unprocessed)
    invocation.written -= undone
    return _size(operation) - undone


def bound_exceeded(invocation: Invocation, what: str, most: int) -> BoundExceeded:
    """The error for a call that wants more than it may have; it is counted."""
    _count_error(invocation)
    return BoundExceeded(
        f"access pattern {invocation.pattern.name!r}: more than {most} items would be {what} in one call"
    )


def _violation(invocation: Invocation, why: str) -> AccessViolation:
    _count_error(invocation)
    return AccessViolation(f"access pattern {invocation.pattern.name!r}: {why}")


def _count_error(invocation: Invocation) -> None:
    if invocation.meter is not None:
        invocation.meter.whole.errors += 1


def _size(operation: BatchWrite | None) -> int:
    return 0 if operation is None else len(operation.puts) + len(operation.deletes)


_ADMIT: dict[type, Callable[[Invocation, Any, bool], UseKey]] = {
    Get: _admit_get,
    Put: _admit_write,
    Update: _admit_write,
    Delete: _admit_write,
    Query: _admit_page,
    Scan: _admit_page,
    BatchGet: _admit_batch_get,
    BatchWrite: _admit_batch_write,
    Transaction: _admit_transaction,
    TransactionGet: _admit_transaction,
}

_SETTLE: dict[type, Callable[[Invocation, Any, Any], int]] = {
    Get: lambda _, __, found: 0 if found.item is None else 1,
    Put: lambda _, __, ___: 1,
    Update: lambda _, __, ___: 1,
    Delete: lambda _, __, ___: 1,
    Query: _settle_page,
    Scan: _settle_page,
    BatchGet: _settle_batch_get,
    BatchWrite: _settle_batch_write,
    Transaction: lambda _, transaction, __: len(transaction.writes),
    TransactionGet: lambda _, __, found: sum(item is not None for item in found.items),
}
