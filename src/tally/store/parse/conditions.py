"""Builds conditions from syntax trees, and checks their operands as the service does."""

from collections.abc import Callable
from typing import Any, Final, Protocol

from tally.store.encode import to_wire
from tally.store.expressions import (
    Absent,
    And,
    BeginsWith,
    Between,
    Compare,
    Condition,
    Contains,
    Exists,
    In,
    Literal,
    Not,
    Operand,
    Or,
    Path,
    Size,
    TypeIs,
)
from tally.store.parse.grammar import (
    COMPARATORS,
    CONDITION_FUNCTIONS,
    Call,
    DocumentPath,
    SyntaxNode,
    ValuePlaceholder,
)
from tally.store.parse.overlaps import show_path
from tally.store.parse.tokens import ExpressionError
from tally.store.values import type_of

MAX_OPTIONS: Final = 100
_TYPE_NAMES: Final = ("B", "NULL", "SS", "BOOL", "L", "BS", "N", "NS", "S", "M")
_ORDERED: Final = ("S", "N", "B")
_SIZED: Final = ("S", "B", "L", "M", "SS", "NS", "BS")


class Binder(Protocol):
    """Replaces placeholders; `Substitutions` implements it."""

    def path(self, path: DocumentPath) -> Path: ...
    def value(self, placeholder: ValuePlaceholder) -> Literal: ...


def build_condition(node: SyntaxNode, binder: Binder) -> Condition:
    """Build a condition; raise ExpressionError for an invalid operand."""
    if not isinstance(node, Call):
        raise ExpressionError("The expression must be a condition;")
    if node.name == "AND":
        return And(
            build_condition(node.operands[0], binder), build_condition(node.operands[1], binder)
        )
    if node.name == "OR":
        return Or(
            build_condition(node.operands[0], binder), build_condition(node.operands[1], binder)
        )
    if node.name == "NOT":
        return Not(build_condition(node.operands[0], binder))
    check_operand_count(node, CONDITION_FUNCTIONS)
    operands = [build_operand(operand, binder) for operand in node.operands]
    if node.name in COMPARATORS:
        return _compare(node.name, operands)
    build = _BUILDERS.get(node.name)
    if build is None:
        raise ExpressionError(f"Invalid function name; function: {node.name}")
    return build(operands)


def build_operand(node: SyntaxNode, binder: Binder) -> Operand:
    """Build an operand of a comparison or function."""
    if isinstance(node, DocumentPath):
        return binder.path(node)
    if isinstance(node, ValuePlaceholder):
        return binder.value(node)
    check_operand_count(node, CONDITION_FUNCTIONS)
    inner = build_operand(node.operands[0], binder)
    if isinstance(inner, Size):
        raise wrong_type("size", "N")
    if isinstance(inner, Literal) and type_of(inner.value) not in _SIZED:
        raise wrong_type("size", type_of(inner.value))
    return Size(inner)


def check_operand_count(node: Call, functions: dict[str, int]) -> None:
    """Reject a function with another number of operands than it takes."""
    expected = functions.get(node.name, len(node.operands))
    if len(node.operands) != expected:
        raise ExpressionError(
            "Incorrect number of operands for operator or function; operator or function:"
            f" {node.name}, number of operands: {len(node.operands)}"
        )


def wrong_type(name: str, kind: str) -> ExpressionError:
    return ExpressionError(
        "Incorrect operand type for operator or function; operator or function:"
        f" {name}, operand type: {kind}"
    )


def check_distinct_operands(name: str, operands: list[Any]) -> None:
    """Reject an operator that is applied to one path twice."""
    first, *others = operands
    if isinstance(first, Path) and first in others:
        raise ExpressionError(
            "The first operand must be distinct from the remaining operands for this operator or"
            f" function; operator: {name}, first operand: {show_path(first)}"
        )


def require_path(name: str, operand: Any) -> Path:
    """Return the operand of a function that takes only a document path."""
    if not isinstance(operand, Path):
        raise ExpressionError(
            f"Operator or function requires a document path; operator or function: {name}"
        )
    return operand


def _compare(name: str, operands: list[Operand]) -> Compare:
    left, right = operands
    if name not in ("=", "<>"):
        _check_types(name, operands, _ORDERED)
    check_distinct_operands(name, operands)
    return Compare(name, left, right)


def _check_types(name: str, operands: list[Operand], kinds: tuple[str, ...]) -> None:
    for operand in operands:
        if isinstance(operand, Literal) and type_of(operand.value) not in kinds:
            raise wrong_type(name, type_of(operand.value))
        if isinstance(operand, Size) and "N" not in kinds:
            raise wrong_type(name, "N")


def _between(operands: list[Operand]) -> Between:
    value, low, high = operands
    _check_types("BETWEEN", operands, _ORDERED)
    if isinstance(low, Literal) and isinstance(high, Literal):
        _check_bounds(low.value, high.value)
    check_distinct_operands("BETWEEN", operands)
    return Between(value, low, high)


def _check_bounds(low: Any, high: Any) -> None:
    shown = (
        f"lower bound operand: AttributeValue: {_show(low)}, upper bound operand: AttributeValue:"
        f" {_show(high)}"
    )
    if type_of(low) != type_of(high):
        raise ExpressionError(
            f"The BETWEEN operator requires same data type for lower and upper bounds; {shown}"
        )
    if isinstance(low, str):
        low, high = low.encode(), high.encode()
    if low > high:
        raise ExpressionError(
            "The BETWEEN operator requires upper bound to be greater than or equal to lower bound;"
            f" {shown}"
        )


def _show(value: Any) -> str:
    ((kind, content),) = to_wire(value).items()
    return f"{{{kind}:{content}}}"


def _in(operands: list[Operand]) -> In:
    if len(operands) > MAX_OPTIONS + 1:
        raise ExpressionError(
            "The IN operator is provided with too many operands;"
            f" number of operands: {len(operands)}"
        )
    check_distinct_operands("IN", operands)
    return In(operands[0], tuple(operands[1:]))


def _attribute_type(operands: list[Operand]) -> TypeIs:
    subject, kind = operands
    valid = ",".join(_TYPE_NAMES)
    if not isinstance(kind, Literal):
        raise wrong_type("attribute_type", f"{{{valid}}}")
    if not isinstance(kind.value, str):
        raise wrong_type("attribute_type", type_of(kind.value))
    if kind.value not in _TYPE_NAMES:
        raise ExpressionError(
            f"Invalid attribute type name found; type: {kind.value}, valid types: {{{valid}}}"
        )
    return TypeIs(subject, kind.value)  # type: ignore[arg-type]  # one of the names above


def _begins_with(operands: list[Operand]) -> BeginsWith:
    _check_types("begins_with", operands, ("S", "B"))
    check_distinct_operands("begins_with", operands)
    return BeginsWith(operands[0], operands[1])


def _contains(operands: list[Operand]) -> Contains:
    check_distinct_operands("contains", operands)
    return Contains(operands[0], operands[1])


_BUILDERS: Final[dict[str, Callable[[list[Operand]], Condition]]] = {
    "BETWEEN": _between,
    "IN": _in,
    "attribute_exists": lambda operands: Exists(require_path("attribute_exists", operands[0])),
    "attribute_not_exists": lambda operands: Absent(
        require_path("attribute_not_exists", operands[0])
    ),
    "attribute_type": _attribute_type,
    "begins_with": _begins_with,
    "contains": _contains,
}
