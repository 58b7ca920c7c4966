"""Could this have happened one call at a time? A search for an order that explains a recorded history (Wing and Gong's).

A history is linearisable if its calls can be put in an order in which each takes effect at some moment between being asked and
being answered, and in which the specification, a plain function of a state, gives just the answers that were given. A call
that was never answered (its process was killed) may have taken effect at any time after it was asked, or never.

The search tries, at each point, every call that may come next: one that was asked before the first of the remaining answers. What
keeps it short: a call that changes nothing is taken as soon as its answer fits, since it can be in nobody's way; and a set of
calls that has led to the same state before is not tried again (Lowe's addition).
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

from msgspec import Struct

NEVER = math.inf
# From a state, which must be hashable, and an operation to its answer and the next state.
Specification: TypeAlias = Callable[[Any, Any], tuple[Any, Any]]


class Call(Struct, frozen=True):
    """What a client asked, when, and what it was told, when."""

    asked: float
    answered: float
    operation: Any
    answer: Any = None


class _Move(NamedTuple):
    done: int
    state: Any
    call: Call | None


def linearise(calls: Iterable[Call], start: Any, specification: Specification) -> list[Call] | None:
    """An order that explains the history, or None where there is none."""
    search = _Search(calls, specification)
    seen = {(0, start)}
    trail = [(_Move(0, start, None), search.moves(0, start))]
    while trail:
        move = next(trail[-1][1], None)
        if move is None:
            trail.pop()
        elif search.explained(move.done):
            return [call for (_, _, call), _ in trail if call is not None] + ([move.call] if move.call else [])
        elif (move.done, move.state) not in seen:
            seen.add((move.done, move.state))
            trail.append((move, search.moves(move.done, move.state)))
    return [] if search.explained(0) else None


class _Search:
    """The calls by the time they were asked; a set of them is a number with one bit for each."""

    def __init__(self, calls: Iterable[Call], specification: Specification) -> None:
        self._calls = sorted(calls, key=lambda call: call.asked)
        self._specification = specification
        self._answered = sum(1 << position for position, call in enumerate(self._calls) if call.answered != NEVER)

    def explained(self, done: int) -> bool:
        """Whether all calls that were answered have their place."""
        return self._answered & ~done == 0

    def moves(self, done: int, state: Any) -> Iterator[_Move]:
        """The calls that may come next, with what they lead to; just one if that one changes nothing."""
        moves = []
        for position in self._possible(done):
            call = self._calls[position]
            answer, after = self._specification(state, call.operation)
            if call.answered != NEVER and answer != call.answer:
                continue
            move = _Move(done | 1 << position, after, call)
            if after == state and call.answered != NEVER:
                return iter((move,))
            moves.append(move)
        return iter(moves)

    def _possible(self, done: int) -> Iterator[int]:
        first_answer = NEVER
        first_open = (~done & (done + 1)).bit_length() - 1
        for position in range(first_open, len(self._calls)):
            if not done >> position & 1:
                call = self._calls[position]
                if call.asked > first_answer:
                    return
                first_answer = min(first_answer, call.answered)
                yield position
