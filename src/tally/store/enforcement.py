"""Enforces access patterns: which requests a call may send.

`authorize` rejects an operation before it is sent: one that is not declared, or has another key,
condition, filter or projection, or is sent too often, or writes attributes that the table does not
allow. This runs for every operation, so type-specific code is found by dictionary lookup.
"""

from collections.abc import Callable, Sequence
from typing import Any

from tally.store.access import Invocation
from tally.store.api import (
    BatchGet,
    BatchWrite,
    Delete,
    Get,
    Operation,
    Put,
    Query,
    ReadChanges,
    Scan,
    Transaction,
    TransactionBatch,
    TransactionGet,
    Update,
    Write,
    operation_name,
)
from tally.store.attributes import batch_problem, item_problem, update_problem
from tally.store.bounds import access_violation, batch_size, check_bound, count_error, reserve_items
from tally.store.errors import AccessViolation, InvalidValue
from tally.store.pattern_operations import UseKey
from tally.store.request_checks import RequestCheck
from tally.store.schema import Table
from tally.store.templates import requires_item

_GET: UseKey = ("GetItem", None)
_BATCH_GET: UseKey = ("BatchGetItem", None)
_GET_RECORDS: UseKey = ("GetRecords", None)
_BATCH_WRITE: UseKey = ("BatchWriteItem", None)
_WRITE_KEYS: dict[type, UseKey] = {
    kind: (name, None)
    for kind, name in ((Put, "PutItem"), (Update, "UpdateItem"), (Delete, "DeleteItem"))
}


def authorize(
    invocation: Invocation, operation: Operation | ReadChanges, *, counted: bool = False
) -> UseKey:
    """Return the declared use that this operation matches, or raise AccessViolation.

    `counted`: the request is part of a read or write that `begin` has counted.
    """
    if invocation.ended:
        raise _ended(invocation)
    return _AUTHORIZE[type(operation)](invocation, operation, counted)


def begin(invocation: Invocation, operation: Query | Scan | BatchGet | BatchWrite) -> None:
    """Count a read or write of several requests, whose bound limits them, as one request.

    A batch is checked as a whole, before its first request.
    """
    if invocation.ended:
        raise _ended(invocation)
    if isinstance(operation, BatchGet):
        _check_batch_get(invocation, operation)
    elif isinstance(operation, BatchWrite):
        _check_batch_write(invocation, operation)
    else:
        _find(invocation, (operation_name(operation), operation.index))


def _ended(invocation: Invocation) -> AccessViolation:
    return access_violation(
        invocation, "the method has returned; tasks that it started may not access the store"
    )


def _find(
    invocation: Invocation, key: UseKey, table: Table | None = None, *, counted: bool = False
) -> RequestCheck:
    """Return the declared operation on this table, and count the request."""
    check = invocation.pattern.allowed.get(key)
    if check is None:
        where = "" if key[1] is None else f" on {key[1]}"
        label = invocation.pattern.operation_label
        raise access_violation(invocation, f"it declares {label}, not {key[0]}{where}")
    if table is not check.table and table is not None and not check.is_on(table):
        problem = f"it declares table {check.table.name}, not {table.name}"
        raise access_violation(invocation, problem)
    if not counted:
        sent = invocation.sent.get(key, 0)
        if sent >= check.requests:
            raise access_violation(
                invocation,
                f"it declares {check.requests:,} {key[0]} per call; declare more as requests=...",
            )
        invocation.sent[key] = sent + 1
    return check


def _authorize_page(invocation: Invocation, operation: Query | Scan, counted: bool) -> UseKey:
    key = (operation_name(operation), operation.index)
    is_next_page = (
        operation.start is not None
        and operation.start is invocation.next_page
        and invocation.pattern.bound is not None
    )
    check = _find(invocation, key, operation.table, counted=counted or is_next_page)
    problem = (
        (check.range_problem(operation) if type(operation) is Query else None)
        or check.condition_problem(operation.filter)
        or check.projection_problem(operation.projection)
    )
    if problem is not None:
        raise access_violation(invocation, problem)
    check_bound(invocation)
    return key


