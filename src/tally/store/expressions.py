"""Conditions, updates, projections and key conditions as immutable data, built in Python.

    F("expiresAt") < now                          not_exists("lockKey") | (F("expiresAt") < now)
    F("sensors", "humidity_pct").between(0, 100)  F("status").is_in("pending", "active")
    F("version").set(F("version") + 1)            F("first").set(F("first").if_not_exists(now))
    F("archivedAt").remove()                      F("views").add(1)

`evaluate.py` evaluates the tree against an item. `encode.py` translates it to DynamoDB's strings
with placeholders for all names and values, so reserved words and dots are allowed in names. A path
is a sequence of parts: `F("a", "b", 0)` is the first element of `b` in `a`; `F("a.b")` is one
attribute with a dot in its name.

The SQLite engine fingerprints transactions by the class names in this module: renaming a class
invalidates the client tokens of the last ten minutes.
"""

from decimal import Decimal
from functools import lru_cache
from typing import Any, NoReturn, TypeAlias

from msgspec import Struct

from tally.store.errors import InvalidExpression
from tally.store.values import MAX_DEPTH, Type, measure_name

MAX_POSITION = 2**31 - 1


class Path(Struct, frozen=True):
    """The location of a value: an attribute, then map keys and list positions."""

    parts: tuple[str | int, ...]

    def __str__(self) -> str:
        first, *rest = self.parts
        return str(first) + "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in rest
        )


class Literal(Struct, frozen=True):
    """A constant value."""

    value: Any


class Size(Struct, frozen=True):
    """The size of the value at a path, or of a constant.

    UTF-16 units of a string, bytes of a binary, else elements.
    """

    path: Path | Literal


Operand: TypeAlias = Path | Literal | Size


class Condition(Struct, frozen=True):
    """A predicate on an item.

    Combine conditions with `&`, `|` and `~`; a condition has no truth value.
    """

    def __and__(self, other: "Condition | None") -> "Condition":
        return self if other is None else And(self, _condition(other))

    def __rand__(self, other: None) -> "Condition":
        return self

    def __or__(self, other: "Condition | None") -> "Condition":
        return self if other is None else Or(self, _condition(other))

    def __ror__(self, other: None) -> "Condition":
        return self

    def __invert__(self) -> "Condition":
        return Not(self)

    def __bool__(self) -> NoReturn:
        raise InvalidExpression(
            "a condition has no truth value: combine conditions with &, | and ~, in parentheses"
        )


class And(Condition, frozen=True):
    """Both conditions are true."""

    left: Condition
    right: Condition


class Or(Condition, frozen=True):
    """At least one condition is true."""

    left: Condition
    right: Condition


class Not(Condition, frozen=True):
    """The condition is false."""

    inner: Condition


class Compare(Condition, frozen=True):
    """A comparison; `operator` is one of = <> < <= > >=."""

    operator: str
    left: Operand
    right: Operand


class Between(Condition, frozen=True):
    """The value is between two bounds, inclusive."""

    value: Operand
    low: Operand
    high: Operand


class In(Condition, frozen=True):
    """The value equals one of the options."""

    value: Operand
    options: tuple[Operand, ...]


class Exists(Condition, frozen=True):
    """The attribute exists."""

    path: Path


class Absent(Condition, frozen=True):
    """The attribute does not exist."""

    path: Path


class TypeIs(Condition, frozen=True):
    """The attribute has this type."""

    path: Operand
    type: Type


class BeginsWith(Condition, frozen=True):
    """The string or binary starts with a prefix."""

    path: Operand
    prefix: Operand


class Contains(Condition, frozen=True):
    """The string has a substring, or the list or set an element."""

    path: Operand
    element: Operand


class Sum(Struct, frozen=True):
    """`left + right` or `left - right` of two numbers."""

    operator: str
    left: "UpdateOperand"
    right: "UpdateOperand"


class IfAbsent(Struct, frozen=True):
    """DynamoDB's `if_not_exists`: the value at the path, or else the other operand."""

    path: Path
    otherwise: "UpdateOperand"

    def __add__(self, other: Any) -> Sum:
        return Sum("+", self, update_operand(other))

    def __sub__(self, other: Any) -> Sum:
        return Sum("-", self, update_operand(other))


class Joined(Struct, frozen=True):
    """DynamoDB's `list_append`: two lists, concatenated."""

    left: "UpdateOperand"
    right: "UpdateOperand"


UpdateOperand: TypeAlias = Path | Literal | Sum | IfAbsent | Joined


class Action(Struct, frozen=True):
    """One action of an update."""

    path: Path


class Set(Action, frozen=True):
    """Set an attribute."""

    value: UpdateOperand


class Remove(Action, frozen=True):
    """Remove an attribute."""


class Add(Action, frozen=True):
    """Add a number to a number, or elements to a set; a missing attribute counts as 0 or empty."""

    value: Literal


class Discard(Action, frozen=True):
    """DynamoDB's `DELETE`: remove elements from a set."""

    value: Literal


