"""Validates request bodies by botocore's model of the service.

The model states each member's type, and which are required, their lengths, ranges, patterns and
values. A wrong type is a SerializationException; all other violations of a request are reported
together. Attribute values are only checked to be there: `values.py` reads them.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeAlias

from botocore.loaders import Loader

from tally.store.wire.service_errors import invalid, not_serializable
from tally.store.wire.values import json_name, require_string

Check: TypeAlias = Callable[[Any, str, list[str]], None]
_MAX_REPORTED: Final = 10
_TABLE_NAME: Final = re.compile(r"[a-zA-Z0-9_.-]+")
_ARN_PREFIX: Final = "arn:"
# The service lists the values in another order than the model.
_VALUE_ORDER: Final = {
    "ReturnValue": "ALL_NEW, UPDATED_OLD, ALL_OLD, NONE, UPDATED_NEW",
    "ReturnConsumedCapacity": "INDEXES, TOTAL, NONE",
    "ReturnItemCollectionMetrics": "SIZE, NONE",
    "ReturnValuesOnConditionCheckFailure": "ALL_OLD, NONE",
    "Select": "SPECIFIC_ATTRIBUTES, COUNT, ALL_ATTRIBUTES, ALL_PROJECTED_ATTRIBUTES",
    "ScalarAttributeType": "B, N, S",
    "ProjectionType": "ALL, INCLUDE, KEYS_ONLY",
    "BillingMode": "PROVISIONED, PAY_PER_REQUEST",
    "ConditionalOperator": "OR, AND",
    "AttributeAction": "DELETE, PUT, ADD",
    "ComparisonOperator": (
        "IN, NULL, BETWEEN, LT, NOT_CONTAINS, EQ, GT, NOT_NULL, NE, LE, BEGINS_WITH, GE, CONTAINS"
    ),
}


@cache
def _service_model(service: str) -> Any:
    return Loader().load_service_model(service, "service-2")


class RequestModel:
    """The input shapes of the operations, compiled on first use."""

    def __init__(self, service: str = "dynamodb") -> None:
        model = _service_model(service)
        self._shapes: dict[str, Any] = model["shapes"]
        self._operations: dict[str, Any] = model["operations"]
        self._compile = cache(self._compile_shape)

    @property
    def operations(self) -> list[str]:
        """The names of all operations of the service, sorted."""
        return sorted(self._operations)

    def check(self, operation: str, body: Any) -> None:
        """Raise ServiceError unless the body satisfies the model of the operation."""
        shape = self._operations[operation].get("input", {}).get("shape")
        if shape is None:
            return
        problems: list[str] = []
        self._compile(shape)(body, "", problems)
        if problems:
            noun = "error" if len(problems) == 1 else "errors"
            shown = "; ".join(problems[:_MAX_REPORTED])
            raise invalid(f"{len(problems)} validation {noun} detected: {shown}")

    def _compile_shape(self, name: str) -> Check:
        shape = self._shapes[name]
        if name == "AttributeValue":
            return _check_present
        if shape["type"] == "structure":
            return self._structure(shape)
        if shape["type"] == "map":
            return self._map(name, shape)
        if shape["type"] == "list":
            return self._list(shape)
        if name in ("TableArn", "TableName"):
            return _check_table_name
        return _scalar(name, shape)

    def _structure(self, shape: Any) -> Check:
        required = frozenset(shape.get("required", ()))
        # The service reports the violations of a structure in alphabetical order.
        members = [
            (member, _camel(member), member in required) for member in sorted(shape["members"])
        ]
        compiled: dict[str, Check] = {}

        def check(value: Any, path: str, problems: list[str]) -> None:
            if not isinstance(value, dict):
                raise _wrong_container(value)
            for member, camel, is_required in members:
                content = value.get(member)
                if content is None and not is_required:
                    continue
                where = f"{path}.{camel}" if path else camel
                if content is None:
                    problems.append(_violation(None, where, "Member must not be null"))
                    continue
                checked = compiled.get(member)
                if checked is None:
                    checked = self._compile(shape["members"][member]["shape"])
                    compiled[member] = checked
                checked(content, where, problems)

        return check

    def _map(self, name: str, shape: Any) -> Check:
        inner = shape["value"]["shape"]

        def check(value: Any, path: str, problems: list[str]) -> None:
            if not isinstance(value, dict):
                raise _wrong_container(value)
            _check_length(shape, value, path, problems)
            if inner == "AttributeValue":
                return
            checked = self._compile(inner)
            for key, content in value.items():
                if content is not None:
                    checked(content, f"{path}.{key}.member", problems)
                elif name == "ExpressionAttributeNameMap":
                    raise invalid("ExpressionAttributeNames must not contain null values")
                else:
                    where = f"{path}.{key}.member"
                    problems.append(_violation(None, where, "Member must not be null"))

        return check

    def _list(self, shape: Any) -> Check:
        inner = shape["member"]["shape"]

        def check(value: Any, path: str, problems: list[str]) -> None:
            if not isinstance(value, list):
                raise _wrong_container(value)
            _check_length(shape, value, path, problems)
            checked = self._compile(inner)
            for position, content in enumerate(value, 1):
                where = f"{path}.{position}.member"
                if content is None:
                    problems.append(_violation(None, where, "Member must not be null"))
                else:
                    checked(content, where, problems)

        return check


def _check_present(value: Any, _path: str, _problems: list[str]) -> None:
    if not isinstance(value, dict):
        raise not_serializable("Unexpected value type in payload")


def _wrong_container(value: Any) -> Exception:
    if isinstance(value, list):
        return not_serializable("Start of list found where not expected")
    if isinstance(value, dict):
        return not_serializable("Start of structure or map found where not expected")
    return not_serializable("Unexpected field type")


def _check_table_name(value: Any, path: str, problems: list[str]) -> None:
    name = require_string(value)
    if not name:
        limit = "Member must have length greater than or equal to 1"
        problems.append(_violation(name, path, limit))
    elif len(name) > (1024 if name.startswith(_ARN_PREFIX) else 255):
        limit = "Member must have length less than or equal to 1024"
        problems.append(_violation(name, path, limit))
    elif not name.startswith(_ARN_PREFIX) and not _TABLE_NAME.fullmatch(name):
        limit = "Member must satisfy regular expression pattern: [a-zA-Z0-9_.-]+"
        problems.append(_violation(name, path, limit))


def _scalar(name: str, shape: Any) -> Check:
    kind = shape["type"]
    if kind == "boolean":
        return _check_boolean
    if kind in ("integer", "long"):
        return _number(shape, "Integer" if kind == "integer" else "Long")
    if kind in ("double", "float", "timestamp"):
        return lambda _value, _path, _problems: None
    if "enum" in shape:
        return _enum(name, shape)
    pattern = re.compile(shape["pattern"]) if "pattern" in shape else None

    def check(value: Any, path: str, problems: list[str]) -> None:
        text = require_string(value)
        _check_length(shape, text, path, problems)
        if pattern is not None and not pattern.fullmatch(text):
            rule = f"Member must satisfy regular expression pattern: {shape['pattern']}"
            problems.append(_violation(text, path, rule))

    return check


def _enum(name: str, shape: Any) -> Check:
    allowed = frozenset(shape["enum"])
    listed = _VALUE_ORDER.get(name, ", ".join(shape["enum"]))

    def check(value: Any, path: str, problems: list[str]) -> None:
        if require_string(value) not in allowed:
            rule = f"Member must satisfy enum value set: [{listed}]"
            problems.append(_violation(value, path, rule))

    return check


def _number(shape: Any, java_type: str) -> Check:
    low, high = shape.get("min"), shape.get("max")

    def check(value: Any, path: str, problems: list[str]) -> None:
        if isinstance(value, float):
            value = int(value) if abs(value) < 2**63 else 2**63 - 1
        if type(value) is not int:
            if isinstance(value, dict | list):
                raise _wrong_container(value)
            raise not_serializable(f"{json_name(value)} cannot be converted to {java_type}")
        if low is not None and value < low:
            rule = f"Member must have value greater than or equal to {low}"
            problems.append(_violation(value, path, rule))
        if high is not None and value > high:
            rule = f"Member must have value less than or equal to {high}"
            problems.append(_violation(value, path, rule))

    return check


def _check_boolean(value: Any, _path: str, _problems: list[str]) -> None:
    if type(value) is not bool:
        if isinstance(value, dict | list):
            raise _wrong_container(value)
        raise not_serializable("Unexpected token received from parser")


def _check_length(shape: Any, value: Any, path: str, problems: list[str]) -> None:
    low, high = shape.get("min"), shape.get("max")
    if low is not None and len(value) < low:
        rule = f"Member must have length greater than or equal to {low}"
        problems.append(_violation(value, path, rule))
    elif high is not None and len(value) > high:
        rule = f"Member must have length less than or equal to {high}"
        problems.append(_violation(value, path, rule))


def _violation(value: Any, path: str, rule: str) -> str:
    return f"Value {_show(value)} at '{path}' failed to satisfy constraint: {rule}"


def _show(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, list | dict):
        return f"'{'[]' if isinstance(value, list) else '{}'}'" if not value else "'...'"
    return f"'{str(value)[:2048]}'"


def _camel(name: str) -> str:
    return name[0].lower() + name[1:]
