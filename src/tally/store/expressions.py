"""Conditions, updates, projections and key conditions as frozen data, written in Python.

    F("expiresAt") < now                          absent("lockKey") | (F("expiresAt") < now)
    F("sensors", "humidity_pct").between(0, 100)  F("status").is_in("pending", "active") & ~F("tags").contains("test")
    F("version").set(F("version") + 1)            F("createdAt").set(F("createdAt").if_not_exists(now))
    F("archivedAt").remove()                      F("views").add(1)

The tree is the hub: `evaluate.py` runs it against an item, `encode.py` turns it into DynamoDB's
strings with placeholders for all names and values, so any attribute name may be used, reserved
words and dots included. A path is its parts: `F("a", "b", 0)` is the first element of `b` in `a`,
while `F("a.b")` is one attribute with a dot in its name.
"""

from functools import lru_cache
from typing import Any, NoReturn, TypeAlias

from msgspec import Struct

from tally.store.errors import InvalidExpression
from tally.store.values import Type


class Path(Struct, frozen=True):
    """Where a value is: an attribute, then names into maps and positions in lists."""

    parts: tuple[str | int, ...]

    def __str__(self) -> str:
        first, *rest = self.parts
        return str(first) + "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in rest
        )


class Literal(Struct, frozen=True):
    """A value given by the caller."""

    value: Any


class Size(Struct, frozen=True):
    """The size of what is at a path: UTF-16 units of a string, bytes of a binary, elements of the rest."""

    path: Path


Operand: TypeAlias = Path | Literal | Size


