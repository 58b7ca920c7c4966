"""Many items as bytes and sizes, an attribute at a time instead of an item at a time.

What is put at once is mostly alike: the same names, and under each name values of one type, often
one and the same value. Such a column is checked, measured and packed by a few calls that run in C,
where an item at a time takes some steps of Python for each value.
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

_FEW = 4  # items, for which a column is not worth its trouble
_FIXED_MAP, _MAP_16, _MAP_32 = (
    0x80,
    b"\xde",
    b"\xdf",
)  # how MessagePack begins a map, by the number of its entries
_SAME = ({str}, {int})  # kinds of values that are packed alike where they are equal


def to_columns(items: Sequence[Item], common: Item) -> Mapping[str, Sequence[Any]] | None:
    """The items by attribute, if they are alike and that is worth its trouble."""
    if len(items) < _FEW:
        return None
    if isinstance(items, ColumnarItems):
        columns = items.values
    elif _are_alike(items):
        columns = _taken_apart(items)
    else:
        return None
    return columns if common.keys().isdisjoint(columns) else None


def pack_columns(
    columns: Mapping[str, Sequence[Any]], common: Item
) -> tuple[list[bytes], list[int]]:
    """The bytes and the sizes of items, each with what is common to all, once every value in them has been found good."""
    pieces = _Pieces(len(next(iter(columns.values()))))
    pieces.add_to_all(_header(len(common) + len(columns)), 0)
    for name, value in common.items():
        size = measure_attribute(name, value)  # before it is packed, which takes only what is good
        pieces.add_to_all(pack(name) + pack(value), size)
    _add_columns(pieces, columns, None, 0)
    packed, sizes = pieces.joined()
    check_size(max(sizes))
    return packed, sizes


class _Pieces:
    """Items as they are being packed: pieces of their bytes, in order, and of their sizes."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._bytes: list[Iterable[bytes]] = []
        self._sizes: list[Iterable[int]] = []
        self._same = b""
        self._same_size = 0

    def add_to_all(self, packed: bytes, size: int) -> None:
        """What is the same in all items."""
        self._same += packed
        self._same_size += size

    def add(self, packed: Iterable[bytes], sizes: Iterable[int]) -> None:
        """What each item has of its own."""
        self._bytes += (repeat(self._same, self._count), packed)
        self._sizes.append(sizes)
        self._same = b""

    def joined(self) -> tuple[list[bytes], list[int]]:
        parts = [*self._bytes, repeat(self._same, self._count)]
        sizes = [*self._sizes, repeat(self._same_size, self._count)]
        return [*map(b"".join, zip(*parts, strict=True))], [*map(sum, zip(*sizes, strict=True))]


def _are_alike(maps: Sequence[Any]) -> bool:
    """Whether all are maps with the same names, in the same order."""
    return {*map(type, maps)} == {dict} and len({*map(tuple, maps)}) == 1 and bool(maps[0])


def _taken_apart(maps: Sequence[dict[str, Any]]) -> dict[str, Sequence[Any]]:
    return dict(zip(maps[0], zip(*map(dict.values, maps), strict=True), strict=True))


def _add_columns(
    pieces: _Pieces, columns: Mapping[str, Sequence[Any]], where: str | None, depth: int
) -> None:
    """The entries of maps that are alike.

    `where` names the attribute that they are in, `depth` is that of their values.
    """
    for name, values in columns.items():
        size = measure_name(name)
        pieces.add_to_all(pack(name), size)
        _add_values(pieces, values, where or name, depth)


def _add_values(pieces: _Pieces, values: Sequence[Any], where: str, depth: int) -> None:
    """What stands under one name."""
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
    elif kinds == {dict} and _are_alike(values):
        check_depth(where, depth)
        columns = _taken_apart(values)
        pieces.add_to_all(_header(len(columns)), CONTAINER_BYTES + ELEMENT_BYTES * len(columns))
        _add_columns(pieces, columns, where, depth + 1)
    else:
        pieces.add(map(pack, values), [measure_value(value, where, depth) for value in values])


def _are_same(values: Sequence[Any], kinds: set[type]) -> bool:
    """Whether all are one and the same string, integer or map of strings; of other kinds, equals may be of different types."""
    first = values[0]
    is_plain = kinds in _SAME or (kinds == {dict} and {*map(type, first.values())} == {str})
    return is_plain and bool(first == values[-1]) and values.count(first) == len(values)


def _numbers(values: Sequence[int | Decimal], where: str) -> tuple[Iterable[bytes], Iterable[int]]:
    """Numbers as they are packed, and their sizes."""
    try:
        known = [*map(_known.__getitem__, values)]
    except (InvalidNumber, TypeError):  # a signalling NaN has no hash
        for value in values:
            measure_value(value, where)
        raise
    return map(_packed, known), map(_size, known)


def _number(value: int | Decimal) -> tuple[bytes, int]:
    size = measure_value(value, "a number")
    return pack(value), size


_known = Memo(_number)  # sensors show the same few thousand values again and again
_packed, _size = itemgetter(0), itemgetter(1)


def _header(count: int) -> bytes:
    """What a map of so many entries begins with."""
    if count < 16:
        return bytes((_FIXED_MAP | count,))
    return (
        _MAP_16 + count.to_bytes(2, "big") if count < 65_536 else _MAP_32 + count.to_bytes(4, "big")
    )
