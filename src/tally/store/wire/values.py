"""Reads attribute values of requests, with the limits and the messages of the service.

Responses are written by `encode.item_to_wire`.
"""

import binascii
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from tally.store.values import MAX_DEPTH, MAX_DIGITS, Item
from tally.store.wire.service_errors import ServiceError, invalid, not_serializable

_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_EASY_INTEGER: Final = re.compile(r"-?[1-9][0-9]{0,17}")
_MAX_NUMBER_CHARACTERS: Final = 1_000
_MAX_EXPONENT, _MIN_EXPONENT = 125, -130
_DATA_TYPES: Final = ("S", "N", "B", "BOOL", "NULL", "L", "M", "SS", "NS", "BS")


def read_item(item: Any) -> Item:
    """Read an item or a key, given as a map of attribute values."""
    return {name: read_value(value) for name, value in item.items()}


def read_value(value: Any, depth: int = 1) -> Any:
    """Read one attribute value, such as `{"N": "38"}`."""
    if type(value) is not dict:
        if value is None:
            raise _empty_value()
        raise not_serializable(
            "Unrecognized collection type class com.amazonaws.dynamodb.v20120810.AttributeValue"
            if isinstance(value, list)
            else "Unexpected value type in payload"
        )
    if len(value) != 1:
        value = _single(value)
    for kind, content in value.items():
        read = _READERS.get(kind)
        if read is None or content is None:
            raise _empty_value()
        return read(content, depth)
    raise _empty_value()


def _single(value: dict[str, Any]) -> dict[str, Any]:
    known = {
        kind: content
        for kind, content in value.items()
        if kind in _DATA_TYPES and content is not None
    }
    if not known:
        raise _empty_value()
    if len(known) > 1:
        raise invalid(
            "Supplied AttributeValue has more than one datatypes set, must contain exactly one of"
            " the supported datatypes"
        )
    return known


def _empty_value() -> ServiceError:
    return invalid(
        "Supplied AttributeValue is empty, must contain exactly one of the supported datatypes"
    )


def json_name(value: Any) -> str:
    """Return how the service's parser calls a JSON value of the wrong type."""
    if value is True:
        return "TRUE_VALUE"
    if value is False:
        return "FALSE_VALUE"
    return "STRING_VALUE" if isinstance(value, str) else "NUMBER_VALUE"


def unconvertible(value: Any, java_type: str) -> ServiceError:
    """Return the serialization error of a scalar that has another type."""
    if isinstance(value, dict):
        return not_serializable("Start of structure or map found where not expected")
    if isinstance(value, list):
        return not_serializable(f"Unrecognized collection type class java.lang.{java_type}")
    return not_serializable(f"{json_name(value)} cannot be converted to {java_type}")


def require_string(value: Any) -> str:
    """Return a string, or raise the serialization error of the service."""
    if type(value) is str:
        return value
    raise unconvertible(value, "String")


def require_boolean(value: Any) -> bool:
    """Return a boolean, or raise the serialization error of the service."""
    if type(value) is bool:
        return value
    if isinstance(value, str):
        raise not_serializable("Unexpected token received from parser")
    raise unconvertible(value, "Boolean")


def _string(content: Any, _depth: int) -> str:
    text = require_string(content)
    if not text.isascii():
        _check_unicode(text)
    return text


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise not_serializable("The string is not valid Unicode") from None


def _number(content: Any, _depth: int = 0) -> int | Decimal:
    text = require_string(content)
    if _EASY_INTEGER.fullmatch(text):
        return int(text)
    if not text:
        raise invalid("The parameter cannot be converted to a numeric value")
    if len(text) > _MAX_NUMBER_CHARACTERS or not _NUMBER.fullmatch(text):
        raise invalid(f"The parameter cannot be converted to a numeric value: {text[:64]}")
    mantissa, _, exponent = text.lower().partition("e")
    digits = mantissa.lstrip("+-").replace(".", "").strip("0")
    if not digits:
        return 0
    high = Decimal(mantissa).adjusted() + int(exponent or 0)  # Decimal limits exponents, too
    if high > _MAX_EXPONENT:
        raise invalid(
            "Number overflow. Attempting to store a number with magnitude larger than supported"
            " range"
        )
    if high < _MIN_EXPONENT:
        raise invalid(
            "Number underflow. Attempting to store a number with magnitude smaller than supported"
            " range"
        )
    if len(digits) > MAX_DIGITS:
        raise invalid("Attempting to store more than 38 significant digits in a Number")
    number = Decimal(text)
    return int(number) if number == number.to_integral_value() else number


def _binary(content: Any, _depth: int = 0) -> bytes:
    text = require_string(content)
    try:
        if len(text) % 4:  # the decoder ignores a surplus of padding
            raise binascii.Error
        return binascii.a2b_base64(text, strict_mode=bool(text))
    except (ValueError, binascii.Error):
        raise not_serializable("Base64 encoded value is not valid") from None


def _boolean(content: Any, _depth: int) -> bool:
    return require_boolean(content)


def _null(content: Any, _depth: int) -> None:
    if not require_boolean(content):
        raise _parameter("Null attribute value types must have the value of true")


def _list(content: Any, depth: int) -> list[Any]:
    _check_depth(depth)
    return [read_value(element, depth + 1) for element in _elements(content)]


def _map(content: Any, depth: int) -> dict[str, Any]:
    _check_depth(depth)
    if not isinstance(content, dict):
        raise not_serializable(
            "Unrecognized collection type java.util.Map<java.lang.String,"
            " com.amazonaws.dynamodb.v20120810.AttributeValue>"
            if isinstance(content, list)
            else "Unexpected field type"
        )
    return {name: read_value(element, depth + 1) for name, element in content.items()}


def _check_depth(depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise invalid("Nesting Levels have exceeded supported limits")


def _elements(content: Any) -> list[Any]:
    if not isinstance(content, list):
        raise not_serializable(
            "Start of structure or map found where not expected"
            if isinstance(content, dict)
            else "Unexpected field type"
        )
    return content


def _string_set(content: Any, depth: int) -> frozenset[str]:
    elements = [_string(element, depth) for element in _elements(content)]
    if not elements:
        raise _parameter("An string set  may not be empty")
    return _distinct(elements, f"Input collection [{', '.join(elements[:100])}] contains")


def _number_set(content: Any, depth: int) -> frozenset[int | Decimal]:
    elements = [_number(element, depth) for element in _elements(content)]
    if not elements:
        raise _parameter("An number set  may not be empty")
    distinct = frozenset(elements)
    if len(distinct) < len(elements):
        raise invalid("Input collection contains duplicates")
    return distinct


def _binary_set(content: Any, depth: int) -> frozenset[bytes]:
    elements = [_binary(element, depth) for element in _elements(content)]
    if not elements:
        raise _parameter("Binary sets should not be empty")
    shown = ", ".join(map(str, content[:100]))
    return _distinct(elements, f"Input collection [{shown}]of type BS contains")


def _distinct(elements: list[Any], message: str) -> frozenset[Any]:
    distinct = frozenset(elements)
    if len(distinct) < len(elements):
        raise _parameter(f"{message} duplicates.")
    return distinct


def _parameter(message: str) -> ServiceError:
    return invalid(f"One or more parameter values were invalid: {message}")


_READERS: Final[dict[str, Callable[[Any, int], Any]]] = {
    "S": _string,
    "N": _number,
    "B": _binary,
    "BOOL": _boolean,
    "NULL": _null,
    "L": _list,
    "M": _map,
    "SS": _string_set,
    "NS": _number_set,
    "BS": _binary_set,
}
