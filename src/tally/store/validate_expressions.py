"""Validates expression trees: operand types, overlapping paths and size limits.

`validate.py` calls these checks for the expressions of each request.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tally.store.encode import Placeholders
from tally.store.errors import InvalidExpression
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
from tally.store.path_overlaps import find_overlap
from tally.store.schema import Table
from tally.store.values import measure_value, type_of

MAX_OPERATORS = 300
MAX_OPTIONS = 100
MAX_EXPRESSION_BYTES = 4096
MAX_SUBSTITUTION_BYTES = 2 * 1024 * 1024
_ALWAYS_SHORT_PARTS = 100  # an encoded part has at most forty bytes
_ORDERED = ("S", "N", "B")
_SETS = ("SS", "NS", "BS")
_TYPES = ("S", "N", "B", "BOOL", "NULL", "L", "M", *_SETS)


def check_condition(condition: Condition, *, is_parsed: bool = False) -> None:
    """Reject a tree with invalid operands or, unless its parser has, too many operators."""
    if not isinstance(condition, Condition):
        raise InvalidExpression(
            f"{condition!r} is not a condition; use F(…), exists(…) or not_exists(…)"
        )
    if type(condition) is Absent or type(condition) is Exists:
        return  # the most common conditions, always valid
    if type(condition) is Compare and type(condition.left) is Path:  # the next most common
        right = condition.right
        _check_values_size(measure_value(right.value, "compare") if type(right) is Literal else 0)
        _check_compare(condition)
        return
    parts = size = 0
    for count, node in enumerate(nodes(condition), 1):
        if count > MAX_OPERATORS and not is_parsed:
            raise InvalidExpression(f"an expression may have at most {MAX_OPERATORS} operators")
        parts += 1 + len(_operands(node))
        size += _check_node(node)
    _check_values_size(size)
    if parts > _ALWAYS_SHORT_PARTS and not is_parsed:
        _check_length(Placeholders().condition(condition))


def _check_values_size(size: int) -> None:
    if size > MAX_SUBSTITUTION_BYTES:
        raise InvalidExpression(
            f"the values of an expression may have at most {MAX_SUBSTITUTION_BYTES} bytes, not"
            f" {size}"
        )


def nodes(condition: Condition) -> Iterator[Condition]:
    """Yield every condition in the tree."""
    pending: list[Condition] = [condition]
    while pending:
        node = pending.pop()
        if isinstance(node, And | Or):
            pending += (node.left, node.right)
        elif isinstance(node, Not):
            pending.append(node.inner)
        yield node


def attribute_names(condition: Condition) -> set[str]:
    """Return the top-level attributes in the tree."""
    return {str(path.parts[0]) for node in nodes(condition) for path in _paths(node)}


def check_projection(paths: Sequence[Path]) -> None:
    """Reject a projection with overlapping paths."""
    if len(paths) > 1:
        _check_overlap(paths)


def check_actions(table: Table, actions: Iterable[Action], *, is_parsed: bool = False) -> None:
    """Reject an update of the key, overlapping paths, and invalid operands."""
    actions = tuple(actions)
    for action in actions:
        if not isinstance(action, Action):
            raise InvalidExpression(
                f"{action!r} is not an update action; use F(…).set, remove, add or discard"
            )
        if action.path.parts[0] in table.key_names:
            raise InvalidExpression(
                f"{action.path.parts[0]} is part of the key and cannot be updated"
            )
        _check_action(action)
    if len(actions) > 1:
        _check_overlap([action.path for action in actions])
    if len(actions) > _ALWAYS_SHORT_PARTS // 8 and not is_parsed:
        _check_length(Placeholders().update(actions))


def _check_length(expression: str) -> None:
    if len(expression) > MAX_EXPRESSION_BYTES:
        raise InvalidExpression(
            f"an encoded expression may have at most {MAX_EXPRESSION_BYTES} bytes, not"
            f" {len(expression)}"
        )


def _check_action(action: Action) -> None:
    if isinstance(action, Set):
        _check_update_operand(action.value)
    elif isinstance(action, Add):
        if _literal_type(action.value, str(action.path)) not in ("N", *_SETS):
            raise InvalidExpression(
                f"add to {action.path} requires a number or a set, not"
                f" {type_of(action.value.value)}"
            )
    elif isinstance(action, Discard):
        if _literal_type(action.value, str(action.path)) not in _SETS:
            raise InvalidExpression(
                f"discard from {action.path} requires a set, not {type_of(action.value.value)}"
            )
    elif not isinstance(action, Remove):
        raise InvalidExpression(f"{type(action).__name__} is not an update action")


def _check_update_operand(operand: Any) -> None:
    if isinstance(operand, Literal):
        measure_value(operand.value, "update")
    elif isinstance(operand, Sum):
        _check_sides(operand, operand.operator, "N", "numbers")
    elif isinstance(operand, Joined):
        _check_sides(operand, "list_append", "L", "lists")
    elif isinstance(operand, IfAbsent):
        _check_update_operand(operand.otherwise)
        _check_distinct(operand.path, operand.otherwise)
        if isinstance(operand.otherwise, Sum | Joined):
            raise InvalidExpression(
                "if_not_exists requires a field or a value, not a nested expression"
            )


def _check_sides(operand: Sum | Joined, name: str, kind: str, kinds: str) -> None:
    for side in (operand.left, operand.right):
        if type(side) is Path:
            continue
        _check_update_operand(side)
        if isinstance(side, Literal) and type_of(side.value) != kind:
            raise InvalidExpression(f"{name} requires {kinds}, not {type_of(side.value)}")
        if isinstance(side, Joined | Sum):
            raise InvalidExpression(f"{name} requires fields and {kinds}, not a nested expression")


def _check_node(node: Condition) -> int:
    """Return the size of the values."""
    size = 0
    for literal in _literals(node):  # first, because the checks below compare valid values
        size += measure_value(literal.value, type(node).__name__.lower())
    check = _NODE_CHECKS.get(type(node))
    if check is not None:
        check(node)
    return size


def _check_compare(node: Compare) -> None:
    _check_distinct(node.left, node.right)
    if node.operator not in ("=", "<>"):
        _require_ordered(node.operator, node.left, node.right)


def _check_in(node: In) -> None:
    _check_distinct(node.value, *node.options)
    if not 0 < len(node.options) <= MAX_OPTIONS:
        raise InvalidExpression(
            f"is_in requires 1 to {MAX_OPTIONS} options, not {len(node.options)}"
        )


def _check_begins_with(node: BeginsWith) -> None:
    _check_distinct(node.path, node.prefix)
    if isinstance(node.prefix, Literal) and type_of(node.prefix.value) not in ("S", "B"):
        raise InvalidExpression(
            f"begins_with requires a string or binary, not {type_of(node.prefix.value)}"
        )


def _check_type_is(node: TypeIs) -> None:
    if node.type not in _TYPES:
        raise InvalidExpression(f"{node.type!r} is not a type; the types are {', '.join(_TYPES)}")


def _check_between(node: Between) -> None:
    _check_distinct(node.value, node.low, node.high)
    _require_ordered("between", node.value, node.low, node.high)
    if isinstance(node.low, Literal) and isinstance(node.high, Literal):
        low, high = node.low.value, node.high.value
        if type_of(low) != type_of(high):
            raise InvalidExpression("between requires two bounds of one type")
        if isinstance(low, str):
            low, high = low.encode(), high.encode()
        if low > high:
            raise InvalidExpression("between requires the lower bound first")


_NODE_CHECKS: dict[type, Callable[[Any], None]] = {
    Compare: _check_compare,
    Between: _check_between,
    In: _check_in,
    BeginsWith: _check_begins_with,
    Contains: lambda node: _check_distinct(node.path, node.element),
    TypeIs: _check_type_is,
}


def _require_ordered(operator: str, *operands: Any) -> None:
    for operand in operands:
        if isinstance(operand, Literal) and type_of(operand.value) not in _ORDERED:
            raise InvalidExpression(
                f"{operator} requires strings, numbers or binaries, not {type_of(operand.value)}"
            )


def _check_distinct(first: Any, *others: Any) -> None:
    if isinstance(first, Path) and first in others:
        raise InvalidExpression(f"{first} is compared with itself")


def _operands(node: Condition) -> tuple[Any, ...]:
    if isinstance(node, Compare):
        return node.left, node.right
    if isinstance(node, Between):
        return node.value, node.low, node.high
    if isinstance(node, In):
        return node.value, *node.options
    if isinstance(node, BeginsWith):
        return node.path, node.prefix
    if isinstance(node, Contains):
        return node.path, node.element
    if isinstance(node, Exists | Absent | TypeIs):
        return (node.path,)
    return ()


def _paths(node: Condition) -> Iterator[Path]:
    for operand in _operands(node):
        if isinstance(operand, Path):
            yield operand
        elif isinstance(operand, Size) and isinstance(operand.path, Path):
            yield operand.path


def _literals(node: Condition) -> Iterator[Literal]:
    return (operand for operand in _operands(node) if isinstance(operand, Literal))


def _literal_type(literal: Literal, where: str) -> str:
    measure_value(literal.value, where)
    return type_of(literal.value)


def _check_overlap(paths: Sequence[Path]) -> None:
    """Reject paths that contain each other, or that use one value as a map and as a list."""
    overlap = find_overlap(paths)
    if overlap is None:
        return
    both = f"the paths {overlap.first} and {overlap.second}"
    if overlap.is_containment:
        raise InvalidExpression(f"{both} overlap")
    raise InvalidExpression(f"{both} use the same value as a map and as a list")
