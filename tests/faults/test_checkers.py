"""The history checkers reject a lost update, a stale read, a write skew and a fork."""

import itertools
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.faults.linearizability import NEVER, Call, linearize
from tests.faults.serializability import Transaction, contradiction


def register(state: Any, operation: Any) -> tuple[Any, Any]:
    """A number that can be read, written and incremented."""
    kind, *value = operation
    if kind == "read":
        return state, state
    if kind == "write":
        return "done", value[0]
    return state + value[0], state + value[0]


def test_sequential_calls_with_correct_results_are_linearized_in_their_order() -> None:
    calls = [Call(1, 2, ("write", 5), "done"), Call(3, 4, ("add", 1), 6), Call(5, 6, ("read",), 6)]
    assert linearize(calls, 0, register) == calls


def test_an_empty_history_is_linearizable() -> None:
    assert linearize([], 0, register) == []


def test_concurrent_calls_may_take_effect_in_either_order() -> None:
    """The call that started first took effect last."""
    first, second = Call(1, 10, ("add", 1), 2), Call(2, 9, ("add", 1), 1)
    assert linearize([first, second], 0, register) == [second, first]


def test_a_lost_update_is_rejected() -> None:
    """Two calls incremented the same zero."""
    assert linearize([Call(1, 10, ("add", 1), 1), Call(2, 9, ("add", 1), 1)], 0, register) is None


def test_a_stale_read_is_rejected() -> None:
    """It started after the write ended, and returned the previous value."""
    write = Call(1, 2, ("write", 5), "done")
    assert linearize([write, Call(3, 4, ("read",), 0)], 0, register) is None
    assert linearize([write, Call(1.5, 4, ("read",), 0)], 0, register) is not None


def test_a_non_monotonic_read_is_rejected() -> None:
    """One reader saw the write, a later one did not, while the write was in progress."""
    write = Call(1, 10, ("write", 5), "done")
    assert (
        linearize([write, Call(2, 3, ("read",), 5), Call(4, 5, ("read",), 0)], 0, register) is None
    )
    assert (
        linearize([write, Call(2, 3, ("read",), 0), Call(4, 5, ("read",), 5)], 0, register)
        is not None
    )


def test_a_call_without_a_return_may_have_taken_effect_or_not() -> None:
    """Once seen it stays visible, and it cannot take effect before it starts."""
    lost = Call(1, NEVER, ("write", 5))
    assert (
        linearize([lost, Call(2, 3, ("read",), 0), Call(4, 5, ("read",), 5)], 0, register)
        is not None
    )
    assert (
        linearize([lost, Call(2, 3, ("read",), 0), Call(4, 5, ("read",), 0)], 0, register)
        is not None
    )
    assert (
        linearize([lost, Call(2, 3, ("read",), 5), Call(4, 5, ("read",), 0)], 0, register) is None
    )
    assert linearize([Call(6, NEVER, ("write", 5)), Call(2, 3, ("read",), 5)], 0, register) is None


def test_a_write_skew_is_rejected() -> None:
    """Each of two transactions saw the other's item unchanged and changed its own."""

    def pair(state: Any, operation: Any) -> tuple[Any, Any]:
        mine, other = operation
        after = list(state)
        after[mine] = "off"
        return state[other], tuple(after)

    calls = [Call(1, 10, (0, 1), "on"), Call(2, 9, (1, 0), "on")]
    assert linearize(calls, ("on", "on"), pair) is None
    assert linearize([calls[0], Call(2, 9, (1, 0), "off")], ("on", "on"), pair) is not None


OPERATIONS = st.one_of(
    st.just(("read",)),
    st.tuples(st.just("write"), st.integers(0, 2)),
    st.tuples(st.just("add"), st.integers(1, 2)),
)
TIMES = st.tuples(st.integers(0, 12), st.integers(1, 6) | st.just(NEVER))
CALLS = st.builds(
    lambda times, operation, result: Call(
        times[0], times[0] + times[1], operation, result, operation == ("read",)
    ),
    TIMES,
    OPERATIONS,
    st.integers(0, 3),
).map(
    lambda call: (
        msgspec.structs.replace(call, result="done") if call.operation[0] == "write" else call
    )
)