class _Comparable:
    """The left side of a comparison."""

    __slots__ = ("operand",)
    __hash__ = None  # type: ignore[assignment]  # == builds a condition, so instances are not hashable

    def __init__(self, operand: Operand) -> None:
        self.operand = operand

    def __eq__(self, other: object) -> Compare:  # type: ignore[override]  # builds a condition
        return Compare("=", self.operand, operand(other))

    def __ne__(self, other: object) -> Compare:  # type: ignore[override]  # builds a condition
        return Compare("<>", self.operand, operand(other))

    def __lt__(self, other: Any) -> Compare:
        return Compare("<", self.operand, operand(other))

    def __le__(self, other: Any) -> Compare:
        return Compare("<=", self.operand, operand(other))

    def __gt__(self, other: Any) -> Compare:
        return Compare(">", self.operand, operand(other))

    def __ge__(self, other: Any) -> Compare:
        return Compare(">=", self.operand, operand(other))

    def between(self, low: Any, high: Any) -> Between:
        """Between low and high, inclusive."""
        return Between(self.operand, operand(low), operand(high))

    def is_in(self, *options: Any) -> In:
        """Equal to one of the options."""
        return In(self.operand, tuple(operand(option) for option in options))

    def __bool__(self) -> NoReturn:
        raise InvalidExpression("a path has no truth value: compare it with a value")


class F(_Comparable):
    """A field of an item: the start of every condition and update."""

    __slots__ = ("path",)

    def __init__(self, *parts: str | int) -> None:
        self.path = self.operand = make_path(*parts)

    def exists(self) -> Exists:
        """The field exists, even as NULL."""
        return Exists(self.path)

    def not_exists(self) -> Absent:
        """The field does not exist."""
        return Absent(self.path)

    def type_is(self, kind: Type) -> TypeIs:
        """The field exists and has this type."""
        return TypeIs(self.path, kind)

    def begins_with(self, prefix: Any) -> BeginsWith:
        """The field is a string or binary with this prefix."""
        return BeginsWith(self.path, operand(prefix))

    def contains(self, element: Any) -> Contains:
        """The field is a string with this substring, or a list or set with this element."""
        return Contains(self.path, operand(element))

    def size(self) -> _Comparable:
        """The size of the field, for a comparison."""
        return _Comparable(Size(self.path))

    def set(self, value: Any) -> Set:
        """Set the field to a value, another field, a sum or a concatenated list."""
        return Set(self.path, update_operand(value))

    def remove(self) -> Remove:
        """Remove the field."""
        return Remove(self.path)

    def add(self, value: Any) -> Add:
        """Add to a number or a set, atomically."""
        return Add(self.path, Literal(value))

    def discard(self, elements: Any) -> Discard:
        """Remove elements from a set."""
        return Discard(self.path, Literal(elements))

    def if_not_exists(self, otherwise: Any) -> IfAbsent:
        """This field, or else the given value; for the right side of `set`."""
        return IfAbsent(self.path, update_operand(otherwise))

    def list_append(self, other: Any) -> Joined:
        """This list followed by another; for the right side of `set`."""
        return Joined(self.path, update_operand(other))

    def __add__(self, other: Any) -> Sum:
        return Sum("+", self.path, update_operand(other))

    def __sub__(self, other: Any) -> Sum:
        return Sum("-", self.path, update_operand(other))


def exists(*parts: str | int) -> Exists:
    """The field exists, even as NULL."""
    return Exists(make_path(*parts))


def not_exists(*parts: str | int) -> Absent:
    """The field does not exist. On a key attribute: the item does not exist."""
    return Absent(make_path(*parts))


def list_append(left: Any, right: Any) -> Joined:
    """Two lists, concatenated; each is a field or a value."""
    return Joined(update_operand(left), update_operand(right))


@lru_cache(maxsize=4096, typed=True)
def make_path(*parts: str | int) -> Path:
    """Build a path from its parts; the first is an attribute name.

    The cache helps because a program uses few distinct paths.
    """
    if not parts or not isinstance(parts[0], str):
        raise InvalidExpression("a path must start with an attribute name")
    for part in parts:
        if type(part) not in (str, int) or part == "" or (isinstance(part, int) and part < 0):
            raise InvalidExpression(f"{part!r} is neither a name nor a list position")
        if isinstance(part, str):
            measure_name(part)
        elif part > MAX_POSITION:
            raise InvalidExpression(f"a list position must be at most {MAX_POSITION}, not {part}")
    if len(parts) > MAX_DEPTH:
        raise InvalidExpression(f"a path may have at most {MAX_DEPTH} parts, not {len(parts)}")
    return Path(parts)


def operand(value: Any) -> Operand:
    """Convert a value to an operand of a comparison."""
    if type(value) in _CONSTANTS:
        return Literal(value)
    if isinstance(value, _Comparable):
        return value.operand
    if isinstance(value, (Condition, Action, Sum, IfAbsent, Joined)):
        raise InvalidExpression(f"a {type(value).__name__} cannot be compared")
    return Literal(value)


def update_operand(value: Any) -> UpdateOperand:
    """Convert a value to the right side of a `set`."""
    if type(value) in _CONSTANTS:
        return Literal(value)
    if isinstance(value, F):
        return value.path
    if isinstance(value, (Path, Literal, Sum, IfAbsent, Joined)):
        return value
    if isinstance(value, (Condition, Action, _Comparable)):
        raise InvalidExpression(f"a {type(value).__name__} cannot be stored")
    return Literal(value)


# The most common types of values; a union in `isinstance` would be created on every call.
_CONSTANTS = frozenset((str, int, bool, dict, list, Decimal, type(None)))


def _condition(value: Any) -> Condition:
    if not isinstance(value, Condition):
        raise InvalidExpression(f"{type(value).__name__} is not a condition")
    return value
