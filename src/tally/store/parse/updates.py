"""Builds the actions of an update from syntax trees, and checks their operands."""

from collections.abc import Sequence
from typing import Any, Final

from tally.store.expressions import (
    Action,
    Add,
    Discard,
    IfAbsent,
    Joined,
    Literal,
    Remove,
    Set,
    Sum,
    UpdateOperand,
)
from tally.store.parse.conditions import (
    Binder,
    check_distinct_operands,
    check_operand_count,
    require_path,
    wrong_type,
)
from tally.store.parse.grammar import UPDATE_FUNCTIONS, Call, DocumentPath, ValuePlaceholder
from tally.store.parse.overlaps import check_paths
from tally.store.parse.tokens import ExpressionError
from tally.store.values import type_of

_LONG_NAMES: Final = {
    "S": "STRING",
    "N": "NUMBER",
    "B": "BINARY",
    "BOOL": "BOOLEAN",
    "NULL": "NULL",
    "L": "LIST",
    "M": "MAP",
    "SS": "STRING_SET",
    "NS": "NUMBER_SET",
    "BS": "BINARY_SET",
}
_ADDABLE: Final = ("N", "SS", "NS", "BS")
_SETS: Final = ("SS", "NS", "BS")


def build_actions(clauses: Sequence[Call], binder: Binder) -> tuple[Action, ...]:
    """Build the actions of all clauses; raise ExpressionError for an invalid operand."""
    calls = [call for clause in clauses for call in clause.operands]
    actions = tuple(_action(call, binder) for call in calls)
    check_paths([action.path for action in actions])
    return actions


def _action(call: Any, binder: Binder) -> Action:
    path = binder.path(call.operands[0])
    if call.name == "REMOVE":
        return Remove(path)
    if call.name == "SET":
        return Set(path, _operand(call.operands[1], binder))
    value = binder.value(call.operands[1])
    kind = type_of(value.value)
    if kind not in (_ADDABLE if call.name == "ADD" else _SETS):
        raise ExpressionError(
            "Incorrect operand type for operator or function; operator:"
            f" {call.name}, operand type: {_LONG_NAMES[kind]}, typeSet:"
            f" ALLOWED_FOR_{call.name}_OPERAND"
        )
    return Add(path, value) if call.name == "ADD" else Discard(path, value)


def _operand(node: Any, binder: Binder) -> UpdateOperand:
    if isinstance(node, DocumentPath):
        return binder.path(node)
    if isinstance(node, ValuePlaceholder):
        return binder.value(node)
    check_operand_count(node, UPDATE_FUNCTIONS)
    left, right = [_operand(operand, binder) for operand in node.operands]
    if node.name == "if_not_exists":
        path = require_path(node.name, left)
        check_distinct_operands(node.name, [left, right])
        return IfAbsent(path, right)
    kind = "L" if node.name == "list_append" else "N"
    for side in (left, right):
        found = _known_type(side)
        if found is not None and found != kind:
            raise wrong_type(node.name, found)
    return Joined(left, right) if kind == "L" else Sum(node.name, left, right)


def _known_type(operand: UpdateOperand) -> str | None:
    """Return the type of an operand that does not depend on the item."""
    return type_of(operand.value) if isinstance(operand, Literal) else None
