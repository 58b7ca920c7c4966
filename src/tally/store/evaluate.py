"""Evaluates conditions, updates and projections on items by DynamoDB's rules.

Nothing modifies an item in place: an update returns a new item that shares unchanged parts, so it
is safe to compute it twice.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal, Inexact, InvalidOperation, Overflow
from functools import partial
from operator import eq, ge, gt, le, lt, ne
from typing import Any, TypeAlias, cast

from tally.store.errors import InvalidExpression, InvalidNumber
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
    TypeIs,
)
from tally.store.values import MAX_DIGITS, Item, type_of

MISSING: Any = object()
_EXACT = Context(
    prec=MAX_DIGITS,
    Emax=999,
    Emin=-999,
    rounding=ROUND_HALF_UP,
    traps=[InvalidOperation, Overflow, Inexact],
)
_ORDERED = ("S", "N", "B")
_SCALARS = frozenset((str, int, bool, Decimal, bytes))


def matches(condition: Condition, item: Mapping[str, Any]) -> bool:
    """Whether the condition is true for the item; a missing item counts as empty."""
    return _EVALUATORS[type(condition)](condition, item)


def predicate(condition: Condition) -> Callable[[Mapping[str, Any]], bool]:
    """Compile a condition into a function, for use on many items.

    Only conjunctions and comparisons of an attribute with a constant, the usual filters, get
    faster.
    """
    if isinstance(condition, And):
        left, right = predicate(condition.left), predicate(condition.right)
        return lambda item: left(item) and right(item)
    if (
        isinstance(condition, Compare)
        and isinstance(condition.left, Path)
        and len(condition.left.parts) == 1
        and isinstance(condition.right, Literal)
        and type(condition.right.value) in _DIRECTLY_COMPARABLE
    ):
        return _compare_with_constant(condition, condition.left.parts[0], condition.right.value)
    return partial(matches, condition)


def _compare_with_constant(
    node: Compare, name: str | int, constant: str | int
) -> Callable[[Mapping[str, Any]], bool]:
    kind, compare = type(constant), _COMPARISONS[node.operator]

    def is_true(item: Mapping[str, Any]) -> bool:
        value = item.get(cast("str", name))
        return compare(value, constant) if type(value) is kind else _compare(node, item)

    return is_true


def resolve_path(item: Any, path: Path) -> Any:
    """Return the value at the path, or MISSING."""
    parts = path.parts
    if len(parts) == 1 and type(item) is dict:  # the most common case
        return item.get(parts[0], MISSING)
    value = item
    for part in parts:
        if isinstance(part, str):
            if not isinstance(value, dict) or part not in value:
                return MISSING
        elif not isinstance(value, list | tuple) or part >= len(value):
            return MISSING
        value = value[part]
    return value


def _resolve(operand: Any, item: Mapping[str, Any]) -> Any:
    kind = type(operand)
    if kind is Literal:
        return operand.value
    if kind is Path:
        return (
            item.get(operand.parts[0], MISSING)
            if len(operand.parts) == 1
            else resolve_path(item, operand)
        )
    return _size(_resolve(operand.path, item))


def _size(value: Any) -> Any:
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode("utf-16-le")) // 2
    return (
        len(value) if isinstance(value, bytes | list | tuple | dict | set | frozenset) else MISSING
    )


def equal(left: Any, right: Any) -> bool:
    """Whether two values have the same type and are equal; 1 does not equal True, at any depth."""
    if left is MISSING or right is MISSING:
        return False
    if type(left) is type(right) and type(left) in _SCALARS:
        return bool(left == right)
    if type_of(left) != type_of(right):
        return False
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(equal, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(
            equal(value, right[name]) for name, value in left.items()
        )
    return bool(left == right)


def _ordered(left: Any, right: Any) -> tuple[Any, Any] | None:
    """Convert both values so that Python orders them as DynamoDB does.

    None if they are not comparable.
    """
    if left is MISSING or right is MISSING:
        return None
    kind = type_of(left)
    if kind != type_of(right) or kind not in _ORDERED:
        return None
    return (left.encode(), right.encode()) if kind == "S" else (left, right)


def _compare(node: Compare, item: Mapping[str, Any]) -> bool:
    left, right = _resolve(node.left, item), _resolve(node.right, item)
    if node.operator == "=":
        return equal(left, right)
    if node.operator == "<>":
        return not equal(left, right)
    pair = _ordered(left, right)
    return pair is not None and ORDER[node.operator](*pair)


ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {"=": eq, "<>": ne, **ORDER}
# Python compares two values of these types as DynamoDB does: code points sort like UTF-8.
_DIRECTLY_COMPARABLE = (str, int)


def _between(node: Between, item: Mapping[str, Any]) -> bool:
    value = _resolve(node.value, item)
    low, high = (
        _ordered(_resolve(node.low, item), value),
        _ordered(value, _resolve(node.high, item)),
    )
    return (
        low is not None and high is not None and bool(low[0] <= low[1]) and bool(high[0] <= high[1])
    )


def _in(node: In, item: Mapping[str, Any]) -> bool:
    value = _resolve(node.value, item)
    return any(equal(value, _resolve(option, item)) for option in node.options)


def _type_is(node: TypeIs, item: Mapping[str, Any]) -> bool:
    value = _resolve(node.path, item)
    return value is not MISSING and type_of(value) == node.type


def _begins_with(node: BeginsWith, item: Mapping[str, Any]) -> bool:
    value, prefix = _resolve(node.path, item), _resolve(node.prefix, item)
    if isinstance(value, str) and isinstance(prefix, str):
        return value.startswith(prefix)
    return isinstance(value, bytes) and isinstance(prefix, bytes) and value.startswith(prefix)


def _contains(node: Contains, item: Mapping[str, Any]) -> bool:
    value, element = _resolve(node.path, item), _resolve(node.element, item)
    if isinstance(value, str):
        return isinstance(element, str) and element in value
    if isinstance(value, bytes):
        return isinstance(element, bytes) and element in value
    return isinstance(value, list | tuple | set | frozenset) and any(
        equal(member, element) for member in value
    )


_EVALUATORS: dict[type, Callable[[Any, Mapping[str, Any]], bool]] = {
    And: lambda node, item: matches(node.left, item) and matches(node.right, item),
    Or: lambda node, item: matches(node.left, item) or matches(node.right, item),
    Not: lambda node, item: not matches(node.inner, item),
    Exists: lambda node, item: resolve_path(item, node.path) is not MISSING,
    Absent: lambda node, item: resolve_path(item, node.path) is MISSING,
    Compare: _compare,
    Between: _between,
    In: _in,
    TypeIs: _type_is,
    BeginsWith: _begins_with,
    Contains: _contains,
}


def project(item: Mapping[str, Any], paths: Sequence[Path]) -> Item:
    """Return the parts of an item at the paths.

    Selected list elements are packed together in order.
    """
    return projector(paths)(item)


def projector(paths: Sequence[Path]) -> Callable[[Mapping[str, Any]], Item]:
    """Compile a projection into a function, for use on many items."""
    pick = _picker([path.parts for path in paths])

    def pick_paths(item: Mapping[str, Any]) -> Item:
        chosen: Item = pick(item)
        return {} if chosen is MISSING else chosen

    return pick_paths


_Route: TypeAlias = tuple[str | int, ...]


def _picker(routes: Iterable[_Route]) -> Callable[[Any], Any]:
    """Compile a function that returns the parts of a value at the routes, or MISSING."""
    tails: dict[str | int, list[_Route]] = {}
    for head, *tail in routes:
        tails.setdefault(head, []).append(tuple(tail))
    inner = {head: None if rest == [()] else _picker(rest) for head, rest in tails.items()}
    names = [(name, pick) for name, pick in inner.items() if isinstance(name, str)]
    positions = [(at, inner[at]) for at in sorted(key for key in inner if isinstance(key, int))]

    def pick_inner(value: Any) -> Any:
        if isinstance(value, dict):
            chosen = {}
            for name, pick in names:
                if name in value:
                    part = value[name] if pick is None else pick(value[name])
                    if part is not MISSING:
                        chosen[name] = part
            return chosen or MISSING
        if isinstance(value, list | tuple):
            parts = [
                value[position] if pick is None else pick(value[position])
                for position, pick in positions
                if position < len(value)
            ]
            return [part for part in parts if part is not MISSING] or MISSING
        return MISSING

    return pick_inner


def apply(actions: Sequence[Action], item: Mapping[str, Any]) -> Item:
    """Return the item after an update. Every right side reads the item before the update."""
    changes = [(action.path.parts, _outcome(action, item)) for action in actions]
    changed = dict(item)
    for route, outcome in changes:
        if len(route) > 1:
            return dict(_change(item, changes))
        if outcome is MISSING:
            changed.pop(str(route[0]), None)
        else:
            changed[str(route[0])] = outcome
    return changed


def _outcome(action: Action, item: Mapping[str, Any]) -> Any:
    """Return the new value at the action's path; MISSING removes it."""
    if isinstance(action, Set):
        return _compute(action.value, item)
    if isinstance(action, Remove):
        return MISSING
    old = resolve_path(item, action.path)
    if isinstance(action, Add):
        return _added(action, old)
    if isinstance(action, Discard):
        return _discarded(action, old)
    raise InvalidExpression(f"{type(action).__name__} is not an update action")