def _authorize_get(invocation: Invocation, operation: Get, counted: bool) -> UseKey:
    check = _find(invocation, _GET, operation.table, counted=counted)
    key_fits = check.fits_key is None or check.fits_key(operation.key)
    if not key_fits or operation.projection != check.projection:
        _require(invocation, check.write_problem(operation))
    reserve_items(invocation, 1, 0)
    return _GET


def _authorize_write(
    invocation: Invocation, operation: Put | Update | Delete, counted: bool
) -> UseKey:
    key = _WRITE_KEYS[type(operation)]
    check = _find(invocation, key, operation.table, counted=counted)
    problem = check.write_problem(operation)
    if problem is not None:
        raise access_violation(invocation, problem)
    if operation.table.validated:
        _check_attributes(invocation, operation)
    reserve_items(invocation, 0, 1)
    return key


def _authorize_changes(invocation: Invocation, operation: ReadChanges, counted: bool) -> UseKey:
    _find(invocation, _GET_RECORDS, operation.table, counted=counted)
    return _GET_RECORDS


def _authorize_batch_get(invocation: Invocation, operation: BatchGet, counted: bool) -> UseKey:
    if not counted:
        _check_batch_get(invocation, operation)
    reserve_items(invocation, len(operation.keys), 0)
    return _BATCH_GET


def _check_batch_get(invocation: Invocation, operation: BatchGet) -> None:
    check = _find(invocation, _BATCH_GET, operation.table)
    _require(invocation, check.projection_problem(operation.projection))
    for key in operation.keys:
        _require(invocation, check.key_problem(key))


def _authorize_batch_write(invocation: Invocation, operation: BatchWrite, counted: bool) -> UseKey:
    if not counted:
        _check_batch_write(invocation, operation)
    reserve_items(invocation, 0, batch_size(operation))
    return _BATCH_WRITE


def _check_batch_write(invocation: Invocation, operation: BatchWrite) -> None:
    table = operation.table
    check = _find(invocation, _BATCH_WRITE, table)
    for item in operation.puts:
        _require(invocation, check.key_problem(item))
        _require_valid(invocation, table, item_problem(table, item))
    for key in operation.deletes:
        _require(invocation, check.key_problem(key))


def _authorize_transaction(
    invocation: Invocation, operation: Transaction | TransactionGet, counted: bool
) -> UseKey:
    writes = operation.writes if isinstance(operation, Transaction) else ()
    gets = operation.gets if isinstance(operation, TransactionGet) else ()
    key = (operation_name(operation), None)
    check = _find(invocation, key, counted=counted)
    _require(invocation, check.transaction_problem(writes or gets))
    for write in writes:
        _check_attributes(invocation, write)
    reserve_items(invocation, len(gets), len(writes))
    return key


def authorize_batch(invocation: Invocation, operations: Sequence[Transaction]) -> UseKey:
    """Authorize many transactions, which count as one request."""
    if invocation.ended:
        raise _ended(invocation)
    key = ("TransactWriteItems", None)
    check = _find(invocation, key)
    if not isinstance(operations, TransactionBatch):
        for operation in operations:
            _authorize_transaction(invocation, operation, counted=True)
        return key
    _require(invocation, check.batch_problem(operations.puts))
    for put in operations.puts:
        _require_valid(invocation, put.table, batch_problem(put.table, put))
    reserve_items(invocation, 0, len(operations) * len(operations.puts))
    return key


def _check_attributes(invocation: Invocation, write: Write) -> None:
    """Reject an item whose attributes are not those that its table declares."""
    table = write.table
    if not table.validated:
        return
    if type(write) is Put:
        problem = item_problem(table, write.item)
    elif type(write) is Update:
        may_create = not requires_item(write.condition)
        problem = update_problem(table, write.actions, may_create=may_create)
    else:
        return
    if problem is not None:
        _require_valid(invocation, table, problem)


def _require(invocation: Invocation, problem: str | None) -> None:
    if problem is not None:
        raise access_violation(invocation, problem)


def _require_valid(invocation: Invocation, table: Table, problem: str | None) -> None:
    if problem is not None:
        count_error(invocation)
        raise InvalidValue(f"table {table.name}: {problem}")


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
    ReadChanges: _authorize_changes,
}
