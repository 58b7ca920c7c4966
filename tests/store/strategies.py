"""Hypothesis strategies for values, items, conditions, updates and operations.

Everything is drawn from small pools, so that values meet: a condition uses attributes that items
have, an update follows existing paths, two writes share a key. Operations are plain data
(`tally.store.api`), so hypothesis can shrink and print a failing sequence.
"""

from collections.abc import Callable, Hashable, Iterable
from decimal import Decimal
from functools import cache
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tally.store.expressions import (
    Absent,
    Action,
    Add,
    And,
    BeginsWith,
    Between,
    Compare,
    Condition,
    Contains,
    Discard,
    Exists,
    IfAbsent,
    In,
    Joined,
    Literal,
    Not,
    Or,
    Path,
    Remove,
    Set,
    Size,
    Sum,
    TypeIs,
)
from tally.store.values import Item

# "name" and "size" are reserved words of DynamoDB; "a.b" is one attribute with a dot.
NAMES = ("a", "b", "list", "map", "name", "a.b")
INNER = ("k", "n", "size")
TYPES = ("S", "N", "B", "BOOL", "NULL", "L", "M", "SS", "NS", "BS")

PATHS = (
    *(Path((name,)) for name in NAMES),
    Path(("map", "k")),
    Path(("map", "n")),
    Path(("map", "size")),
    Path(("map", "k", 0)),
    Path(("map", "k", "k")),
    Path(("list", 0)),
    Path(("list", 1)),
    Path(("list", 2)),
    Path(("list", 9)),
    Path(("list", 0, "k")),
    Path(("list", 0, 0)),
    Path(("a", "k")),
    Path(("a", 0)),
    Path(("gone",)),
    Path(("gone", "k")),
)


@cache
def wide_numbers() -> SearchStrategy[Decimal]:
    """Numbers of up to 38 digits, anywhere in the range."""

    def build(digits: int, first: int, negative: bool) -> Decimal:
        number = Decimal(
            (int(negative), tuple(map(int, str(digits))), first - len(str(digits)) + 1)
        )
        return number if digits else Decimal(0)

    return st.builds(build, st.integers(0, 10**38 - 1), st.integers(-92, 125), st.booleans())


@cache
def numbers() -> SearchStrategy[Any]:
    """Mostly small numbers, and some at the limits."""
    near = st.integers(-3, 3)
    fractions = st.decimals(-5, 5, allow_nan=False, places=1)
    edges = st.sampled_from(
        [
            Decimal("1E-130"),
            Decimal("9.9999999999999999999999999999999999999E+125"),
            Decimal("-1E-130"),
            10**37,
            -(10**37),
        ]
    )
    return st.one_of(near, near, fractions, edges, wide_numbers())


@cache
def strings(smallest: int = 0) -> SearchStrategy[str]:
    """Short strings, some outside of ASCII and the basic plane."""
    pool = ("x", "y", "xy", "yx", "é", "\uffff", "😀", "x😀")
    drawn = st.text(st.characters(exclude_categories=["Cs"]), min_size=smallest, max_size=5)
    return st.one_of(st.sampled_from(pool), st.sampled_from(pool), drawn)


@cache
def binaries(smallest: int = 0) -> SearchStrategy[bytes]:
    """Short binaries."""
    return st.one_of(
        st.sampled_from((b"x", b"xy", b"\x00", b"\xff")), st.binary(min_size=smallest, max_size=4)
    )


@cache
def scalars(smallest: int = 0) -> SearchStrategy[Any]:
    """A value of one of the five scalar types."""
    return st.one_of(numbers(), strings(smallest), binaries(smallest), st.booleans(), st.none())


@cache
def sets(smallest: int = 0) -> SearchStrategy[frozenset[Any]]:
    """A set of strings, numbers or binaries."""
    kinds: tuple[SearchStrategy[Any], ...] = (strings(smallest), numbers(), binaries(smallest))
    return st.one_of(*(st.frozensets(kind, min_size=1, max_size=3) for kind in kinds))


def _containers(inside: SearchStrategy[Any]) -> SearchStrategy[Any]:
    return st.one_of(
        st.lists(inside, max_size=3),
        st.dictionaries(st.sampled_from(INNER), inside, max_size=3),
    )


@cache
def values(smallest: int = 0) -> SearchStrategy[Any]:
    """Any value; `smallest` is the minimum length of strings and binaries."""
    return st.recursive(st.one_of(scalars(smallest), sets(smallest)), _containers, max_leaves=5)


