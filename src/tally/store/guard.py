"""The rules that hold a call to its access pattern: which operation may go out, and when a call has had enough.

`admit` refuses before anything is sent. `clamp` sees to it that a page never brings more than one item past the bound, and
`settle` counts what came back and raises `BoundExceeded` if that one item was there. This runs with every operation of the
store, so each looks at the operation's type once and no more.
"""

from typing import NamedTuple, TypeVar

from tally.store.access import Invocation
from tally.store.api import (
    Operation,
    Query,
    Scan,
    operation_name,
)
from tally.store.patterns import UseKey

Paged = TypeVar("Paged", Query, Scan)


class Tally(NamedTuple):
    """Items that an operation looked at, wrote, and brought back or changed."""

    reads: int
    writes: int
    items: int


def admit(invocation: Invocation, operation: Operation, *, bounded: bool = False) -> UseKey:
    """Which declared use this operation is, or AccessViolation. `bounded`: the caller stops its page loop itself."""
    pattern = invocation.pattern
    if invocation.ended:
        raise _violation(pattern, "its method has returned; a task it left behind may not go on in its name")
    paged = type(operation) is Query or type(operation) is Scan
    key = operation_name(operation), operation.index if paged else None
    use = pattern.allowed.get(key)
    if use is None:
        where = "" if key[1] is None else f" on {key[1]}"
        raise _violation(pattern, f"it declares {pattern.operation_label}, not {key[0]}{where}")
    _check_tables(pattern, operation)
    if use.conditional and getattr(operation, "condition", None) is None:
        raise _violation(pattern, f"it declares a conditional {use.name}, and this one has no condition")
    if paged:
        _check_page(invocation, operation, use, bounded=bounded)
    elif pattern.bound is not None:
        check_room(invocation, _EXPECTED[type(operation)](operation))
    return key
