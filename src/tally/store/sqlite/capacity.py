"""Computes consumed capacity by DynamoDB's rules.

Reads count in steps of 4 KB, half for eventual consistency; writes in steps of 1 KB. Transactions
double both. Every index entry that a write changes counts as a write.
"""

from collections.abc import Iterable
from functools import lru_cache

from tally.store.api import Capacity, IndexUnits, TransactionResult, WriteResult
from tally.store.sqlite.layout import WRITE_STEP_BYTES, IndexLayout, ItemChange

_READ_STEP_BYTES = 4096
_ONE_UNIT, _HALF_A_UNIT = Capacity(read=1.0), Capacity(read=0.5)


def read_steps(size: int) -> int:
    """Return the steps of reading this many bytes; at least one."""
    return max(1, -(-size // _READ_STEP_BYTES))


def read_capacity(size: int, *, consistent: bool, fetched_steps: int = 0) -> Capacity:
    """Return the cost of a read.

    `fetched_steps` are those of items that a local index fetches from the table.
    """
    if size <= _READ_STEP_BYTES and not fetched_steps:  # most reads
        return _ONE_UNIT if consistent else _HALF_A_UNIT
    steps = read_steps(size) + fetched_steps
    return Capacity(read=float(steps) if consistent else steps / 2)


def transaction_read_units(sizes: Iterable[int]) -> tuple[float, ...]:
    """Return the cost of each item of a consistent snapshot."""
    return tuple(2.0 * read_steps(size) for size in sizes)


def transaction_read_capacity(sizes: Iterable[int]) -> Capacity:
    """Return the cost of a consistent snapshot of items."""
    return Capacity(read=sum(transaction_read_units(sizes)))


def write_steps(size: int) -> int:
    """Return the steps of writing this many bytes; at least one."""
    return max(1, -(-size // WRITE_STEP_BYTES))


def write_units(size: int) -> float:
    """Return the cost of writing this many bytes."""
    return 1.0 if size <= WRITE_STEP_BYTES else float(write_steps(size))


def table_units(change: ItemChange) -> float:
    """Return the cost of a change of the table: the larger of both item sizes counts."""
    return write_units(max(change.before_size, change.after_size))


def index_units(change: ItemChange) -> IndexUnits:
    """Return the cost of each index whose entry a change affects."""
    indexes = change.layout.indexes
    if not indexes:
        return ()
    costs = [(index.index.name, _index_units(index, change)) for index in indexes]
    return tuple((name, units) for name, units in costs if units)


def _index_units(index: IndexLayout, change: ItemChange) -> float:
    old_key = index.read_key(change.before) if change.before is not None else None
    new_key = index.read_key(change.after) if change.after is not None else None
    before = None if change.before is None or old_key is None else index.project(change.before)
    after = None if change.after is None or new_key is None else index.project(change.after)
    if before == after:
        return 0.0
    old = 0 if before is None else index.projected_size(before, change.before_size)
    new = 0 if after is None else index.projected_size(after, change.after_size)
    if before is not None and after is not None and old_key != new_key:
        return write_units(old) + write_units(new)
    return write_units(max(old, new))


@lru_cache
def write_result(units: float, indexes: IndexUnits = ()) -> WriteResult:
    """Return the result of a write without an item; most writes cost the same and share one."""
    return WriteResult(None, Capacity(write=units + sum(cost for _, cost in indexes)), indexes)


def transaction_result(changes: Iterable[ItemChange | None]) -> TransactionResult:
    """Return the cost of a transaction's writes and checks, which is double that of single ones."""
    return _transaction_result(tuple(map(_transacted, changes)))


@lru_cache
def total_result(units: float) -> TransactionResult:
    """Return the result of a transaction of the bulk path, which does not tell the parts apart."""
    return TransactionResult(Capacity(write=units))


def _transacted(change: ItemChange | None) -> tuple[float, IndexUnits]:
    if change is None:  # a check
        return 2.0, ()
    indexes = tuple((name, 2.0 * units) for name, units in index_units(change))
    return 2.0 * table_units(change), indexes


@lru_cache
def _transaction_result(costs: tuple[tuple[float, IndexUnits], ...]) -> TransactionResult:
    parts = tuple(write_result(units, indexes) for units, indexes in costs)
    return TransactionResult(Capacity(write=sum(part.capacity.write for part in parts)), parts)
