"""The bound of a pattern: how many items one call may read, and how many it may write.

`reserve_items` counts items before they are sent. `limit_page` caps a page at one item past the
bound, `record_result` counts the items of a result, and `check_bound` raises `BoundExceeded` if
that extra item was there.
"""

from collections.abc import Callable
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
    TransactionGet,
    Update,
)
from tally.store.errors import AccessViolation, BoundExceeded

Paged = TypeVar("Paged", Query, Scan)


def reserve_items(invocation: Invocation, reads: int, writes: int) -> None:
    """Count items before they are sent, so concurrent requests cannot exceed the bound."""
    bound = invocation.pattern.bound
    if bound is None:
        return
    read, written = invocation.read + reads, invocation.written + writes
    if read > bound or written > bound:
        check_bound(invocation, reads, writes)
    invocation.read, invocation.written = read, written


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
    declared = invocation.pattern.bound
    if declared is None:
        raise access_violation(invocation, "it needs a bound: declare one as bound=...")
    if bound is None:
        return declared - used
    if not 1 <= bound <= declared:
        raise access_violation(
            invocation, f"bound must be between 1 and the declared {declared}, not {bound}"
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
    invocation.next_page = page.next
    return page.count


def _record_batch_get(invocation: Invocation, _: BatchGet, result: BatchGetResult) -> int:
    invocation.read -= len(result.unprocessed)
    return len(result.items)


def _record_batch_write(
    invocation: Invocation, operation: BatchWrite, result: BatchWriteResult
) -> int:
    unprocessed = batch_size(result.unprocessed)
    invocation.written -= unprocessed
    return batch_size(operation) - unprocessed


def bound_exceeded(invocation: Invocation, what: str, limit: int) -> BoundExceeded:
    """Create the error of a call that exceeds its bound, and count it."""
    count_error(invocation)
    return BoundExceeded(
        f"access pattern {invocation.pattern.name!r}: more than {limit} items would be {what} in"
        " one call"
    )


def access_violation(invocation: Invocation, why: str) -> AccessViolation:
    """Create the error of an undeclared access, and count it."""
    count_error(invocation)
    return AccessViolation(f"access pattern {invocation.pattern.name!r}: {why}")


def count_error(invocation: Invocation) -> None:
    """Count an error of the running call."""
    if invocation.meter is not None:
        invocation.meter.whole.errors += 1


def batch_size(operation: BatchWrite | None) -> int:
    """Return the number of writes of a batch."""
    return 0 if operation is None else len(operation.puts) + len(operation.deletes)


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
