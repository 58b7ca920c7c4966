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

from tally.store.wire.service_errors import ServiceError, invalid, not_serializable
from tally.store.wire.values import require_boolean, require_string, unconvertible

Check: TypeAlias = Callable[[Any, str, list[str]], None]
_MAX_REPORTED: Final = 10
_MAX_SHOWN: Final = 2048
_TABLE_NAME: Final = re.compile(r"[a-zA-Z0-9_.-]+")
_ARN_PREFIX: Final = "arn:"
_TABLE: Final = "TableName"
# The order in which the service reports the violations of a request; other members follow by name.
_MEMBER_ORDER: Final = (
    *(_TABLE, "Key", "Item", "Limit", "Segment", "TotalSegments"),
    *("ReturnConsumedCapacity", "ReturnValues", "ReturnItemCollectionMetrics"),
    *("WriteCapacityUnits", "ReadCapacityUnits"),
)
# The model no longer requires these, because other ways to create a table exist.
_REQUIRED: Final = {
    "CreateTableInput": ("AttributeDefinitions", "KeySchema"),
    "UpdateGlobalSecondaryIndexAction": ("ProvisionedThroughput",),
}
# What stands for a required member: an index may change the throughput of either billing mode.
_ALTERNATIVES: Final = {"ProvisionedThroughput": ("OnDemandThroughput", "WarmThroughput")}
_MAX_LENGTHS: Final = {"KeySchema": 2}  # the model has the limit of indexes with long keys
_NAMED_TABLE: Final = frozenset(
    {"CreateTable", "DeleteTable", "DescribeTable", "DescribeTimeToLive", "UpdateTable"}
)
_MIN_NAME, _MAX_NAME = 3, 255
# Where the service reports the violations in another order.
_MEMBER_ORDERS: Final = {
    "UpdateItemInput": (_TABLE, "Key", "ReturnValues", *_MEMBER_ORDER[3:]),
    "GetItemInput": ("Key", *_MEMBER_ORDER),
    "ListTablesInput": ("ExclusiveStartTableName", "Limit"),
    "CreateTableInput": (
        *(_TABLE, "ProvisionedThroughput", "KeySchema", "AttributeDefinitions"),
        *("LocalSecondaryIndexes", "GlobalSecondaryIndexes"),
    ),
}
_PACKAGE: Final = "com.amazonaws.dynamodb.v20120810"
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
        if operation in _NAMED_TABLE:
            _check_named_table(body)
        problems: list[str] = []
        self._compile(shape)(body, "", problems)
        if problems:
            if operation == "UpdateItem" or (
                operation == "PutItem" and " at 'tableName' failed" in problems[0]
            ):
                del problems[1:]  # newer operations stop at the first violation
            noun = "error" if len(problems) == 1 else "errors"
            shown = "; ".join(problems[:_MAX_REPORTED])
            raise invalid(f"{len(problems)} validation {noun} detected: {shown}")

    def _compile_shape(self, name: str) -> Check:
        shape = self._shapes[name]
        if name == "AttributeValue":
            return _check_present
        if shape["type"] == "structure":
            return self._structure(name, shape)
        if shape["type"] == "map":
            return self._map(name, shape)
        if shape["type"] == "list":
            return self._list(name, shape)
        if name == "TableArn":
            return _check_table_name
        return _scalar(name, shape)

    def _structure(self, name: str, shape: Any) -> Check:
        required = frozenset((*shape.get("required", ()), *_REQUIRED.get(name, ())))
        order = _MEMBER_ORDERS.get(name, _MEMBER_ORDER)
        ordered = sorted(
            shape["members"],
            key=lambda member: (order.index(member) if member in order else len(order), member),
        )
        members = [(member, _camel(member), member in required) for member in ordered]
        compiled: dict[str, Check] = {}

        def check(value: Any, path: str, problems: list[str]) -> None:
            if not isinstance(value, dict):
                raise _not_a_structure(name, value)
            for member, camel, is_required in members:
                content = value.get(member)
                if content is None and not (is_required and _is_missing(value, member)):
                    continue
                where = f"{path}.{camel}" if path else camel
                if content is None:
                    problems.append(_violation(None, where, "Member must not be null"))
                    continue
                if type(content) is float and self._is_integer(shape["members"][member]):
                    content = value[member] = _cut_off(content)
                checked = compiled.get(member)
                if checked is None:
                    checked = self._compile(shape["members"][member]["shape"])
                    compiled[member] = checked
                checked(content, where, problems)

        return check

    def _is_integer(self, member: Any) -> bool:
        return self._shapes[member["shape"]]["type"] in ("integer", "long")

    def _map(self, name: str, shape: Any) -> Check:
        inner = shape["value"]["shape"]

        def check(value: Any, path: str, problems: list[str]) -> None:
            if not isinstance(value, dict):
                raise _not_a_map(self._java_type(name), value)
            self._check_length(name, value, path, problems)
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

    def _list(self, name: str, shape: Any) -> Check:
        inner = shape["member"]["shape"]

        def check(value: Any, path: str, problems: list[str]) -> None:
            if not isinstance(value, list):
                raise _not_a_list(value)
            self._check_length(name, value, path, problems)
            checked = self._compile(inner)
            for position, content in enumerate(value, 1):
                where = f"{path}.{position}.member"
                if content is None:
                    problems.append(_violation(None, where, "Member must not be null"))
                else:
                    checked(content, where, problems)

        return check

    def _check_length(self, name: str, value: Any, path: str, problems: list[str]) -> None:
        shape = self._shapes[name]
        rule = _length_rule(shape, len(value), _MAX_LENGTHS.get(name))
        if rule is not None:
            shown = f"'{self._java_text(name, value)}'"[:_MAX_SHOWN]
            problems.append(f"Value {shown} at '{path}' failed to satisfy constraint: {rule}")

    def _java_type(self, name: str) -> str:
        """Return the type of a shape as messages name it."""
        shape = self._shapes[name]
        if shape["type"] == "map":
            inner = self._java_type(shape["value"]["shape"])
            return f"java.util.Map<java.lang.String, {inner}>"
        if shape["type"] == "list":
            return f"java.util.List<{self._java_type(shape['member']['shape'])}>"
        return f"{_PACKAGE}.{name}" if shape["type"] == "structure" else "java.lang.String"

    def _java_text(self, name: str, value: Any) -> str:
        """Return a value as messages show it: `[KeySchemaElement(attributeName=a, keyType=…)]`."""
        shape = self._shapes[name]
        if isinstance(value, list) and shape["type"] == "list":
            inner = shape["member"]["shape"]
            return f"[{', '.join(self._java_text(inner, element) for element in value)}]"
        if isinstance(value, dict) and shape["type"] == "map":
            inner = shape["value"]["shape"]
            members = [f"{key}={self._java_text(inner, part)}" for key, part in value.items()]
            return f"{{{', '.join(members)}}}"
        if isinstance(value, dict) and shape["type"] == "structure":
            members = [
                f"{_camel(member)}={self._java_text(part['shape'], value[member])}"
                for member, part in shape["members"].items()
                if value.get(member) is not None
            ]
            return f"{name}({', '.join(members)})"
        return "null" if value is None else str(value)


