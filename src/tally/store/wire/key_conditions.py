"""Checks a key condition against the key of a table or index, with the service's messages."""

from typing import Any

from tally.store.expressions import (
    And,
    BeginsWith,
    Between,
    Compare,
    Condition,
    Literal,
)
from tally.store.schema import MAX_PARTITION_BYTES, MAX_SORT_BYTES, KeyPart
from tally.store.values import measure_value, type_of
from tally.store.wire.service_errors import ServiceError, invalid


def check_key_schema(where: Condition, partition: KeyPart, sort: KeyPart | None) -> None:
    """Reject a condition that is not = on the partition key and one test of the sort key."""
    tests = _tests(where)
    names = [_name(test) for test in tests]
    if len(set(names)) < len(names):
        raise invalid("KeyConditionExpressions must only contain one condition per key")
    if len(tests) > 2:
        raise invalid("Conditions can be of length 1 or 2 only")
    if partition.name not in names:
        raise invalid(f"Query condition missed key schema element: {partition.name}")
    for test, name in zip(tests, names, strict=True):
        if name == partition.name:
            if not isinstance(test, Compare) or test.operator != "=":
                raise invalid("Query key condition not supported")
            _check_values(partition, test, MAX_PARTITION_BYTES)
        elif sort is None:
            raise invalid("Query key condition not supported")
        elif name != sort.name:
            raise invalid(f"Query condition missed key schema element: {sort.name}")
        elif not _is_supported(test):
            raise invalid("Attempted conditional constraint is not an indexable operation")
        else:
            _check_values(sort, test, MAX_SORT_BYTES)


def _is_supported(test: Condition) -> bool:
    if isinstance(test, Compare):
        return test.operator != "<>"
    return isinstance(test, Between | BeginsWith)


def _tests(where: Condition) -> list[Condition]:
    if isinstance(where, And):
        return [*_tests(where.left), *_tests(where.right)]
    return [where]


def _name(test: Any) -> str:
    """Return the attribute of a test; legacy conditions may have other forms."""
    for field in ("left", "value", "path", "inner"):
        if hasattr(test, field):
            inner = getattr(test, field)
            return str(inner.parts[0]) if hasattr(inner, "parts") else _name(inner)
    raise invalid("Query key condition not supported")


def _check_values(part: KeyPart, test: Any, limit: int) -> None:
    for field in ("right", "low", "high", "prefix"):
        operand = getattr(test, field, None)
        if isinstance(operand, Literal):
            _check_value(part, operand.value, limit)
    if isinstance(test, BeginsWith) and part.type == "N":
        raise _parameter("ComparisonOperator BEGINS_WITH is not valid for N AttributeValue type")


def _check_value(part: KeyPart, value: Any, limit: int) -> None:
    if type_of(value) != part.type:
        raise _parameter("Condition parameter type does not match schema type")
    if value in ("", b""):
        kind = "string" if part.type == "S" else "binary"
        raise invalid(
            "One or more parameter values are not valid. The AttributeValue for a key attribute"
            f" cannot contain an empty {kind} value. Key: {part.name}"
        )
    if part.type != "N" and measure_value(value, part.name) > limit:
        what = "hashkey" if limit == MAX_PARTITION_BYTES else "rangekey"
        raise _parameter(f"Size of {what} has exceeded the maximum size limit of{limit} bytes")


def _parameter(message: str) -> ServiceError:
    return invalid(f"One or more parameter values were invalid: {message}")
