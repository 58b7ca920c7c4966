"""Transactions inside the writer's own: each happens whole or not at all, with a reason for each of its items."""

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
    """A transaction and its writes, checked and encoded by the tables as they stand."""

    operation: Transaction
    steps: list[Step]

    def renewed(self, layouts: Mapping[str, Layout]) -> "PreparedTransaction":
        """The same, checked and encoded again where a table was changed in the meantime."""
        steps = [(layouts[old.table.name], step) for old, step in self.steps]
        return PreparedTransaction(
            self.operation, [(layout, refresh(layout, step)) for layout, step in steps]
        )


def prepare_transaction(
    operation: Transaction, layout_of: Callable[[Table], Layout]
) -> PreparedTransaction:
    """A transaction that was found good once, checked and encoded by the tables as they stand."""
    layouts = [layout_of(write.table) for write in operation.writes]
    return PreparedTransaction(
        operation,
        [
            (layout, prepare(layout, write))
            for layout, write in zip(layouts, operation.writes, strict=True)
        ],
    )


def transact(
    connection: apsw.Connection, asked: PreparedTransaction, now: float
) -> TransactionResult:
    """All writes of a transaction, or none and a reason for each.

    One that happened before costs reads.
    """
    operation, steps = asked.operation, asked.steps
    if operation.token is not None and _seen(connection, operation, now):
        return TransactionResult(
            capacity.transaction_read_capacity(
                read_row(connection, layout, step.key)[1] for layout, step in steps
            )
        )
    changes: list[ItemChange | None] = []
    reasons: list[Reason] = []
    for layout, prepared in steps:
        try:
            changes.append(plan_change(connection, layout, prepared))
            reasons.append(Reason("None"))
        except ConditionFailed as failure:
            reasons.append(Reason("ConditionalCheckFailed", str(failure), failure.item))
        except InvalidRequest as failure:
            reasons.append(Reason("ValidationError", str(failure)))
    if len(changes) < len(operation.writes):
        raise TransactionCancelled(reasons)
    for change in changes:
        if change is not None:
            apply_change(connection, change)
    if operation.token is not None:
        _remember(connection, operation, now)
    return TransactionResult(capacity.transaction_capacity(changes))


def try_transact(
    connection: apsw.Connection, asked: PreparedTransaction, now: float
) -> TransactionResult | StoreError:
    """What became of a transaction, refusals included."""
    try:
        return transact(connection, asked, now)
    except StoreError as refusal:
        return refusal


def _seen(connection: apsw.Connection, operation: Transaction, now: float) -> bool:
    query = "SELECT fingerprint FROM tokens WHERE token = ? AND used > ?"
    row = connection.execute(query, (operation.token, now - TOKEN_SECONDS)).fetchone()
    if row is None:
        return False
    if row[0] != _fingerprint(operation.writes):
        raise TokenMismatch(f"the client token {operation.token} was used for another transaction")
    return True


def _remember(connection: apsw.Connection, operation: Transaction, now: float) -> None:
    connection.execute("DELETE FROM tokens WHERE used <= ?", (now - TOKEN_SECONDS,))
    connection.execute(
        "INSERT INTO tokens VALUES (?, ?, ?)",
        (operation.token, _fingerprint(operation.writes), now),
    )


def _fingerprint(writes: Sequence[Write]) -> bytes:
    """The same for the same writes, whatever the order of names in a map or of elements in a set."""
    return hashlib.sha256(repr(_canonical(list(writes))).encode()).digest()


def _canonical(value: Any) -> Any:
    if isinstance(value, Table):
        return value.name
    if isinstance(value, Struct):
        return type(value).__name__, [
            _canonical(getattr(value, name)) for name in value.__struct_fields__
        ]
    if isinstance(value, Mapping):
        return "M", sorted((name, _canonical(each)) for name, each in value.items())
    if isinstance(value, set | frozenset):
        return "S", sorted(repr(_canonical(each)) for each in value)
    if isinstance(value, list | tuple):
        return [_canonical(each) for each in value]
    return normalize_number(value) if isinstance(value, Decimal) else value
