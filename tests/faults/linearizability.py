"""Checks that a recorded history is linearizable, with Wing and Gong's search.

A history is linearizable if its calls have an order in which each takes effect between its
invocation and its return, and in which the specification, a pure function of a state, produces the
recorded results. A call that never returned, because its process was killed, may have taken effect
at any time after its invocation, or never.

At each point the search tries every call that may come next: one that was invoked before the first
of the remaining returns. Two rules limit the search. A read-only call is taken as soon as its
result fits, because it does not affect the others. A set of calls that led to the same state before
is not tried again (Lowe's extension).
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

from msgspec import Struct

NEVER = math.inf
# Maps a hashable state and an operation to the result and the next state.
Specification: TypeAlias = Callable[[Any, Any], tuple[Any, Any]]


class Call(Struct, frozen=True):
    """A client's call with its start, end, arguments and result.

    A `read_only` call is a read or a rejected write.
    """

    invoked: float
    returned: float
    operation: Any
    result: Any = None
    read_only: bool = False


class _CallSet(NamedTuple):
    """A compact set of calls: all before `first`, and later ones by bit."""

    first: int = 0
    beyond: int = 0

    def with_call(self, position: int) -> "_CallSet":
        first, beyond = self.first, self.beyond | 1 << (position - self.first)
        passed = (~beyond & (beyond + 1)).bit_length() - 1
        return _CallSet(first + passed, beyond >> passed)


class _Move(NamedTuple):
    done: _CallSet
    state: Any
    call: Call | None


def linearize(calls: Iterable[Call], start: Any, specification: Specification) -> list[Call] | None:
    """Return an order that explains the history, or None."""
    search = _Search(calls, specification)
    move: _Move | None = _Move(_CallSet(), start, None)
    trail: list[tuple[_Move, Iterator[_Move]]] = []
    seen: set[tuple[_CallSet, Any]] = set()
    while True:
        if move is None:
            if not trail:
                return None
            trail.pop()
        elif search.explained(move.done):
            return [
                step.call
                for step in (*(taken for taken, _ in trail), move)
                if step.call is not None
            ]
        elif (move.done, move.state) not in seen:
            seen.add((move.done, move.state))
            trail.append((move, search.moves(move.done, move.state)))
        move = next(trail[-1][1], None) if trail else None


class _Search:
    """The calls, sorted by invocation."""

    def __init__(self, calls: Iterable[Call], specification: Specification) -> None:
        self._calls = sorted(calls, key=lambda call: call.invoked)
        self._specification = specification
        self._last = max(
            (position for position, call in enumerate(self._calls) if call.returned != NEVER),
            default=-1,
        )

    def explained(self, done: _CallSet) -> bool:
        """Whether all completed calls have a position."""
        return all(
            self._calls[position].returned == NEVER
            for position in self._open(done)
            if position <= self._last
        )

    def moves(self, done: _CallSet, state: Any) -> Iterator[_Move]:
        """The possible next calls and their states; only one if it is read-only."""
        moves = []
        for position in self._possible(done):
            call = self._calls[position]
            result, after = self._specification(state, call.operation)
            if call.returned != NEVER and result != call.result:
                continue
            move = _Move(done.with_call(position), after, call)
            if call.read_only:
                return iter((move,))
            moves.append(move)
        return iter(moves)

    def _open(self, done: _CallSet) -> Iterator[int]:
        return (
            place
            for place in range(done.first, len(self._calls))
            if not done.beyond >> (place - done.first) & 1
        )

    def _possible(self, done: _CallSet) -> Iterator[int]:
        first_return = NEVER
        for position in self._open(done):
            call = self._calls[position]
            if call.invoked > first_return:
                return
            first_return = min(first_return, call.returned)
            yield position