def _added(action: Add, old: Any) -> Any:
    value = action.value.value
    if old is MISSING:
        return value
    if type_of(old) != type_of(value):
        raise InvalidExpression(
            f"add to {action.path}: the attribute is {type_of(old)}, not {type_of(value)}"
        )
    return _sum("+", old, value) if type_of(value) == "N" else frozenset(old) | frozenset(value)


def _discarded(action: Discard, old: Any) -> Any:
    value = action.value.value
    if old is MISSING:
        return MISSING
    if type_of(old) != type_of(value):
        raise InvalidExpression(
            f"discard from {action.path}: the attribute is {type_of(old)}, not {type_of(value)}"
        )
    return (frozenset(old) - frozenset(value)) or MISSING


def _compute(operand: Any, item: Mapping[str, Any]) -> Any:
    kind = type(operand)
    if kind is Literal:
        return operand.value
    if kind is Path:
        value = resolve_path(item, operand)
        if value is MISSING:
            raise InvalidExpression(
                f"the update refers to {operand}, which does not exist in the item"
            )
        return value
    if kind is IfAbsent:
        value, otherwise = (
            resolve_path(item, operand.path),
            _compute(operand.otherwise, item),
        )  # DynamoDB requires both to be valid
        return otherwise if value is MISSING else value
    left, right = _compute(operand.left, item), _compute(operand.right, item)
    if kind is Joined:
        if type_of(left) != "L" or type_of(right) != "L":
            raise InvalidExpression(
                f"list_append requires two lists, not {type_of(left)} and {type_of(right)}"
            )
        return [*left, *right]
    return _sum(operand.operator, left, right)


