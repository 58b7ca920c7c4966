"""Runs transactions inside the writer's SQL transaction.

All writes or none, with a reason per item.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import apsw
from msgspec import Struct

from tally.store.api import Transaction, TransactionResult, Write
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
from tally.store.sqlite.layout import ItemChange, Layout
from tally.store.sqlite.writes import (
    PreparedWrite,
    apply_change,
    plan_change,
    prepare,
    read_row,
    refresh,
)

TOKEN_SECONDS = 600.0

Step: TypeAlias = tuple[Layout, PreparedWrite]


class PreparedTransaction(Struct, frozen=True):
    """A transaction with its writes validated and encoded for the current tables."""

    operation: Transaction
    steps: list[Step]

    def with_layouts(self, layouts: Mapping[str, Layout]) -> "PreparedTransaction":
        """Return the transaction, validated and encoded again for tables that changed."""
        steps = [(layouts[old.table.name], step) for old, step in self.steps]
        return PreparedTransaction(
            self.operation, [(layout, refresh(layout, step)) for layout, step in steps]
        )


def prepare_transaction(
    operation: Transaction, layout_of: Callable[[Table], Layout]
) -> PreparedTransaction:
    """Validate and encode the writes of a transaction for the current tables."""
    layouts = [layout_of(write.table) for write in operation.writes]
    return PreparedTransaction(
        operation,
        [
            (layout, prepare(layout, write))
            for layout, write in zip(layouts, operation.writes, strict=True)
        ],
    )


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
                read_row(connection, layout, step.key)[1] for layout, step in steps
            )
        )
    changes: list[ItemChange | None] = []
    reasons: list[Reason] = []
    for layout, write in steps:
        try:
            changes.append(plan_change(connection, layout, write))
            reasons.append(Reason("None"))
        except ConditionFailed as failure:
            reasons.append(Reason("ConditionalCheckFailed", str(failure), failure.item))
        except InvalidRequest as failure:
            reasons.append(Reason("ValidationError", str(failure)))
    if len(changes) < len(operation.writes):
        raise TransactionCancelled(reasons)
    for change in changes:
        if change is not None:
            apply_change(connection, change, now)
    if operation.token is not None:
        _record_token(connection, operation, now)
    return TransactionResult(capacity.transaction_capacity(changes))


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