def test_a_write_that_changes_nothing_may_take_effect_later() -> None:
    """Two calls wrote zero, concurrently with one that wrote five and was seen."""
    zeros = [Call(1, 20, ("write", 0), "done"), Call(1, 20, ("write", 0), "done")]
    calls = [
        *zeros,
        Call(2, 3, ("write", 5), "done"),
        Call(4, 5, ("read",), 5),
        Call(6, 7, ("read",), 0),
    ]
    assert linearize(calls, 0, register) is not None


@given(st.lists(CALLS, max_size=5))
@settings(max_examples=300)
def test_the_search_agrees_with_an_exhaustive_search(calls: list[Call]) -> None:
    """On small random histories it finds an order exactly if one exists."""
    order = linearize(calls, 0, register)
    assert (order is not None) == any(map(possible, orders(calls)))
    if order is not None:
        assert possible(order)
        assert {id(call) for call in calls if call.returned != NEVER} <= {
            id(call) for call in order
        }


def orders(calls: list[Call]) -> list[tuple[Call, ...]]:
    """All orders of all completed calls with any subset of the others."""
    returned = [call for call in calls if call.returned != NEVER]
    others = [call for call in calls if call.returned == NEVER]
    chosen = itertools.chain.from_iterable(
        itertools.combinations(others, count) for count in range(len(others) + 1)
    )
    return [order for some in chosen for order in itertools.permutations((*returned, *some))]


def possible(order: Any) -> bool:
    """Whether the order respects real time and all results are correct."""
    state: Any = 0
    for position, call in enumerate(order):
        if any(later.returned < call.invoked for later in order[position:]):
            return False
        result, state = register(state, call.operation)
        if call.returned != NEVER and result != call.result:
            return False
    return True


def test_sequential_transactions_are_serializable() -> None:
    history = [
        Transaction(1, 2, {"x": 0, "y": 0}, {"x": 1, "y": 1}),
        Transaction(3, 4, {"x": 1, "y": 1}),
        Transaction(5, 6, {"x": 1, "y": 1}, {"x": 2}),
    ]
    assert contradiction(history) is None


def test_two_writers_of_one_version_are_a_lost_update() -> None:
    history = [Transaction(1, 10, {"x": 0}, {"x": 1}), Transaction(2, 9, {"x": 0}, {"x": 1})]
    assert "two transactions wrote ('x', 1)" in str(contradiction(history))


def test_two_transactions_that_ignore_each_other_are_a_write_skew() -> None:
    both = {"x": 0, "y": 0}
    history = [Transaction(1, 10, both, {"x": 1}), Transaction(2, 9, both, {"y": 1})]
    assert "each came before the next" in str(contradiction(history))
    assert contradiction([history[0], Transaction(2, 9, {"x": 1, "y": 0}, {"y": 1})]) is None


def test_a_read_of_a_partial_transaction_is_detected() -> None:
    history = [
        Transaction(1, 10, {"x": 0, "y": 0}, {"x": 1, "y": 1}),
        Transaction(2, 9, {"x": 1, "y": 0}),
    ]
    assert "each came before the next" in str(contradiction(history))


def test_a_stale_snapshot_is_detected() -> None:
    """A consistent snapshot that was requested after the write ended."""
    write = Transaction(1, 2, {"x": 0}, {"x": 1})
    assert "each came before the next" in str(contradiction([write, Transaction(3, 4, {"x": 0})]))
    assert contradiction([write, Transaction(1.5, 4, {"x": 0})]) is None


def test_readers_that_see_writes_in_different_orders_are_detected() -> None:
    writes = [Transaction(1, 10, {}, {"x": 1}), Transaction(1, 10, {}, {"y": 1})]
    readers = [Transaction(2, 9, {"x": 1, "y": 0}), Transaction(2, 9, {"x": 0, "y": 1})]
    assert "each came before the next" in str(contradiction(writes + readers))
    assert contradiction([*writes, readers[0]]) is None


def test_a_version_without_a_writer_is_detected() -> None:
    assert "no transaction wrote ('x', 1)" in str(contradiction([Transaction(1, 2, {"x": 1})]))
    assert "no transaction wrote ('x', 1)" in str(
        contradiction([Transaction(1, 2, {"x": 0}, {"x": 2})])
    )
