"""What an operation costs, by DynamoDB's rules.

Reads count in steps of 4 KB, half when eventual; writes in steps of 1 KB; both double in a
transaction; and every index that a write moves or changes is written too.
"""

from collections.abc import Iterable

from tally.store.api import Capacity
from tally.store.sqlite.layout import ItemChange

_READ_STEP = 4096
WRITE_STEP = 1024


def read_steps(size: int) -> int:
    """The steps of reading so many bytes at once; reading nothing costs one."""
    return max(1, -(-size // _READ_STEP))


def read_capacity(size: int, *, consistent: bool, fetched: int = 0) -> Capacity:
    """The cost of reading so many bytes at once, and of the steps that single items were fetched in besides."""
    steps = read_steps(size) + fetched
    return Capacity(read=float(steps) if consistent else steps / 2)


def transaction_read_capacity(sizes: Iterable[int]) -> Capacity:
    """The cost of reading items as they stood together."""
    return Capacity(read=sum(2.0 * read_steps(size) for size in sizes))


def write_steps(size: int) -> int:
    """The steps of writing so many bytes."""
    return max(1, -(-size // WRITE_STEP))


def write_units(size: int) -> float:
    """The cost of writing so many bytes."""
    return float(write_steps(size))


def change_capacity(change: ItemChange) -> Capacity:
    """The cost of a change: the larger of before and after, and what it moves in the indexes."""
    units = write_units(max(change.before_size, change.after_size))
    for index in change.layout.indexes:
        before = (
            index.carry(change.before)
            if change.before is not None and index.read_key(change.before)
            else None
        )
        after = (
            index.carry(change.after)
            if change.after is not None and index.read_key(change.after)
            else None
        )
        if before == after:
            continue
        old = 0 if before is None else index.carried_size(before, change.before_size)
        new = 0 if after is None else index.carried_size(after, change.after_size)
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
    """The cost of a transaction's writes and checks."""
    return Capacity(
        write=sum(
            2.0 * (1.0 if change is None else change_capacity(change).write) for change in changes
        )
    )