def _is_missing(value: Any, member: str) -> bool:
    return all(value.get(name) is None for name in _ALTERNATIVES.get(member, ()))


def _check_present(value: Any, _path: str, _problems: list[str]) -> None:
    if not isinstance(value, dict):
        raise _not_a_structure("AttributeValue", value)


def _not_a_structure(name: str, value: Any) -> ServiceError:
    if isinstance(value, list):
        return not_serializable(f"Unrecognized collection type class {_PACKAGE}.{name}")
    return not_serializable("Unexpected value type in payload")


def _not_a_map(java_type: str, value: Any) -> ServiceError:
    if isinstance(value, list):
        return not_serializable(f"Unrecognized collection type {java_type}")
    return not_serializable("Unexpected field type")


def _not_a_list(value: Any) -> ServiceError:
    if isinstance(value, dict):
        return not_serializable("Start of structure or map found where not expected")
    return not_serializable("Unexpected field type")


def _check_named_table(body: Any) -> None:
    """Check the table of an operation on tables, which comes before all other checks."""
    name = body.get(_TABLE)
    if name is None:
        raise invalid("The parameter 'TableName' is required but was not present in the request")
    is_arn = isinstance(name, str) and name.startswith(_ARN_PREFIX)
    if isinstance(name, str) and not is_arn and not _MIN_NAME <= len(name) <= _MAX_NAME:
        raise invalid(
            f"TableName must be at least {_MIN_NAME} characters long and at most {_MAX_NAME}"
            " characters long"
        )


def _check_table_name(value: Any, path: str, problems: list[str]) -> None:
    name = require_string(value)
    if not name:
        limit = "Member must have length greater than or equal to 1"
        problems.append(_violation(name, path, limit))
    elif len(name) > (1024 if name.startswith(_ARN_PREFIX) else _MAX_NAME):
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
        if pattern is not None and not pattern.fullmatch(text):
            rule = f"Member must satisfy regular expression pattern: {shape['pattern']}"
            problems.append(_violation(text, path, rule))
        limit = _length_rule(shape, len(text))
        if limit is not None:
            problems.append(_violation(text, path, limit))

    return check


def _enum(name: str, shape: Any) -> Check:
    allowed = frozenset(shape["enum"])
    listed = _VALUE_ORDER.get(name, ", ".join(shape["enum"]))

    def check(value: Any, path: str, problems: list[str]) -> None:
        if require_string(value) not in allowed:
            rule = f"Member must satisfy enum value set: [{listed}]"
            problems.append(_violation(value, path, rule))

    return check


def _cut_off(number: float) -> int:
    """Return the whole part of a number, as the service reads it where it expects an integer."""
    return int(number) if abs(number) < 2**63 else 2**63 - 1


def _number(shape: Any, java_type: str) -> Check:
    low, high = shape.get("min"), shape.get("max")

    def check(value: Any, path: str, problems: list[str]) -> None:
        if type(value) is not int:
            raise unconvertible(value, java_type)
        if low is not None and value < low:
            rule = f"Member must have value greater than or equal to {low}"
            problems.append(_violation(value, path, rule))
        if high is not None and value > high:
            rule = f"Member must have value less than or equal to {high}"
            problems.append(_violation(value, path, rule))

    return check


def _check_boolean(value: Any, _path: str, _problems: list[str]) -> None:
    require_boolean(value)


def _length_rule(shape: Any, length: int, limit: int | None = None) -> str | None:
    """Return the rule that a length violates, if any; `limit` replaces the model's maximum."""
    low, high = shape.get("min"), limit or shape.get("max")
    if low is not None and length < low:
        return f"Member must have length greater than or equal to {low}"
    if high is not None and length > high:
        return f"Member must have length less than or equal to {high}"
    return None


def _violation(value: Any, path: str, rule: str) -> str:
    shown = "null" if value is None else f"'{str(value)[:_MAX_SHOWN]}'"
    return f"Value {shown} at '{path}' failed to satisfy constraint: {rule}"


def _camel(name: str) -> str:
    return name[0].lower() + name[1:]
