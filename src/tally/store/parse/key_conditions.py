"""Checks the form of key conditions: what DynamoDB rejects before it looks at the table."""

from collections.abc import Iterator
from typing import Final

from tally.store.parse.grammar import Call, DocumentPath, SyntaxNode
from tally.store.parse.tokens import ExpressionError

_ALLOWED: Final = ("=", "<", "<=", ">", ">=", "BETWEEN", "begins_with")
_SWAPPED: Final = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def check_key_condition(tree: SyntaxNode) -> None:
    """Reject operators and operands that a key condition cannot have."""
    for call in _conditions(tree):
        if call.name not in _ALLOWED:
            raise ExpressionError(f"Invalid operator used in KeyConditionExpression: {call.name}")
        if any(isinstance(operand, Call) for operand in call.operands):
            raise ExpressionError("KeyConditionExpressions cannot contain nested operations")
        _check_operands(call)


def _check_operands(call: Call) -> None:
    paths = [operand for operand in call.operands if isinstance(operand, DocumentPath)]
    if call.name == "begins_with" and not isinstance(call.operands[0], DocumentPath):
        raise ExpressionError(
            "Invalid condition in KeyConditionExpression: begins_with operator must have the key"
            " attribute as its first operand"
        )
    if not paths:
        raise ExpressionError(
            "Invalid condition in KeyConditionExpression: No key attribute specified"
        )
    if len(paths) > 1:
        raise ExpressionError(
            "Invalid condition in KeyConditionExpression: Multiple attribute names used in one"
            " condition"
        )
    if len(paths[0].parts) > 1:
        raise ExpressionError(
            "Invalid KeyConditionExpression: KeyConditionExpressions cannot have conditions on"
            " nested attributes"
        )
    if call.name == "BETWEEN" and not isinstance(call.operands[0], DocumentPath):
        raise ExpressionError(
            "Invalid condition in KeyConditionExpression: BETWEEN operator must have the key"
            " attribute as its first operand"
        )


def order_operands(tree: SyntaxNode) -> SyntaxNode:
    """Return the tree with the key attribute on the left side of each comparison."""
    if not isinstance(tree, Call):
        return tree
    if tree.name == "AND":
        return Call("AND", tuple(order_operands(operand) for operand in tree.operands))
    if tree.name in _SWAPPED and not isinstance(tree.operands[0], DocumentPath):
        return Call(_SWAPPED[tree.name], tree.operands[::-1])
    return tree


def _conditions(tree: SyntaxNode) -> Iterator[Call]:
    if isinstance(tree, Call) and tree.name == "AND":
        for operand in tree.operands:
            yield from _conditions(operand)
    elif isinstance(tree, Call):
        yield tree
