"""The parameters from before expressions: conditions, updates and projections as data."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

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
    make_path,
)
from tally.store.values import type_of
from tally.store.wire.service_errors import ServiceError, invalid
from tally.store.wire.values import read_value

Body = Mapping[str, Any]
_ORDERED: Final = ("S", "N", "B")
_MAX_CONDITIONS: Final = 2_000  # each item of a page is tested with all of them
_COMPARISONS: Final = {"EQ": "=", "NE": "<>", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}
# The types that operators accept; the others accept all.
_OPERAND_TYPES: Final = {
    **dict.fromkeys(("LT", "LE", "GT", "GE", "BETWEEN", "IN"), _ORDERED),
    **dict.fromkeys(("CONTAINS", "NOT_CONTAINS"), (*_ORDERED, "BOOL", "NULL")),
    "BEGINS_WITH": ("S", "B"),
}
# The number of values that each operator takes; None for any number.
_VALUE_COUNTS: Final[dict[str, int | None]] = {
    **dict.fromkeys((*_COMPARISONS, "CONTAINS", "NOT_CONTAINS", "BEGINS_WITH"), 1),
    "BETWEEN": 2,
    "NULL": 0,
    "NOT_NULL": 0,
    "IN": None,
}


def legacy_projection(body: Body) -> tuple[Path, ...]:
    """Read `AttributesToGet`."""
    names = body.get("AttributesToGet") or ()
    known: set[str] = set()
    for name in names:
        if name in known:
            raise _parameter(f"Duplicate value in attribute name: {name}")
        known.add(name)
    return tuple(make_path(name) for name in names)


def legacy_filter(body: Body, parameter: str) -> Condition | None:
    """Read `QueryFilter`, `ScanFilter` or `KeyConditions`."""
    conditions = body.get(parameter)
    if not conditions:
        return None
    _check_count(parameter, conditions)
    tests = [_condition(name, condition) for name, condition in conditions.items()]
    return _joined(body, tests)


def legacy_condition(body: Body) -> Condition | None:
    """Read `Expected`."""
    expected = body.get("Expected")
    if not expected:
        if body.get("ConditionalOperator") is not None:
            raise invalid("ConditionalOperator cannot be used without Filter or Expected")
        return None
    _check_count("Expected", expected)
    tests = [_expectation(name, condition) for name, condition in expected.items()]
    return _joined(body, tests)


def legacy_actions(body: Body) -> tuple[Action, ...]:
    """Read `AttributeUpdates`."""
    updates = body.get("AttributeUpdates") or {}
    return tuple(_action(name, update) for name, update in updates.items())


def _check_count(parameter: str, conditions: Body) -> None:
    if len(conditions) > _MAX_CONDITIONS:
        raise _parameter(f"{parameter} has more than {_MAX_CONDITIONS} conditions")


def _joined(body: Body, tests: Sequence[Condition]) -> Condition:
    if len(tests) == 1 and body.get("ConditionalOperator") is not None:
        raise invalid(
            "ConditionalOperator can only be used when Filter or Expected has two or more elements"
        )
    kind = Or if body.get("ConditionalOperator") == "OR" else And
    return _balanced(kind, tests)


def _balanced(kind: type[And | Or], tests: Sequence[Condition]) -> Condition:
    """Join conditions, of which there may be thousands, without nesting them deeply."""
    if len(tests) == 1:
        return tests[0]
    middle = len(tests) // 2
    return kind(_balanced(kind, tests[:middle]), _balanced(kind, tests[middle:]))


def _expectation(name: str, condition: Body) -> Condition:
    exists, value = condition.get("Exists"), condition.get("Value")
    if condition.get("ComparisonOperator") is not None:
        if exists is not None:
            raise _parameter(
                f"Exists and ComparisonOperator cannot be used together for Attribute: {name}"
            )
        if value is not None:
            if condition.get("AttributeValueList") is not None:
                raise _parameter(
                    f"Value and AttributeValueList cannot be used together for Attribute: {name}"
                )
            condition = {**condition, "AttributeValueList": [value]}
        operator = condition["ComparisonOperator"]
        if condition.get("AttributeValueList") is None and _VALUE_COUNTS.get(operator) != 0:
            raise _parameter(
                "Value or AttributeValueList must be used with ComparisonOperator:"
                f" {operator} for Attribute: {name}"
            )
        return _condition(name, condition)
    if condition.get("AttributeValueList") is not None:
        if value is not None:
            raise _parameter(
                f"Value and AttributeValueList cannot be used together for Attribute: {name}"
            )
        raise _parameter(
            f"AttributeValueList can only be used with a ComparisonOperator for Attribute: {name}"
        )
    if exists is False:
        if value is not None:
            raise _parameter(f"Value cannot be used when Exists is false for Attribute: {name}")
        return Absent(make_path(name))
    if value is None:
        state = "null" if exists is None else "true"
        raise _parameter(f"Value must be provided when Exists is {state} for Attribute: {name}")
    return Compare("=", make_path(name), Literal(read_value(value)))


def _condition(name: str, condition: Body) -> Condition:
    operator = condition.get("ComparisonOperator", "")
    values = [read_value(value) for value in condition.get("AttributeValueList") or ()]
    expected = _VALUE_COUNTS.get(operator)
    if len(values) != expected and (expected is not None or not values):
        raise _parameter(f"Invalid number of argument(s) for the {operator} ComparisonOperator")
    _check_types(operator, values)
    return _BUILDERS[operator](make_path(name), [Literal(value) for value in values])


def _check_types(operator: str, values: Sequence[Any]) -> None:
    kinds = [type_of(value) for value in values]
    allowed = _OPERAND_TYPES.get(operator)
    if allowed is not None and not set(kinds) <= set(allowed):
        raise _parameter(
            f"ComparisonOperator {operator} is not valid for {kinds[0]} AttributeValue type"
        )
    if operator in ("BETWEEN", "IN") and len(set(kinds)) > 1:
        raise _parameter("AttributeValues inside AttributeValueList must be of same type")
    if operator == "BETWEEN" and values[0] > values[1]:
        raise invalid(
            "The BETWEEN condition was provided a range where the lower bound is greater than the"
            " upper bound"
        )


def _action(name: str, update: Body) -> Action:
    action, value, path = update.get("Action", "PUT"), update.get("Value"), make_path(name)
    if value is None:
        if action != "DELETE":
            raise _parameter("Only DELETE action is allowed when no attribute value is specified")
        return Remove(path)
    literal = Literal(read_value(value))
    kind = type_of(literal.value)
    if action == "PUT":
        return Set(path, literal)
    allowed = ("SS", "NS", "BS") if action == "DELETE" else ("N", "SS", "NS", "BS", "L")
    if kind not in allowed:
        what = "DELETE action with value" if action == "DELETE" else f"{action} action"
        raise _parameter(f"{what} is not supported for the type {kind}")
    if kind == "L":
        return Set(path, Joined(IfAbsent(path, Literal([])), literal))
    return Add(path, literal) if action == "ADD" else Discard(path, literal)


def _parameter(message: str) -> ServiceError:
    return invalid(f"One or more parameter values were invalid: {message}")


def _comparison(operator: str) -> Callable[[Path, list[Literal]], Condition]:
    return lambda path, values: Compare(operator, path, values[0])


_BUILDERS: Final[dict[str, Callable[[Path, list[Literal]], Condition]]] = {
    **{name: _comparison(operator) for name, operator in _COMPARISONS.items()},
    "BETWEEN": lambda path, values: Between(path, values[0], values[1]),
    "IN": lambda path, values: In(path, tuple(values)),
    "BEGINS_WITH": lambda path, values: BeginsWith(path, values[0]),
    "CONTAINS": lambda path, values: Contains(path, values[0]),
    "NOT_CONTAINS": lambda path, values: Not(Contains(path, values[0])),
    "NULL": lambda path, _values: Absent(path),
    "NOT_NULL": lambda path, _values: Exists(path),
}
