"""Encodes and measures many items column by column instead of item by item.

Items that are written together mostly have the same attributes, each with values of one type, often
equal. A few C calls validate, measure and pack such a column; item by item, every value costs
several steps of Python.
"""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import repeat
from operator import itemgetter
from typing import Any

import ormsgpack

from tally.kit.memo import Memo
from tally.store.api import ColumnarItems
from tally.store.errors import InvalidNumber
from tally.store.sqlite.codec import pack
from tally.store.values import (
    CONTAINER_BYTES,
    ELEMENT_BYTES,
    Item,
    are_easy,
    check_depth,
    check_size,
    measure_attribute,
    measure_easy,
    measure_name,
    measure_value,
)

_MIN_ITEMS = 4  # for fewer items columns do not pay off
_FIXED_MAP, _MAP_16, _MAP_32 = 0x80, b"\xde", b"\xdf"  # MessagePack's map headers by size
_SAME = ({str}, {int})  # equal values of these types have equal encodings


def to_columns(items: Sequence[Item], common: Item) -> Mapping[str, Sequence[Any]] | None:
    """Return the items by attribute, or None if they differ in shape or are too few."""
    if len(items) < _MIN_ITEMS:
        return None
    if isinstance(items, ColumnarItems):
        columns = items.values
    elif _have_same_keys(items):
        columns = _split(items)
    else:
        return None
    return columns if common.keys().isdisjoint(columns) else None


def pack_columns(
    columns: Mapping[str, Sequence[Any]], common: Item
) -> tuple[list[bytes], list[int]]:
    """Validate items given by attribute and return their encodings and sizes."""
    pieces = _Pieces(len(next(iter(columns.values()))))
    pieces.add_to_all(_header(len(common) + len(columns)), 0)
    for name, value in common.items():
        size = measure_attribute(name, value)  # validate before packing
        pieces.add_to_all(pack(name) + pack(value), size)
    _add_columns(pieces, columns, None, 0)
    packed, sizes = pieces.join()
    check_size(max(sizes))
    return packed, sizes


class _Pieces:
    """Partially encoded items: the pieces of their bytes and sizes, in order."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._bytes: list[Iterable[bytes]] = []
        self._sizes: list[Iterable[int]] = []
        self._shared = b""
        self._shared_size = 0

    def add_to_all(self, packed: bytes, size: int) -> None:
        """Append the same bytes to all items."""
        self._shared += packed
        self._shared_size += size

    def add(self, packed: Iterable[bytes], sizes: Iterable[int]) -> None:
        """Append individual bytes to each item."""
        self._bytes += (repeat(self._shared, self._count), packed)
        self._sizes.append(sizes)
        self._shared = b""

    def join(self) -> tuple[list[bytes], list[int]]:
        parts = [*self._bytes, repeat(self._shared, self._count)]
        sizes = [*self._sizes, repeat(self._shared_size, self._count)]
        return [*map(b"".join, zip(*parts, strict=True))], [*map(sum, zip(*sizes, strict=True))]


def _have_same_keys(maps: Sequence[Any]) -> bool:
    """Whether all are maps with the same names in the same order."""
    return {*map(type, maps)} == {dict} and len({*map(tuple, maps)}) == 1 and bool(maps[0])


def _split(maps: Sequence[dict[str, Any]]) -> dict[str, Sequence[Any]]:
    return dict(zip(maps[0], zip(*map(dict.values, maps), strict=True), strict=True))


def _add_columns(
    pieces: _Pieces, columns: Mapping[str, Sequence[Any]], where: str | None, depth: int
) -> None:
    """Append the entries of maps with the same keys.

    `where` names the enclosing attribute in errors, `depth` is the nesting depth of the values.
    """
    for name, values in columns.items():
        size = measure_name(name)
        pieces.add_to_all(pack(name), size)
        _add_values(pieces, values, where or name, depth)


def _add_values(pieces: _Pieces, values: Sequence[Any], where: str, depth: int) -> None:
    """Append the values of one name."""
    kinds = {*map(type, values)}
    if _are_same(values, kinds):
        size = measure_value(values[0], where, depth)
        pieces.add_to_all(pack(values[0]), size)
    elif kinds == {str} and "".join(values).isascii():
        pieces.add(map(ormsgpack.packb, values), map(len, values))
    elif kinds == {int} and are_easy(values):
        pieces.add(map(ormsgpack.packb, values), measure_easy(values))
    elif kinds <= {int, Decimal}:
        pieces.add(*_numbers(values, where))
    elif kinds == {dict} and _have_same_keys(values):
        check_depth(where, depth)
        columns = _split(values)
        pieces.add_to_all(_header(len(columns)), CONTAINER_BYTES + ELEMENT_BYTES * len(columns))
        _add_columns(pieces, columns, where, depth + 1)
    else:
        pieces.add(map(pack, values), [measure_value(value, where, depth) for value in values])


def _are_same(values: Sequence[Any], kinds: set[type]) -> bool:
    """Whether all values are equal and have equal encodings.

    Other types may be equal across types.
    """
    first = values[0]
    is_plain = kinds in _SAME or (kinds == {dict} and {*map(type, first.values())} == {str})
    return is_plain and bool(first == values[-1]) and values.count(first) == len(values)


def _numbers(values: Sequence[int | Decimal], where: str) -> tuple[Iterable[bytes], Iterable[int]]:
    """Return the encodings and sizes of numbers."""
    try:
        encoded = [*map(_number_cache.__getitem__, values)]
    except (InvalidNumber, TypeError):  # a signalling NaN has no hash
        for value in values:
            measure_value(value, where)
        raise
    return map(_packed, encoded), map(_size, encoded)


def _number(value: int | Decimal) -> tuple[bytes, int]:
    size = measure_value(value, "a number")
    return pack(value), size


_number_cache = Memo(_number)  # sensors repeat a few thousand values
_packed, _size = itemgetter(0), itemgetter(1)


def _header(count: int) -> bytes:
    """Return the header of a map with this many entries."""
    if count < 16:
        return bytes((_FIXED_MAP | count,))
    return (
        _MAP_16 + count.to_bytes(2, "big") if count < 65_536 else _MAP_32 + count.to_bytes(4, "big")
    )
