"""Computes consumed capacity by DynamoDB's rules.

Reads count in steps of 4 KB, half for eventual consistency; writes in steps of 1 KB. Transactions
double both. Every index entry that a write changes counts as a write.
"""

from collections.abc import Iterable

from tally.store.api import Capacity
from tally.store.sqlite.layout import WRITE_STEP_BYTES, ItemChange

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


def transaction_read_capacity(sizes: Iterable[int]) -> Capacity:
    """Return the cost of a consistent snapshot of items."""
    return Capacity(read=sum(2.0 * read_steps(size) for size in sizes))


def write_steps(size: int) -> int:
    """Return the steps of writing this many bytes; at least one."""
    return max(1, -(-size // WRITE_STEP_BYTES))


def write_units(size: int) -> float:
    """Return the cost of writing this many bytes."""
    return float(write_steps(size))


def change_capacity(change: ItemChange) -> Capacity:
    """Return the cost of a change.

    The larger of both item sizes counts, plus the changed index entries.
    """
    units = write_units(max(change.before_size, change.after_size))
    for index in change.layout.indexes:
        before = (
            index.project(change.before)
            if change.before is not None and index.read_key(change.before)
            else None
        )
        after = (
            index.project(change.after)
            if change.after is not None and index.read_key(change.after)
            else None
        )
        if before == after:
            continue
        old = 0 if before is None else index.projected_size(before, change.before_size)
        new = 0 if after is None else index.projected_size(after, change.after_size)
        if (
            before is not None
            and after is not None
            and index.read_key(before) != index.read_key(after)
        ):
            units += write_units(old) + write_units(new)
        else:
            units += write_units(max(old, new))
    return Capacity(write=units)


def transaction_capacity(changes: Iterable[ItemChange | None]) -> Capacity:
    """Return the cost of a transaction's writes and checks."""
    return Capacity(
        write=sum(
            2.0 * (1.0 if change is None else change_capacity(change).write) for change in changes
        )
    )
