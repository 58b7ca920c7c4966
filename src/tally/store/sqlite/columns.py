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
from tally.store.sqlite.compiled_shape import CompiledShape
from tally.store.sqlite.shapes import ItemPacker
from tally.store.values import (
    CONTAINER_BYTES,
    ELEMENT_BYTES,
    Item,
    are_easy,
    check_depth,
    check_size,
    measure_easy,
    measure_name,
    measure_value,
)

_MIN_ITEMS = 4  # for fewer items columns do not pay off
# MessagePack's headers by size.
_FIXED_MAP, _MAP_16, _MAP_32 = 0x80, b"\xde", b"\xdf"
_FIXED_ARRAY, _ARRAY_16 = 0x90, b"\xdc"
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
    columns: Mapping[str, Sequence[Any]], common: Item, packer: ItemPacker
) -> tuple[list[bytes], list[int]]:
    """Validate items given by attribute and return their encodings and sizes."""
    count = len(next(iter(columns.values())))
    shape = _find_shape(columns, common, packer)
    omitted = packer.key_names if shape is None else shape.omitted
    names = [name for name in (*common, *columns) if name not in omitted]
    pieces = _Pieces(count)
    if shape is None:
        pieces.add_to_all(_map_header(len(names)), 0)
    else:
        pieces.add_to_all(_array_header(len(names) + 1) + pack(shape.number), 0)
    for name, values in (*((name, [common[name]] * count) for name in common), *columns.items()):
        pieces.is_omitted = name in omitted
        size = measure_name(name)
        pieces.add_to_all(pack(name) if shape is None else b"", size)
        _add_values(pieces, values, name, 0, is_named=shape is None or name not in shape.maps)
    packed, sizes = pieces.join()
    check_size(max(sizes))
    return packed, sizes


def _find_shape(
    columns: Mapping[str, Sequence[Any]], common: Item, packer: ItemPacker
) -> CompiledShape | None:
    """Return the shape of all items, or None."""
    count = len(next(iter(columns.values())))
    key = [part.name for part in packer.key]

    def values(name: str) -> Sequence[Any]:
        return columns[name] if name in columns else [common[name]] * count

    def fits(shape: CompiledShape) -> bool:
        return all(
            _have_same_keys(values(name)) and tuple(values(name)[0]) == inner
            for name, inner in shape.maps.items()
        ) and all(
            [*values(name)] == [text[start:stop] for text in values(key[part])]
            for name, part, start, stop in shape.slices
        )

    for shape in packer.shapes((*common, *columns)):
        if fits(shape):
            return shape
    packer.observe({**common, **{name: values[0] for name, values in columns.items()}}, count)
    return None


class _Pieces:
    """Partially encoded items: the pieces of their bytes and sizes, in order."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._bytes: list[Iterable[bytes]] = []
        self._sizes: list[Iterable[int]] = []
        self._shared = b""
        self._shared_size = 0
        self.is_omitted = False  # while set, only sizes are added

    def add_to_all(self, packed: bytes, size: int) -> None:
        """Append the same bytes to all items."""
        if not self.is_omitted:
            self._shared += packed
        self._shared_size += size

    def add(self, packed: Iterable[bytes], sizes: Iterable[int]) -> None:
        """Append individual bytes to each item."""
        if not self.is_omitted:
            self._bytes += (repeat(self._shared, self._count), packed)
            self._shared = b""
        self._sizes.append(sizes)

    def join(self) -> tuple[list[bytes], list[int]]:
        parts = [*self._bytes, repeat(self._shared, self._count)]
        sizes = [*self._sizes, repeat(self._shared_size, self._count)]
        return [*map(b"".join, zip(*parts, strict=True))], [*map(sum, zip(*sizes, strict=True))]


def _have_same_keys(maps: Sequence[Any]) -> bool:
    """Whether all are maps with the same names in the same order."""
    return {*map(type, maps)} == {dict} and len({*map(tuple, maps)}) == 1 and bool(maps[0])


def _split(maps: Sequence[dict[str, Any]]) -> dict[str, Sequence[Any]]:
    return dict(zip(maps[0], zip(*map(dict.values, maps), strict=True), strict=True))


def _add_values(
    pieces: _Pieces, values: Sequence[Any], where: str, depth: int, *, is_named: bool = True
) -> None:
    """Append the values of one name.

    `where` names the attribute in errors, `depth` is the nesting depth of the values. A map that is
    not named is packed as an array of its values.
    """
    kinds = {*map(type, values)}
    if _are_same(values, kinds):
        size = measure_value(values[0], where, depth)
        pieces.add_to_all(pack(values[0] if is_named else [*values[0].values()]), size)
    elif kinds == {str} and "".join(values).isascii():
        pieces.add(map(ormsgpack.packb, values), map(len, values))
    elif kinds == {int} and are_easy(values):
        pieces.add(map(ormsgpack.packb, values), measure_easy(values))
    elif kinds <= {int, Decimal}:
        pieces.add(*_numbers(values, where))
    elif kinds == {dict} and _have_same_keys(values):
        _add_maps(pieces, _split(values), where, depth, is_named=is_named)
    else:
        pieces.add(map(pack, values), [measure_value(value, where, depth) for value in values])


def _add_maps(
    pieces: _Pieces,
    columns: Mapping[str, Sequence[Any]],
    where: str,
    depth: int,
    *,
    is_named: bool,
) -> None:
    """Append maps with the same keys."""
    check_depth(where, depth)
    header = _map_header if is_named else _array_header
    pieces.add_to_all(header(len(columns)), CONTAINER_BYTES + ELEMENT_BYTES * len(columns))
    for name, values in columns.items():
        size = measure_name(name)
        pieces.add_to_all(pack(name) if is_named else b"", size)
        _add_values(pieces, values, where, depth + 1)


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


def _map_header(count: int) -> bytes:
    """Return the header of a map with this many entries."""
    if count < 16:
        return bytes((_FIXED_MAP | count,))
    return (
        _MAP_16 + count.to_bytes(2, "big") if count < 65_536 else _MAP_32 + count.to_bytes(4, "big")
    )


def _array_header(count: int) -> bytes:
    """Return the header of an array of this length; shapes limit it."""
    return bytes((_FIXED_ARRAY | count,)) if count < 16 else _ARRAY_16 + count.to_bytes(2, "big")
