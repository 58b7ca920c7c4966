"""Converts stored values to JSON types.

The store's numbers are exact: an integral `Decimal` becomes an `int`, any other a `float`. Sets
become sorted lists.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any


def to_jsonable(value: Any, *, binary: Callable[[bytes], object] = bytes) -> Any:
    """Convert recursively; `binary` converts bytes, which are unchanged by default."""
    if isinstance(value, Mapping):
        return {name: to_jsonable(element, binary=binary) for name, element in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_jsonable(element, binary=binary) for element in value]
    if isinstance(value, (set, frozenset)):
        return sorted(to_jsonable(element, binary=binary) for element in value)
    if isinstance(value, (bytes, bytearray)):
        return binary(bytes(value))
    if isinstance(value, Decimal):
        return int(value) if value == int(value) else float(value)
    return value
