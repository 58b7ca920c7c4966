"""Transactions inside the writer's own: each happens whole or not at all, with a reason for each of its items.

Many that were asked for at once, each on its own, mostly look alike: some puts of new items. These are written table by table
instead of one by one, which saves most of Python's share of the cost.
"""

import hashlib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import apsw
from msgspec import Struct

from tally.store.api import Capacity, Put, Transacted, Transaction, Write
from tally.store.errors import ConditionFailed, InvalidRequest, Reason, StoreError, TokenMismatch, TransactionCancelled
from tally.store.expressions import Absent, Condition
from tally.store.schema import Table
from tally.store.sqlite import capacity
from tally.store.sqlite.codec import exact
from tally.store.sqlite.layout import Change, Layout
from tally.store.sqlite.writes import Prepared, carry_out, decide, read_row, renew, sizes_at, upsert_all

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


class _Column(Struct, frozen=True):
    """The first writes of some transactions, or the second ones, and so on: all puts into one table."""

    layout: Layout
    puts: list[Prepared]
    only_new: bool


def transact(connection: apsw.Connection, asked: Asked, now: float) -> Transacted:
    """All writes of a transaction, or none and a reason for each. One that happened before costs reads."""
    operation, steps = asked.operation, asked.steps
    if operation.token is not None and _seen(connection, operation, now):
        return Transacted(capacity.of_transaction_reads(read_row(connection, layout, step.key)[1] for layout, step in steps))
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


def transact_each(connection: apsw.Connection, all_asked: Sequence[Asked], now: float) -> list[Transacted | StoreError]:
    """What became of each transaction, all of them applied in order or as if they had been."""
    columns = _columns(all_asked)
    if columns is None:
        return [_outcome(connection, asked, now) for asked in all_asked]
    sizes = [sizes_at(connection, column.layout, column.puts) for column in columns]
    taken: set[int] = set()
    for column, olds in zip(columns, sizes, strict=True):
        if column.only_new:
            taken.update(position for position, old in enumerate(olds) if old is not None)
    for column in columns:
        free = [put for position, put in enumerate(column.puts) if position not in taken] if taken else column.puts
        upsert_all(connection, column.layout, free)
    costs = [_costs_of(*column) for column in zip(columns, sizes, strict=True)]
    return [
        _outcome(connection, asked, now) if position in taken else _TRANSACTED[sum(units)]
        for position, (asked, units) in enumerate(zip(all_asked, zip(*costs, strict=True), strict=True))
    ]


def _outcome(connection: apsw.Connection, asked: Asked, now: float) -> Transacted | StoreError:
    try:
        return transact(connection, asked, now)
    except StoreError as refusal:
        return refusal


def _columns(all_asked: Sequence[Asked]) -> list[_Column] | None:
    """The writes table by table if their order does not matter: puts of different items that ask for absence, if anything."""
    if any(asked.operation.token is not None for asked in all_asked):
        return None
    if len({len(asked.steps) for asked in all_asked}) != 1:
        return None
    columns: list[_Column] = []
    for steps in zip(*(asked.steps for asked in all_asked), strict=True):
        layout, first = steps[0]
        condition = None if not isinstance(first.write, Put) else first.write.condition
        puts = [prepared for own, prepared in steps if own is layout and _is_put(prepared.write, condition)]
        if len(puts) != len(steps) or layout.indexes or not (condition is None or _is_absence(condition, layout.table)):
            return None
        if len({put.key for put in puts}) != len(puts):
            return None
        columns.append(_Column(layout, puts, condition is not None))
    return columns if len({column.layout.rows for column in columns}) == len(columns) else None


def _is_put(write: Write, condition: Condition | None) -> bool:
    return type(write) is Put and write.condition is condition


def _is_absence(condition: Condition, table: Table) -> bool:
    """Whether the condition is that there is no such item: every item has its key."""
    return type(condition) is Absent and condition.path.parts == (table.partition.name,)


def _costs_of(column: _Column, sizes: Sequence[int | None]) -> list[float]:
    of_write = capacity.of_write
    return [2.0 * of_write(max(put.size, old or 0)) for put, old in zip(column.puts, sizes, strict=True)]


class _Costs(dict[float, Transacted]):
    """One answer for each cost: such transactions are many, and their answers alike."""

    def __missing__(self, units: float) -> Transacted:
        self[units] = answer = Transacted(Capacity(write=units))
        return answer


_TRANSACTED = _Costs()


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
    connection.execute("INSERT INTO tokens VALUES (?, ?, ?)", (operation.token, _fingerprint(operation.writes), now))


def _fingerprint(writes: Sequence[Write]) -> bytes:
    """The same for the same writes, whatever the order of names in a map or of elements in a set."""
    return hashlib.sha256(repr(_canonical(list(writes))).encode()).digest()


def _canonical(value: Any) -> Any:
    if isinstance(value, Table):
        return value.name
    if isinstance(value, Struct):
        return type(value).__name__, [_canonical(getattr(value, name)) for name in value.__struct_fields__]
    if isinstance(value, Mapping):
        return "M", sorted((name, _canonical(each)) for name, each in value.items())
    if isinstance(value, set | frozenset):
        return "S", sorted(repr(_canonical(each)) for each in value)
    if isinstance(value, list | tuple):
        return [_canonical(each) for each in value]
    return exact(value) if isinstance(value, Decimal) else value
