"""The ten types of a value, their limits and their sizes.

| type | in Python | | type | in Python |
|---|---|---|---|---|
| S string | `str` | | L list | `list` (a tuple is taken as one) |
| N number | `int` or `Decimal`, exact; never `float` | | M map | `dict` with string keys |
| B binary | `bytes` | | SS, NS, BS sets | `set` or `frozenset` of one of S, N, B; never empty |
| BOOL | `bool` | | NULL | `None` |

`measure_value` is the one gate: it refuses what DynamoDB would refuse, and returns the size that DynamoDB
would bill.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal, TypeAlias

from tally.store.errors import InvalidNumber, InvalidValue, ItemTooLarge

Item: TypeAlias = dict[str, Any]
Key: TypeAlias = Mapping[str, Any]
Type: TypeAlias = Literal["S", "N", "B", "BOOL", "NULL", "L", "M", "SS", "NS", "BS"]

MAX_ITEM_BYTES = 400 * 1024
MAX_DEPTH = 32
MAX_DIGITS = 38
MAX_NAME_BYTES = 65_535
_TOO_LARGE = 10**126
_EASY = 10**15  # nothing to check below
_LARGEST = Decimal("9.9999999999999999999999999999999999999E+125")
_SMALLEST = Decimal("1E-130")
_HIGHEST, _LOWEST = 125, -130  # their powers of ten
_MAX_NUMBER_BYTES = 21
_REMEMBERED_NAMES = 4096
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
    """The DynamoDB type of a value."""
    found = _TYPES.get(type(value))
    if found:
        return found
    if isinstance(value, set | frozenset):
        return _set_type(value)
    raise InvalidValue(f"{type(value).__name__} is not a type the store knows")


def _set_type(value: set[Any] | frozenset[Any]) -> Type:
    kinds = {type_of(element) for element in value}
    if len(kinds) != 1:
        raise InvalidValue(
            "a set must hold at least one element" if not kinds else "a set must hold one type only"
        )
    kind = kinds.pop()
    if kind == "S":
        return "SS"
    if kind == "N":
        return "NS"
    if kind == "B":
        return "BS"
    raise InvalidValue(f"a set holds strings, numbers or binaries, not {kind}")


def measure_item(item: Mapping[str, Any]) -> int:
    """The size of an item in bytes, once every value in it has been found good."""
    if type(item) is not dict and not isinstance(item, Mapping):
        raise InvalidValue(f"an item is a map of attributes, not {type(item).__name__}")
    size = 0
    known = NAME_BYTES.get
    for name, value in item.items():
        size += known(name) or measure_name(name)
        if (
            type(value) is str and value.isascii()
        ):  # by far the most common: spared the look-up and the call
            size += len(value)
        else:
            size += _MEASURERS.get(type(value), _refuse_type)(value, name, 0)
    if size > MAX_ITEM_BYTES:
        check_size(size)
    return size


def measure_attribute(name: str, value: Any) -> int:
    """The size of one attribute with its name."""
    return (NAME_BYTES.get(name) or measure_name(name)) + measure_value(value, name)


def check_size(size: int) -> None:
    """Refuse an item of so many bytes if that is too many."""
    if size > MAX_ITEM_BYTES:
        raise ItemTooLarge(f"the item has {size} bytes; at most {MAX_ITEM_BYTES} fit")


def measure_name(name: Any) -> int:
    """The size of a name.

    They come from a program's code, and are few: what was measured once is remembered, within
    reason.
    """
    if type(name) is not str:
        raise InvalidValue(f"an attribute's name is a string, not {type(name).__name__}")
    size = len(name) if name.isascii() else len(_utf8(name, "attribute name"))
    if not 0 < size <= MAX_NAME_BYTES:
        raise InvalidValue(f"an attribute's name has 1 to {MAX_NAME_BYTES} bytes, not {size}")
    if len(NAME_BYTES) < _REMEMBERED_NAMES and size < 256:
        NAME_BYTES[name] = size
    return size


def measure_value(value: Any, where: str, depth: int = 0) -> int:
    """The size of one value in bytes; `where` names it in errors."""
    return _MEASURERS.get(type(value), _refuse_type)(value, where, depth)


def _refuse_type(value: Any, where: str, _depth: int) -> int:
    raise InvalidValue(f"{where}: {type(value).__name__} is not a type the store knows")


def _measure_string(value: str, where: str, _depth: int) -> int:
    return len(value) if value.isascii() else len(_utf8(value, where))


def _utf8(value: str, where: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue(f"{where}: not a valid Unicode string ({error.reason})") from None


def are_easy(values: Sequence[int]) -> bool:
    """Whether `measure_easy` may be asked of them, as of most counters and moments."""
    return min(values) > 0 and max(values) < _EASY


def measure_easy(values: Sequence[int]) -> list[int]:
    """The sizes of integers that are positive and not large."""
    digits = len(str(max(values)))
    if len(str(min(values))) < digits:
        return [*map(_easy_bytes, map(str, values))]
    size = (digits - 1 >> 1) + 2  # less what two zeros at the end, or four, take off it
    return [
        size if value % 100 else size - 1 if value % 10_000 else _easy_bytes(str(value))
        for value in values
    ]


def _easy_bytes(digits: str) -> int:
    """See `_number_bytes`."""
    count = len(digits)
    return (count - 1 >> 1) - (count - len(digits.rstrip("0")) >> 1) + 2


def _measure_integer(value: int, where: str, _depth: int) -> int:
    if 0 < value < _EASY:
        return _easy_bytes(str(value))
    if not value:
        return 1
    magnitude = -value if value < 0 else value
    if magnitude >= _TOO_LARGE:
        raise InvalidNumber(f"{where}: a number's magnitude is at most {_LARGEST}")
    text = str(magnitude)
    digits = len(text)
    significant = len(text.rstrip("0"))
    if significant > MAX_DIGITS:
        raise InvalidNumber(
            f"{where}: a number has at most {MAX_DIGITS} significant digits, not {significant}"
        )
    return _number_bytes(digits - 1, digits - significant, value < 0)


def _number_bytes(high: int, low: int, negative: bool) -> int:
    """Digits are stored in pairs, aligned to the point; `high` and `low` are the powers of ten of the first and last digit."""
    size = (high >> 1) - (low >> 1) + 2 + negative
    return min(_MAX_NUMBER_BYTES, size)


def _measure_decimal(value: Decimal, where: str, _depth: int) -> int:
    text = str(value)  # several times faster than the tuple of digits
    if not value.is_finite():
        raise InvalidNumber(f"{where}: {text} is not a number that can be stored")
    digits = text if "E" not in text else text.partition("E")[0]
    significant = len(digits.replace(".", "", 1).strip("-0"))
    if not significant:
        return 1
    if significant > MAX_DIGITS:
        raise InvalidNumber(
            f"{where}: a number has at most {MAX_DIGITS} significant digits, not {significant}"
        )
    high = value.adjusted()
    if not _LOWEST <= high <= _HIGHEST:
        limit = f"most {_LARGEST}" if high > 0 else f"least {_SMALLEST}"
        raise InvalidNumber(f"{where}: a number's magnitude is at {limit}")
    return _number_bytes(high, high - significant + 1, text[0] == "-")


def _refuse_float(value: float, where: str, _depth: int) -> int:
    raise InvalidNumber(f"{where}: a float is not exact; give {value!r} as a Decimal or an int")


def _measure_list(value: list[Any] | tuple[Any, ...], where: str, depth: int) -> int:
    check_depth(where, depth)
    return CONTAINER_BYTES + sum(
        measure_value(element, where, depth + 1) + ELEMENT_BYTES for element in value
    )


def _measure_map(value: dict[str, Any], where: str, depth: int) -> int:
    check_depth(where, depth)
    size = CONTAINER_BYTES + ELEMENT_BYTES * len(value)
    deeper, known = depth + 1, NAME_BYTES.get
    for name, element in value.items():
        size += known(name) or measure_name(name)
        if type(element) is str and element.isascii():
            size += len(element)
        else:
            size += _MEASURERS.get(type(element), _refuse_type)(element, where, deeper)
    return size


def _measure_set(value: set[Any] | frozenset[Any], where: str, depth: int) -> int:
    try:
        _set_type(value)
    except InvalidValue as error:
        raise InvalidValue(f"{where}: {error}") from None
    return sum(measure_value(element, where, depth) for element in value)


def check_depth(where: str, depth: int) -> None:
    """Refuse a list or map so deep inside of an item."""
    if depth >= MAX_DEPTH - 1:
        raise InvalidValue(
            f"{where}: values nest at most {MAX_DEPTH} levels deep, the innermost value counted"
        )


_MEASURERS: dict[type, Callable[[Any, str, int], int]] = {
    str: _measure_string,
    int: _measure_integer,
    Decimal: _measure_decimal,
    float: _refuse_float,
    bool: lambda _value, _where, _depth: 1,
    type(None): lambda _value, _where, _depth: 1,
    bytes: lambda value, _where, _depth: len(value),
    list: _measure_list,
    tuple: _measure_list,
    dict: _measure_map,
    set: _measure_set,
    frozenset: _measure_set,
}