class Condition(Struct, frozen=True):
    """Something that holds of an item or does not.

    It joins with `&`, `|` and `~`, and has no truth value.
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
            "a condition has no truth value here: join conditions with &, | and ~, in brackets"
        )


class And(Condition, frozen=True):
    left: Condition
    right: Condition


class Or(Condition, frozen=True):
    left: Condition
    right: Condition


class Not(Condition, frozen=True):
    inner: Condition


class Compare(Condition, frozen=True):
    """`operator` is one of = <> < <= > >=."""

    operator: str
    left: Operand
    right: Operand


class Between(Condition, frozen=True):
    value: Operand
    low: Operand
    high: Operand


class In(Condition, frozen=True):
    value: Operand
    options: tuple[Operand, ...]


class Exists(Condition, frozen=True):
    path: Path


class Absent(Condition, frozen=True):
    path: Path


class TypeIs(Condition, frozen=True):
    path: Path
    type: Type


class BeginsWith(Condition, frozen=True):
    path: Path
    prefix: Operand


class Contains(Condition, frozen=True):
    path: Path
    element: Operand


class Sum(Struct, frozen=True):
    """`left + right` or `left - right`, of numbers."""

    operator: str
    left: "UpdateOperand"
    right: "UpdateOperand"


class IfAbsent(Struct, frozen=True):
    """What is at the path, or else the other operand."""

    path: Path
    otherwise: "UpdateOperand"

    def __add__(self, other: Any) -> Sum:
        return Sum("+", self, update_operand(other))

    def __sub__(self, other: Any) -> Sum:
        return Sum("-", self, update_operand(other))


class Joined(Struct, frozen=True):
    """Two lists, one after the other."""

    left: "UpdateOperand"
    right: "UpdateOperand"


UpdateOperand: TypeAlias = Path | Literal | Sum | IfAbsent | Joined


class Action(Struct, frozen=True):
    """One step of an update."""

    path: Path


class Set(Action, frozen=True):
    value: UpdateOperand


class Remove(Action, frozen=True):
    pass


class Add(Action, frozen=True):
    """Add a number to a number, or elements to a set; what is missing starts empty."""

    value: Literal


class Discard(Action, frozen=True):
    """Take elements out of a set."""

    value: Literal


class _Comparable:
    """What stands on the left of a comparison."""

    __slots__ = ("operand",)
    __hash__ = None  # type: ignore[assignment]  # == builds a condition, so this can be no dictionary key

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
        """From low to high, both included."""
        return Between(self.operand, operand(low), operand(high))

    def is_in(self, *options: Any) -> In:
        """Equal to one of the options."""
        return In(self.operand, tuple(operand(option) for option in options))

    def __bool__(self) -> NoReturn:
        raise InvalidExpression("a path has no truth value here: compare it with something")


class F(_Comparable):
    """A field of an item: the start of every condition and update."""

    __slots__ = ("path",)

    def __init__(self, *parts: str | int) -> None:
        self.path = make_path(*parts)
        super().__init__(self.path)

    def exists(self) -> Exists:
        """The field is there, even as NULL."""
        return Exists(self.path)

    def not_exists(self) -> Absent:
        """The field is not there."""
        return Absent(self.path)

    def type_is(self, kind: Type) -> TypeIs:
        """The field is there and of that type."""
        return TypeIs(self.path, kind)

    def begins_with(self, prefix: Any) -> BeginsWith:
        """A string or binary that starts so."""
        return BeginsWith(self.path, operand(prefix))

    def contains(self, element: Any) -> Contains:
        """A string with that part, or a list or set with that element."""
        return Contains(self.path, operand(element))

    def size(self) -> _Comparable:
        """The size of what is there, to compare."""
        return _Comparable(Size(self.path))

    def set(self, value: Any) -> Set:
        """Put a value, another field, a sum or a joined list here."""
        return Set(self.path, update_operand(value))

    def remove(self) -> Remove:
        """Take the field away."""
        return Remove(self.path)

    def add(self, value: Any) -> Add:
        """Add to a number or a set, atomically."""
        return Add(self.path, Literal(value))

    def discard(self, elements: Any) -> Discard:
        """Take elements out of a set."""
        return Discard(self.path, Literal(elements))

    def if_not_exists(self, otherwise: Any) -> IfAbsent:
        """This field, or else the other value; for the right side of `set`."""
        return IfAbsent(self.path, update_operand(otherwise))

    def list_append(self, other: Any) -> Joined:
        """This list with another behind it; for the right side of `set`."""
        return Joined(self.path, update_operand(other))

    def __add__(self, other: Any) -> Sum:
        return Sum("+", self.path, update_operand(other))

    def __sub__(self, other: Any) -> Sum:
        return Sum("-", self.path, update_operand(other))


def exists(*parts: str | int) -> Exists:
    """The field is there, even as NULL."""
    return Exists(make_path(*parts))


def not_exists(*parts: str | int) -> Absent:
    """The field is not there; on a key attribute: the item is not there."""
    return Absent(make_path(*parts))


def list_append(left: Any, right: Any) -> Joined:
    """Two lists, one after the other, either of them a field or a value."""
    return Joined(update_operand(left), update_operand(right))


@lru_cache(maxsize=4096, typed=True)
def make_path(*parts: str | int) -> Path:
    """A path from its parts, the first of them an attribute's name.

    Programs use few, so they are made once.
    """
    if not parts or not isinstance(parts[0], str):
        raise InvalidExpression("a path starts with an attribute's name")
    for part in parts:
        if type(part) not in (str, int) or part == "" or (isinstance(part, int) and part < 0):
            raise InvalidExpression(f"{part!r} is neither a name nor a position in a list")
    return Path(parts)


def operand(value: Any) -> Operand:
    """What stands in a comparison: a field, a size, or a value."""
    if isinstance(value, _Comparable):
        return value.operand
    if isinstance(value, Condition | Action | Sum | IfAbsent | Joined):
        raise InvalidExpression(f"a {type(value).__name__} cannot be compared")
    return Literal(value)


def update_operand(value: Any) -> UpdateOperand:
    """What stands on the right side of a `set`."""
    if isinstance(value, F):
        return value.path
    if isinstance(value, Path | Literal | Sum | IfAbsent | Joined):
        return value
    if isinstance(value, Condition | Action | _Comparable):
        raise InvalidExpression(f"a {type(value).__name__} cannot be stored")
    return Literal(value)


def _condition(value: Any) -> Condition:
    if not isinstance(value, Condition):
        raise InvalidExpression(f"{type(value).__name__} is not a condition")
    return value
