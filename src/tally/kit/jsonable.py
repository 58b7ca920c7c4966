"""Stored values as JSON has them, for bodies that go out and for whoever looks at an item.

The store's numbers are exact: a `Decimal` that is whole becomes an `int`, any other a `float`. Sets
become sorted lists.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any


def to_jsonable(value: Any, *, binary: Callable[[bytes], object] = bytes) -> Any:
    """The same with what JSON has; `binary` says what stands for bytes, which are left as they are without it."""
    if isinstance(value, Mapping):
        return {name: to_jsonable(held, binary=binary) for name, held in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_jsonable(held, binary=binary) for held in value]
    if isinstance(value, (set, frozenset)):
        return sorted(to_jsonable(held, binary=binary) for held in value)
    if isinstance(value, (bytes, bytearray)):
        return binary(bytes(value))
    if isinstance(value, Decimal):
        return int(value) if value == int(value) else float(value)
    return value