def _sum(operator: str, left: Any, right: Any) -> Any:
    if type(left) is int and type(right) is int:
        return left + right if operator == "+" else left - right
    if type_of(left) != "N" or type_of(right) != "N":
        raise InvalidExpression(
            f"{operator} requires numbers, not {type_of(left)} and {type_of(right)}"
        )
    try:
        if operator == "+":
            return _EXACT.add(Decimal(left), Decimal(right))
        return _EXACT.subtract(Decimal(left), Decimal(right))
    except (Inexact, Overflow):
        raise InvalidNumber(
            f"{left} {operator} {right} has more than {MAX_DIGITS} digits"
        ) from None


def _change(value: Any, changes: Sequence[tuple[_Route, Any]]) -> Any:
    """Return a copy of a map or list with each change applied at its route."""
    heads: dict[str | int, list[tuple[_Route, Any]]] = {}
    for route, outcome in changes:
        heads.setdefault(route[0], []).append((route[1:], outcome))
    outcomes: dict[Any, Any] = {}
    for head, rest in heads.items():
        if any(route == () for route, _ in rest):
            if len(rest) > 1:
                raise InvalidExpression(f"the paths of the update overlap at {head}")
            outcomes[head] = rest[0][1]
            continue
        inner = resolve_path(value, Path((head,)))
        if inner is MISSING:
            raise InvalidExpression(
                f"the path of the update leads through {head}, which does not exist"
            )
        outcomes[head] = _change(inner, rest)
    if isinstance(value, dict):
        return _change_map(value, outcomes)
    if isinstance(value, list | tuple):
        return _change_list(value, outcomes)
    raise InvalidExpression(
        "the path of the update leads through a value that is neither a map nor a list"
    )


def _change_map(value: dict[str, Any], outcomes: dict[Any, Any]) -> dict[str, Any]:
    if any(isinstance(head, int) for head in outcomes):
        raise InvalidExpression("the path of the update uses a list position in a map")
    changed = {**value, **outcomes}
    for head, outcome in outcomes.items():
        if outcome is MISSING:
            del changed[head]
    return changed


def _change_list(value: Sequence[Any], outcomes: dict[Any, Any]) -> list[Any]:
    """Positions refer to the list before the update.

    Values set past its end are appended in order.
    """
    if any(isinstance(head, str) for head in outcomes):
        raise InvalidExpression("the path of the update uses a name in a list")
    changed = [outcomes.get(position, element) for position, element in enumerate(value)]
    changed += [outcomes[position] for position in sorted(outcomes) if position >= len(value)]
    return [element for element in changed if element is not MISSING]
