"""Turns expression trees and values into DynamoDB's own form, and its values back into Python.

A request has one `Placeholders`, which all of its expressions share: every attribute name becomes
`#n0`, `#n1`, … and every value `:v0`, `:v1`, …, so no name can be a reserved word and no value can
be read as part of an expression.

    placeholders = Placeholders()
    placeholders.condition(absent("lockKey") | (F("expiresAt") < 9))
    # "attribute_not_exists(#n0) OR #n1 < :v0"
    placeholders.fields()
    # {"ExpressionAttributeNames": {"#n0": "lockKey", "#n1": "expiresAt"},
    # "ExpressionAttributeValues": {":v0": {"N": "9"}}}
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal, Inexact
from typing import Any, TypeAlias

from tally.store.errors import InvalidExpression, InvalidNumber, InvalidValue
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
    Operand,
    Or,
    Path,
    Remove,
    Set,
    Size,
    Sum,
    TypeIs,
    UpdateOperand,
)
from tally.store.values import MAX_DIGITS, Item, type_of

WireValue: TypeAlias = dict[str, Any]
WireItem: TypeAlias = dict[str, WireValue]

_EXACT = Context(prec=MAX_DIGITS, traps=[Inexact])


class Placeholders:
    """The names and values of one request, each listed once."""

    __slots__ = ("_known", "_names", "_values")

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._values: dict[str, WireValue] = {}
        self._known: dict[tuple[str, str | bytes], str] = {}

    def fields(self) -> dict[str, Any]:
        """The fields of the request that explain the placeholders; DynamoDB refuses empty ones, so they are left out."""
        fields: dict[str, Any] = {}
        if self._names:
            fields["ExpressionAttributeNames"] = {
                short: name for name, short in self._names.items()
            }
        if self._values:
            fields["ExpressionAttributeValues"] = self._values
        return fields

    def condition(self, condition: Condition) -> str:
        """A condition, filter or key condition.

        Written without recursion, since a chain of `&` is a deep tree.
        """
        done: list[str] = []
        waiting: list[Condition | str] = [condition]
        while waiting:
            node = waiting.pop()
            if isinstance(node, str):
                done.append(node)
            elif isinstance(node, And | Or | Not):
                waiting += reversed(_pieces(node))
            else:
                done.append(_TESTS[type(node)](self, node))
        return "".join(done)

    def projection(self, paths: Sequence[Path]) -> str:
        """The paths to return."""
        return ", ".join(self.path(path) for path in paths)

    def update(self, actions: Sequence[Action]) -> str:
        """The steps of an update, each clause once."""
        clauses: dict[str, list[str]] = {}
        for action in actions:
            clause, text = self._action(action)
            clauses.setdefault(clause, []).append(text)
        return " ".join(f"{clause} {', '.join(texts)}" for clause, texts in clauses.items())

    def path(self, path: Path) -> str:
        """A path with its names replaced: `#n0.#n1[2]`."""
        first, *rest = path.parts
        return self._name(first) + "".join(
            f"[{part}]" if isinstance(part, int) else f".{self._name(part)}" for part in rest
        )

    def operand(self, operand: Operand | UpdateOperand) -> str:
        """Whatever may stand in a comparison or on the right of a SET."""
        match operand:
            case Path():
                return self.path(operand)
            case Literal(value):
                return self._value(value)
            case Size(path):
                return f"size({self.path(path)})"
            case Sum(operator, left, right):
                return f"{self.operand(left)} {operator} {self.operand(right)}"
            case IfAbsent(path, otherwise):
                return f"if_not_exists({self.path(path)}, {self.operand(otherwise)})"
            case Joined(left, right):
                return f"list_append({self.operand(left)}, {self.operand(right)})"
        raise InvalidExpression(f"{type(operand).__name__} cannot stand in an expression")

    def _action(self, action: Action) -> tuple[str, str]:
        path = self.path(action.path)
        match action:
            case Set(_, value):
                return "SET", f"{path} = {self.operand(value)}"
            case Remove():
                return "REMOVE", path
            case Add(_, value):
                return "ADD", f"{path} {self.operand(value)}"
            case Discard(_, value):
                return "DELETE", f"{path} {self.operand(value)}"
        raise InvalidExpression(f"{type(action).__name__} is no step of an update")

    def _name(self, name: str | int) -> str:
        return self._names.setdefault(str(name), f"#n{len(self._names)}")

    def _value(self, value: Any) -> str:
        wire = to_wire(value)
        ((kind, content),) = wire.items()
        short = f":v{len(self._values)}"
        if isinstance(content, str | bytes):  # by type too: "1" and 1 are two values
            short = self._known.setdefault((kind, content), short)
        self._values.setdefault(short, wire)
        return short


def _pieces(node: And | Or | Not) -> list[Condition | str]:
    """NOT binds closest, then AND, then OR.

    What stands behind a NOT is bracketed for the reader's sake.
    """
    if isinstance(node, Not):
        return ["NOT (", node.inner, ")"]
    if isinstance(node, Or):
        return [node.left, " OR ", node.right]
    return [*_bracketed(node.left), " AND ", *_bracketed(node.right)]


def _bracketed(node: Condition) -> list[Condition | str]:
    return ["(", node, ")"] if isinstance(node, Or) else [node]


_TESTS: dict[type, Callable[[Placeholders, Any], str]] = {
    Compare: lambda to, node: f"{to.operand(node.left)} {node.operator} {to.operand(node.right)}",
    Between: lambda to, node: (
        f"{to.operand(node.value)} BETWEEN {to.operand(node.low)} AND {to.operand(node.high)}"
    ),
    In: lambda to, node: (
        f"{to.operand(node.value)} IN ({', '.join(to.operand(option) for option in node.options)})"
    ),
    Exists: lambda to, node: f"attribute_exists({to.path(node.path)})",
    Absent: lambda to, node: f"attribute_not_exists({to.path(node.path)})",
    TypeIs: lambda to, node: (
        f"attribute_type({to.path(node.path)}, {to.operand(Literal(node.type))})"
    ),
    BeginsWith: lambda to, node: f"begins_with({to.path(node.path)}, {to.operand(node.prefix)})",
    Contains: lambda to, node: f"contains({to.path(node.path)}, {to.operand(node.element)})",
}


def item_to_wire(item: Mapping[str, Any]) -> WireItem:
    """An item or a key as DynamoDB takes it."""
    return {name: to_wire(value) for name, value in item.items()}


def item_from_wire(item: Mapping[str, Mapping[str, Any]]) -> Item:
    """An item or a key as DynamoDB gives it."""
    return {name: from_wire(value) for name, value in item.items()}


def to_wire(value: Any) -> WireValue:
    """One value with its type: `{"N": "38"}`."""
    writer = _WRITERS.get(type(value))
    if writer is None:
        raise InvalidValue(f"{type(value).__name__} is not a type the store knows")
    return writer(value)


def from_wire(value: Mapping[str, Any]) -> Any:
    """One value in Python: whole numbers as `int`, others as `Decimal`, sets as `frozenset`."""
    ((kind, content),) = value.items()
    return _READERS[kind](content)


def _set_to_wire(value: set[Any] | frozenset[Any]) -> WireValue:
    kind = type_of(value)
    if kind == "NS":
        return {kind: [to_wire(element)["N"] for element in value]}
    return {kind: list(value)}


def _decimal_to_wire(value: Decimal) -> WireValue:
    """One text for each number, as an int would have it: not every service knows that 1.0 and 1 are the same key."""
    try:
        return {"N": format(_EXACT.normalize(value), "f") if value else "0"}
    except Inexact:
        raise InvalidNumber(f"{value} has more than {MAX_DIGITS} significant digits") from None


def _number(text: str) -> int | Decimal:
    try:
        return int(text)
    except ValueError:
        number = Decimal(text)
        return int(number) if number == number.to_integral_value() else number


_WRITERS: dict[type, Callable[[Any], WireValue]] = {
    str: lambda value: {"S": value},
    int: lambda value: {"N": str(value)},
    Decimal: _decimal_to_wire,
    bytes: lambda value: {"B": value},
    bool: lambda value: {"BOOL": value},
    type(None): lambda _value: {"NULL": True},
    list: lambda value: {"L": [to_wire(element) for element in value]},
    tuple: lambda value: {"L": [to_wire(element) for element in value]},
    dict: lambda value: {"M": item_to_wire(value)},
    set: _set_to_wire,
    frozenset: _set_to_wire,
}

_READERS: dict[str, Callable[[Any], Any]] = {
    "S": lambda content: content,
    "N": _number,
    "B": lambda content: content,
    "BOOL": lambda content: content,
    "NULL": lambda _content: None,
    "L": lambda content: [from_wire(element) for element in content],
    "M": item_from_wire,
    "SS": frozenset,
    "NS": lambda content: frozenset(map(_number, content)),
    "BS": frozenset,
}
