"""Translates expression trees and values to DynamoDB's format, and values back to Python.

All expressions of a request share one `Placeholders`: attribute names become `#n0`, `#n1`, … and
values `:v0`, `:v1`, …. No name can clash with a reserved word, and no value can alter an
expression.

    placeholders = Placeholders()
    placeholders.condition(not_exists("lockKey") | (F("expiresAt") < 9))
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
        """Return the request fields that define the placeholders; DynamoDB rejects empty ones."""
        fields: dict[str, Any] = {}
        if self._names:
            fields["ExpressionAttributeNames"] = {
                placeholder: name for name, placeholder in self._names.items()
            }
        if self._values:
            fields["ExpressionAttributeValues"] = self._values
        return fields

    def condition(self, condition: Condition) -> str:
        """Encode a condition, filter or key condition.

        It does not recurse, because a chain of `&` is a deep tree.
        """
        encoded: list[str] = []
        pending: list[Condition | str] = [condition]
        while pending:
            node = pending.pop()
            if isinstance(node, str):
                encoded.append(node)
            elif isinstance(node, And | Or | Not):
                pending += reversed(_pieces(node))
            else:
                encoded.append(_ENCODERS[type(node)](self, node))
        return "".join(encoded)

    def projection(self, paths: Sequence[Path]) -> str:
        """Encode the paths of a projection."""
        return ", ".join(self.path(path) for path in paths)

    def update(self, actions: Sequence[Action]) -> str:
        """Encode the actions of an update, grouped by clause."""
        clauses: dict[str, list[str]] = {}
        for action in actions:
            clause, text = self._action(action)
            clauses.setdefault(clause, []).append(text)
        return " ".join(f"{clause} {', '.join(texts)}" for clause, texts in clauses.items())

    def path(self, path: Path) -> str:
        """Encode a path with placeholders for its names: `#n0.#n1[2]`."""
        first, *rest = path.parts
        return self._name(first) + "".join(
            f"[{part}]" if isinstance(part, int) else f".{self._name(part)}" for part in rest
        )

    def operand(self, operand: Operand | UpdateOperand) -> str:
        """Encode an operand of a comparison or the right side of a SET."""
        match operand:
            case Path():
                return self.path(operand)
            case Literal(value):
                return self._value(value)
            case Size(path):
                return f"size({self.operand(path)})"
            case Sum(operator, left, right):
                return f"{self.operand(left)} {operator} {self.operand(right)}"
            case IfAbsent(path, otherwise):
                return f"if_not_exists({self.path(path)}, {self.operand(otherwise)})"
            case Joined(left, right):
                return f"list_append({self.operand(left)}, {self.operand(right)})"
        raise InvalidExpression(f"{type(operand).__name__} is not an operand")

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
        raise InvalidExpression(f"{type(action).__name__} is not an update action")

    def _name(self, name: str | int) -> str:
        return self._names.setdefault(str(name), f"#n{len(self._names)}")

    def _value(self, value: Any) -> str:
        wire = to_wire(value)
        ((kind, content),) = wire.items()
        placeholder = f":v{len(self._values)}"
        if isinstance(content, str | bytes):  # the type is part of the cache key: "1" and 1 differ
            placeholder = self._known.setdefault((kind, content), placeholder)
        self._values.setdefault(placeholder, wire)
        return placeholder


def _pieces(node: And | Or | Not) -> list[Condition | str]:
    """Split a node by precedence: NOT binds tightest, then AND, then OR.

    The operand of NOT is parenthesised for readability.
    """
    if isinstance(node, Not):
        return ["NOT (", node.inner, ")"]
    if isinstance(node, Or):
        return [node.left, " OR ", node.right]
    return [*_parenthesised(node.left), " AND ", *_parenthesised(node.right)]


def _parenthesised(node: Condition) -> list[Condition | str]:
    return ["(", node, ")"] if isinstance(node, Or) else [node]


_ENCODERS: dict[type, Callable[[Placeholders, Any], str]] = {
    Compare: lambda placeholders, node: (
        f"{placeholders.operand(node.left)} {node.operator} {placeholders.operand(node.right)}"
    ),
    Between: lambda placeholders, node: (
        f"{placeholders.operand(node.value)} BETWEEN {placeholders.operand(node.low)} AND"
        f" {placeholders.operand(node.high)}"
    ),
    In: lambda placeholders, node: (
        f"{placeholders.operand(node.value)} IN"
        f" ({', '.join(placeholders.operand(option) for option in node.options)})"
    ),
    Exists: lambda placeholders, node: f"attribute_exists({placeholders.path(node.path)})",
    Absent: lambda placeholders, node: f"attribute_not_exists({placeholders.path(node.path)})",
    TypeIs: lambda placeholders, node: (
        f"attribute_type({placeholders.operand(node.path)},"
        f" {placeholders.operand(Literal(node.type))})"
    ),
    BeginsWith: lambda placeholders, node: (
        f"begins_with({placeholders.operand(node.path)}, {placeholders.operand(node.prefix)})"
    ),
    Contains: lambda placeholders, node: (
        f"contains({placeholders.operand(node.path)}, {placeholders.operand(node.element)})"
    ),
}


def item_to_wire(item: Mapping[str, Any]) -> WireItem:
    """Encode an item or a key."""
    return {name: to_wire(value) for name, value in item.items()}


def item_from_wire(item: Mapping[str, Mapping[str, Any]]) -> Item:
    """Decode an item or a key."""
    return {name: from_wire(value) for name, value in item.items()}


def to_wire(value: Any) -> WireValue:
    """Encode one value with its type: `{"N": "38"}`."""
    writer = _WRITERS.get(type(value))
    if writer is None:
        raise InvalidValue(f"{type(value).__name__} is not a supported type")
    return writer(value)


def from_wire(value: Mapping[str, Any]) -> Any:
    """Decode one value: integers as `int`, other numbers as `Decimal`, sets as `frozenset`."""
    ((kind, content),) = value.items()
    return _READERS[kind](content)


def _set_to_wire(value: set[Any] | frozenset[Any]) -> WireValue:
    """Encode a set in the order of its elements, so that equal sets have the same text."""
    kind = type_of(value)
    if kind == "NS":
        return {kind: [to_wire(element)["N"] for element in sorted(value)]}
    return {kind: sorted(value)}


def _decimal_to_wire(value: Decimal) -> WireValue:
    """Encode each number in one canonical form.

    Not every service treats 1.0 and 1 as the same key.
    """
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
