"""Runs transactions inside the writer's SQL transaction.

All writes or none, with a reason per item.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import apsw
from msgspec import Struct

from tally.store.api import Put, Transaction, TransactionResult, Write
from tally.store.errors import (
    ConditionFailed,
    InvalidRequest,
    Reason,
    StoreError,
    TokenMismatch,
    TransactionCancelled,
)
from tally.store.schema import Table
from tally.store.sqlite import capacity
from tally.store.sqlite.codec import normalize_number
from tally.store.sqlite.keys import RowKey
from tally.store.sqlite.layout import ItemChange, Layout
from tally.store.sqlite.rows import read_rows
from tally.store.sqlite.writes import (
    PreparedWrite,
    apply_changes,
    observe_put,
    plan_change,
    prepare,
    read_row,
)
from tally.store.validate import (
    check_distinct_writes,
    check_transaction_form,
    check_transaction_size,
)
from tally.store.values import measure_item

TOKEN_SECONDS = 600.0
_SUCCESS = Reason("None")

# Packed items and their sizes by key, for each SQL table of rows.
StoredRows: TypeAlias = Mapping[str, Mapping[RowKey, tuple[bytes, int]]]


class PreparedTransaction(Struct, frozen=True):
    """A transaction with its writes validated and encoded for the current tables."""

    operation: Transaction
    steps: list[PreparedWrite]

    def with_current(self, layout_of: Callable[[Table], Layout]) -> "PreparedTransaction":
        """Return the transaction, validated and encoded again if a table changed."""
        for step in self.steps:
            if layout_of(step.write.table) is not step.layout:
                return prepare_transaction(self.operation, layout_of)
        return self


def prepare_transaction(
    operation: Transaction, layout_of: Callable[[Table], Layout]
) -> PreparedTransaction:
    """Validate and encode a transaction for the current tables."""
    check_transaction_form(operation)
    steps = [prepare(layout_of(write.table), write) for write in operation.writes]
    if len({(step.layout.rows, step.key) for step in steps}) < len(steps):
        check_distinct_writes(operation.writes)
    total = sum(
        measure_item(step.write.key) if not isinstance(step.write, Put) else step.size
        for step in steps
    )
    check_transaction_size(total)
    for step in steps:
        observe_put(step)
    return PreparedTransaction(operation, steps)


def transact(
    connection: apsw.Connection, prepared: PreparedTransaction, now: float
) -> TransactionResult:
    """Apply all writes, or raise TransactionCancelled with a reason for each.

    A repeated token applies nothing and costs reads.
    """
    operation, steps = prepared.operation, prepared.steps
    if operation.token is not None and _is_repeated(connection, operation, now):
        return TransactionResult(
            capacity.transaction_read_capacity(
                read_row(connection, step.layout, step.key)[1] for step in steps
            )
        )
    changes = plan_transaction(steps, read_stored(connection, steps))
    apply_all(connection, changes, now)
    if operation.token is not None:
        _record_token(connection, operation, now)
    return capacity.transaction_result(changes)


def read_stored(connection: apsw.Connection, steps: Iterable[PreparedWrite]) -> StoredRows:
    """Return the stored items that these writes refer to, by table and key."""
    keys_by_table: dict[str, tuple[Layout, list[RowKey]]] = {}
    for step in steps:
        layout = step.layout
        keys_by_table.setdefault(layout.rows, (layout, []))[1].append(step.key)
    return {
        rows: read_rows(connection, layout, keys) for rows, (layout, keys) in keys_by_table.items()
    }


def plan_transaction(steps: Sequence[PreparedWrite], stored: StoredRows) -> list[ItemChange | None]:
    """Return the change of each write, or raise TransactionCancelled with a reason for each."""
    changes: list[ItemChange | None] = []
    reasons: list[Reason] = []
    for step in steps:
        try:
            changes.append(plan_change(step, stored[step.layout.rows].get(step.key)))
            reasons.append(_SUCCESS)
        except ConditionFailed as failure:
            reasons.append(Reason("ConditionalCheckFailed", str(failure), failure.item))
        except InvalidRequest as failure:
            reasons.append(Reason("ValidationError", str(failure)))
    if len(changes) < len(steps):
        raise TransactionCancelled(reasons)
    return changes


def apply_all(
    connection: apsw.Connection, changes: Iterable[ItemChange | None], now: float
) -> None:
    """Write changes of distinct items, table by table."""
    by_table: dict[str, list[ItemChange]] = {}
    for change in changes:
        if change is not None:
            by_table.setdefault(change.layout.rows, []).append(change)
    for table_changes in by_table.values():
        apply_changes(connection, table_changes, now)


def try_transact(
    connection: apsw.Connection, prepared: PreparedTransaction, now: float
) -> TransactionResult | StoreError:
    """Run a transaction and return its result or its error."""
    try:
        return transact(connection, prepared, now)
    except StoreError as error:
        return error


def _is_repeated(connection: apsw.Connection, operation: Transaction, now: float) -> bool:
    query = "SELECT fingerprint FROM tokens WHERE token = ? AND used > ?"
    row = connection.execute(query, (operation.token, now - TOKEN_SECONDS)).fetchone()
    if row is None:
        return False
    if row[0] != _fingerprint(operation.writes):
        raise TokenMismatch(
            f"the client token {operation.token} was used for a different transaction"
        )
    return True


def _record_token(connection: apsw.Connection, operation: Transaction, now: float) -> None:
    connection.execute("DELETE FROM tokens WHERE used <= ?", (now - TOKEN_SECONDS,))
    connection.execute(
        "INSERT INTO tokens VALUES (?, ?, ?)",
        (operation.token, _fingerprint(operation.writes), now),
    )


def _fingerprint(writes: Sequence[Write]) -> bytes:
    """Hash the writes independently of the order of map keys and set elements.

    The class names in the hash are part of the stored format.
    """
    return hashlib.sha256(repr(_canonical(list(writes))).encode()).digest()


def _canonical(value: Any) -> Any:
    if isinstance(value, Table):
        return value.name
    if isinstance(value, Struct):
        return type(value).__name__, [
            _canonical(getattr(value, name)) for name in value.__struct_fields__
        ]
    if isinstance(value, Mapping):
        return "M", sorted((name, _canonical(element)) for name, element in value.items())
    if isinstance(value, set | frozenset):
        return "S", sorted(repr(_canonical(element)) for element in value)
    if isinstance(value, list | tuple):
        return [_canonical(element) for element in value]
    return normalize_number(value) if isinstance(value, Decimal) else value
