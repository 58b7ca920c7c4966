"""Transactions inside the writer's own: each happens whole or not at all, with a reason for each of its items."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import apsw
from msgspec import Struct

from tally.store.api import Transacted, Transaction, Write
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
from tally.store.sqlite.codec import exact
from tally.store.sqlite.layout import Change, Layout
from tally.store.sqlite.writes import Prepared, carry_out, decide, prepare, read_row, renew

TOKEN_SECONDS = 600.0

Step: TypeAlias = tuple[Layout, Prepared]


class Asked(Struct, frozen=True):
    """A transaction and its writes, checked and encoded by the tables as they stand."""

    operation: Transaction
    steps: list[Step]

    def renewed(self, layouts: Mapping[str, Layout]) -> "Asked":
        """The same, checked and encoded again where a table was changed in the meantime."""
        steps = [(layouts[old.table.name], step) for old, step in self.steps]
        return Asked(self.operation, [(layout, renew(layout, step)) for layout, step in steps])


def asked_of(operation: Transaction, layout_of: Callable[[Table], Layout]) -> Asked:
    """A transaction that was found good once, checked and encoded by the tables as they stand."""
    layouts = [layout_of(write.table) for write in operation.writes]
    return Asked(
        operation,
        [
            (layout, prepare(layout, write))
            for layout, write in zip(layouts, operation.writes, strict=True)
        ],
    )


def transact(connection: apsw.Connection, asked: Asked, now: float) -> Transacted:
    """All writes of a transaction, or none and a reason for each.

    One that happened before costs reads.
    """
    operation, steps = asked.operation, asked.steps
    if operation.token is not None and _seen(connection, operation, now):
        return Transacted(
            capacity.of_transaction_reads(
                read_row(connection, layout, step.key)[1] for layout, step in steps
            )
        )
    changes: list[Change | None] = []
    reasons: list[Reason] = []
    for layout, prepared in steps:
        try:
            changes.append(decide(connection, layout, prepared))
            reasons.append(Reason("None"))
        except ConditionFailed as failure:
            reasons.append(Reason("ConditionalCheckFailed", str(failure), failure.item))
        except InvalidRequest as failure:
            reasons.append(Reason("ValidationError", str(failure)))
    if len(changes) < len(operation.writes):
        raise TransactionCancelled(reasons)
    for change in changes:
        if change is not None:
            carry_out(connection, change)
    if operation.token is not None:
        _remember(connection, operation, now)
    return Transacted(capacity.of_transaction(changes))


def outcome_of(connection: apsw.Connection, asked: Asked, now: float) -> Transacted | StoreError:
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
    return exact(value) if isinstance(value, Decimal) else value
