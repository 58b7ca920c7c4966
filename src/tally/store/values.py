"""The ten value types, their limits and their sizes.

| type | in Python | | type | in Python |
|---|---|---|---|---|
| S string | `str` | | L list | `list` (a tuple is accepted) |
| N number | `int` or `Decimal`, exact; never `float` | | M map | `dict` with string keys |
| B binary | `bytes` | | SS, NS, BS sets | non-empty `set` or `frozenset` of S, N or B |
| BOOL | `bool` | | NULL | `None` |

`measure_value` validates a value by DynamoDB's rules and returns the size that DynamoDB bills.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal, TypeAlias

from tally.kit.memo import Memo
from tally.store.errors import InvalidNumber, InvalidValue, ItemTooLarge

Item: TypeAlias = dict[str, Any]
Key: TypeAlias = Mapping[str, Any]
Type: TypeAlias = Literal["S", "N", "B", "BOOL", "NULL", "L", "M", "SS", "NS", "BS"]

MAX_ITEM_BYTES = 400 * 1024
MAX_DEPTH = 32
MAX_DIGITS = 38
MAX_NAME_BYTES = 65_535
_INTEGER_LIMIT = 10**126
_MAX_EASY_INTEGER = 10**15  # smaller positive integers need no checks
CHECKED_INTEGER_LIMIT = 10**36  # smaller ones have few enough digits and bytes
_LARGEST = Decimal("9.9999999999999999999999999999999999999E+125")
_SMALLEST = Decimal("1E-130")
_MAX_EXPONENT, _MIN_EXPONENT = 125, -130
_MAX_NUMBER_BYTES = 21
_MAX_CACHED_NAMES = 4096
NAME_BYTES: dict[str, int] = {}
CONTAINER_BYTES = 3
ELEMENT_BYTES = 1

_TYPES: dict[type, Type] = {
    str: "S",
    int: "N",
    Decimal: "N",
    bytes: "B",
    bool: "BOOL",
    type(None): "NULL",
    list: "L",
    tuple: "L",
    dict: "M",
}


def type_of(value: Any) -> Type:
    """Return the DynamoDB type of a value."""
    found = _TYPES.get(type(value))
    if found:
        return found
    if isinstance(value, set | frozenset):
        return _set_type(value)
    raise InvalidValue(f"{type(value).__name__} is not a supported type")


def _set_type(value: set[Any] | frozenset[Any]) -> Type:
    kinds = {type_of(element) for element in value}
    if len(kinds) != 1:
        raise InvalidValue(
            "a set must not be empty" if not kinds else "a set must contain values of one type"
        )
    kind = kinds.pop()
    if kind == "S":
        return "SS"
    if kind == "N":
        return "NS"
    if kind == "B":
        return "BS"
    raise InvalidValue(f"a set may contain strings, numbers or binaries, not {kind}")


def measure_item(item: Mapping[str, Any]) -> int:
    """Validate an item and return its size in bytes."""
    if type(item) is not dict and not isinstance(item, Mapping):
        raise InvalidValue(f"an item must be a map of attributes, not {type(item).__name__}")
    size = 0
    known = NAME_BYTES.get
    for name, value in item.items():
        size += known(name) or measure_name(name)
        if (
            type(value) is str and value.isascii()
        ):  # the most common case: skips a lookup and a call
            size += len(value)
        else:
            size += _MEASURERS.get(type(value), _reject_type)(value, name, 0)
    if size > MAX_ITEM_BYTES:
        check_size(size)
    return size


def measure_attribute(name: str, value: Any) -> int:
    """Validate one attribute and return the size of its name and value in bytes."""
    return (NAME_BYTES.get(name) or measure_name(name)) + measure_value(value, name)


def check_size(size: int) -> None:
    """Reject an item that exceeds the size limit."""
    if size > MAX_ITEM_BYTES:
        raise ItemTooLarge(f"the item has {size} bytes; the limit is {MAX_ITEM_BYTES}")


def measure_name(name: Any) -> int:
    """Validate an attribute name and return its size in bytes.

    Sizes are cached up to a limit, because a program uses few distinct names.
    """
    if type(name) is not str:
        raise InvalidValue(f"an attribute name must be a string, not {type(name).__name__}")
    size = len(name) if name.isascii() else len(_utf8(name, "attribute name"))
    if not 0 < size <= MAX_NAME_BYTES:
        raise InvalidValue(f"an attribute name must have 1 to {MAX_NAME_BYTES} bytes, not {size}")
    if len(NAME_BYTES) < _MAX_CACHED_NAMES and size < 256:
        NAME_BYTES[name] = size
    return size


def measure_value(value: Any, where: str, depth: int = 0) -> int:
    """Validate one value and return its size in bytes; `where` names it in error messages."""
    return _MEASURERS.get(type(value), _reject_type)(value, where, depth)


def _reject_type(value: Any, where: str, _depth: int) -> int:
    raise InvalidValue(f"{where}: {type(value).__name__} is not a supported type")


def _measure_string(value: str, where: str, _depth: int) -> int:
    return len(value) if value.isascii() else len(_utf8(value, where))


def _utf8(value: str, where: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue(f"{where}: not a valid Unicode string ({error.reason})") from None


def are_easy(values: Sequence[int]) -> bool:
    """Whether `measure_easy` accepts these integers.

    Positive and below 10^15, like most counters.
    """
    return min(values) > 0 and max(values) < _MAX_EASY_INTEGER


def measure_easy(values: Sequence[int]) -> list[int]:
    """Return the sizes of positive integers below 10^15."""
    digits = len(str(max(values)))
    if len(str(min(values))) < digits:
        return [*map(_easy_bytes, map(str, values))]
    size = (digits - 1 >> 1) + 2  # minus one per pair of trailing zeros
    return [
        size if value % 100 else size - 1 if value % 10_000 else _easy_bytes(str(value))
        for value in values
    ]


def _easy_bytes(digits: str) -> int:
    """Same as `_number_bytes` for a short positive integer."""
    count = len(digits)
    return (count - 1 >> 1) - (count - len(digits.rstrip("0")) >> 1) + 2


def _measure_integer(value: int, where: str, _depth: int) -> int:
    if 0 < value < CHECKED_INTEGER_LIMIT and value % 100:  # no pair of trailing zeros
        return (len(str(value)) + 3) >> 1
    if not value:
        return 1
    magnitude = -value if value < 0 else value
    if magnitude >= _INTEGER_LIMIT:
        raise InvalidNumber(f"{where}: the magnitude of a number must be at most {_LARGEST}")
    text = str(magnitude)
    digits = len(text)
    significant = len(text.rstrip("0"))
    if significant > MAX_DIGITS:
        raise InvalidNumber(
            f"{where}: a number may have at most {MAX_DIGITS} significant digits, not {significant}"
        )
    return _number_bytes(digits - 1, digits - significant, value < 0)


def _number_bytes(high: int, low: int, negative: bool) -> int:
    """Return the size of a number: digits are stored in pairs, aligned to the decimal point.

    `high` and `low` are the powers of ten of the first and the last digit.
    """
    size = (high >> 1) - (low >> 1) + 2 + negative
    return min(_MAX_NUMBER_BYTES, size)


def _measure_decimal(value: Decimal, where: str, _depth: int) -> int:
    try:
        return _decimal_sizes[value]
    except (InvalidNumber, TypeError):  # a signalling NaN has no hash
        return _decimal_bytes(value, where)


def _decimal_bytes(value: Decimal, where: str = "a number") -> int:
    text = str(value)  # several times faster than as_tuple()
    if not value.is_finite():
        raise InvalidNumber(f"{where}: {text} is not a finite number")
    digits = text if "E" not in text else text.partition("E")[0]
    significant = len(digits.replace(".", "", 1).strip("-0"))
    if not significant:
        return 1
    if significant > MAX_DIGITS:
        raise InvalidNumber(
            f"{where}: a number may have at most {MAX_DIGITS} significant digits, not {significant}"
        )
    high = value.adjusted()
    if not _MIN_EXPONENT <= high <= _MAX_EXPONENT:
        limit = f"most {_LARGEST}" if high > 0 else f"least {_SMALLEST}"
        raise InvalidNumber(f"{where}: the magnitude of a number must be at {limit}")
    return _number_bytes(high, high - significant + 1, text[0] == "-")


_decimal_sizes = Memo(_decimal_bytes)  # sensors repeat a few thousand values


def _reject_float(value: float, where: str, _depth: int) -> int:
    raise InvalidNumber(
        f"{where}: a float is not exact; use a Decimal or an int instead of {value!r}"
    )


def _measure_list(value: list[Any] | tuple[Any, ...], where: str, depth: int) -> int:
    check_depth(where, depth)
    size = CONTAINER_BYTES + ELEMENT_BYTES * len(value)
    deeper = depth + 1
    for element in value:
        if type(element) is str and element.isascii():
            size += len(element)
        else:
            size += _MEASURERS.get(type(element), _reject_type)(element, where, deeper)
    return size


def _measure_map(value: dict[str, Any], where: str, depth: int) -> int:
    check_depth(where, depth)
    size = CONTAINER_BYTES + ELEMENT_BYTES * len(value)
    deeper, known = depth + 1, NAME_BYTES.get
    for name, element in value.items():
        size += known(name) or measure_name(name)
        if type(element) is str and element.isascii():
            size += len(element)
        else:
            size += _MEASURERS.get(type(element), _reject_type)(element, where, deeper)
    return size


def _measure_set(value: set[Any] | frozenset[Any], where: str, depth: int) -> int:
    try:
        _set_type(value)
    except InvalidValue as error:
        raise InvalidValue(f"{where}: {error}") from None
    return sum(measure_value(element, where, depth) for element in value)


def check_depth(where: str, depth: int) -> None:
    """Reject a list or map that is nested too deeply."""
    if depth >= MAX_DEPTH - 1:
        raise InvalidValue(
            f"{where}: values may nest at most {MAX_DEPTH} levels, counting the innermost value"
        )


_MEASURERS: dict[type, Callable[[Any, str, int], int]] = {
    str: _measure_string,
    int: _measure_integer,
    Decimal: _measure_decimal,
    float: _reject_float,
    bool: lambda _value, _where, _depth: 1,
    type(None): lambda _value, _where, _depth: 1,
    bytes: lambda value, _where, _depth: len(value),
    list: _measure_list,
    tuple: _measure_list,
    dict: _measure_map,
    set: _measure_set,
    frozenset: _measure_set,
}