@cache
def items(smallest: int = 0) -> SearchStrategy[Item]:
    """Attributes without a key. `list` and `map` usually have the type of their name."""
    value = values(smallest)
    lists = st.one_of(st.lists(value, max_size=3), st.lists(value, max_size=3), value)
    maps = st.dictionaries(st.sampled_from(INNER), value, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "a": value,
            "b": st.one_of(numbers(), value),
            "list": lists,
            "map": st.one_of(maps, maps, value),
            "name": strings(smallest),
            "a.b": value,
        },
    )


@cache
def paths() -> SearchStrategy[Path]:
    """A path that usually exists."""
    return st.integers(0, len(PATHS) - 1).map(lambda position: PATHS[position])


@cache
def _operands(smallest: int) -> SearchStrategy[Any]:
    literal = st.builds(Literal, st.one_of(scalars(smallest), values(smallest)))
    return st.one_of(literal, literal, paths(), st.builds(Size, paths()))


@cache
def _simple_conditions(smallest: int) -> SearchStrategy[Condition]:
    operand = _operands(smallest)
    ordered = st.builds(Literal, st.one_of(numbers(), strings(smallest), binaries(smallest)))
    prefix = st.builds(Literal, st.one_of(strings(smallest), binaries(smallest)))
    subject = st.one_of(paths(), paths(), st.builds(Size, paths()))
    return st.one_of(
        st.builds(Compare, st.sampled_from(("=", "<>")), subject, operand),
        st.builds(
            Compare, st.sampled_from(("<", "<=", ">", ">=")), subject, st.one_of(ordered, paths())
        ),
        st.builds(Between, subject, ordered, ordered),
        st.builds(Between, subject, paths(), ordered),
        st.builds(In, subject, st.lists(operand, min_size=1, max_size=3).map(tuple)),
        st.builds(Exists, paths()),
        st.builds(Absent, paths()),
        st.builds(TypeIs, paths(), st.sampled_from(TYPES)),
        st.builds(BeginsWith, paths(), st.one_of(prefix, paths())),
        st.builds(Contains, paths(), operand),
    )


@cache
def conditions(smallest: int = 0) -> SearchStrategy[Condition]:
    """A condition of a few combined tests."""

    def join(inner: SearchStrategy[Condition]) -> SearchStrategy[Condition]:
        return st.one_of(
            st.builds(And, inner, inner), st.builds(Or, inner, inner), st.builds(Not, inner)
        )

    return st.recursive(_simple_conditions(smallest), join, max_leaves=4)


@cache
def _update_operands(smallest: int) -> SearchStrategy[Any]:
    literal = st.builds(Literal, values(smallest))
    simple = st.one_of(literal, paths())
    number = st.one_of(st.builds(Literal, numbers()), paths())
    a_list = st.one_of(
        st.builds(Literal, st.lists(values(smallest), max_size=2)),
        st.just(Path(("list",))),
        paths(),
    )
    counted = st.builds(IfAbsent, paths(), st.builds(Literal, numbers()))
    listed = st.builds(
        IfAbsent, paths(), st.builds(Literal, st.lists(scalars(smallest), max_size=1))
    )
    return st.one_of(
        literal,
        simple,
        st.builds(Sum, st.sampled_from("+-"), st.one_of(number, counted), number),
        st.builds(IfAbsent, paths(), simple),
        st.builds(Joined, st.one_of(a_list, listed), a_list),
    )


@cache
def actions(smallest: int = 0) -> SearchStrategy[Action]:
    """One update action on a non-key attribute."""
    addend = st.builds(Literal, st.one_of(numbers(), sets(smallest)))
    operand = _update_operands(smallest)
    return st.one_of(
        st.builds(Set, paths(), operand),
        st.builds(Set, paths(), operand),
        st.builds(Remove, paths()),
        st.builds(Add, paths(), addend),
        st.builds(Discard, paths(), st.builds(Literal, sets(smallest))),
    )


@cache
def updates(smallest: int = 0) -> SearchStrategy[tuple[Action, ...]]:
    """The actions of an update, mostly on distinct paths."""
    some = st.lists(actions(smallest), min_size=1, max_size=4)
    apart = some.map(lambda drawn: first_of_each(drawn, lambda action: action.path.parts[0]))
    return st.one_of(apart, apart, some.map(tuple))


def first_of_each(drawn: Iterable[Any], identity: Callable[[Any], Hashable]) -> tuple[Any, ...]:
    """Remove duplicates without drawing again, which would cost more."""
    found: dict[Hashable, Any] = {}
    for value in drawn:
        found.setdefault(identity(value), value)
    return tuple(found.values())
