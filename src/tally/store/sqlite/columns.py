"""Many items as bytes and sizes, an attribute at a time instead of an item at a time.

What is put at once is mostly alike: the same names, and under each name values of one type, often one and the same value. Such a
column is checked, measured and packed by a few calls that run in C, where an item at a time takes some steps of Python for each
value.
"""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import ormsgpack

from tally.store.sqlite.codec import pack
from tally.store.values import (
    CONTAINER_BYTES,
    ELEMENT_BYTES,
    Item,
    check_depth,
    check_size,
    measure,
    measure_attribute,
    measure_integers,
    measure_item,
    measure_name,
)

Column: TypeAlias = tuple[Iterable[bytes], Iterable[int]]

_FEW = 4  # items, for which a column is not worth its trouble
_FIXED_MAP, _MAP_16, _MAP_32 = 0x80, b"\xde", b"\xdf"  # how MessagePack begins a map, by the number of its entries
_SAME = ({str}, {int})  # kinds of values that are packed alike where they are equal
# Decimals as they are packed, and their sizes.
_NUMBERS: dict[Decimal, tuple[bytes, int]] = {}
_MOST_NUMBERS = 16_384
_SHORT = 9  # characters: of such numbers nobody can find many with one hash, to make them slow to look up


def pack_each(items: Sequence[Item], common: Item) -> tuple[list[bytes], list[int]]:
    """The bytes and the sizes of items, each with what is common to all, once every value in them has been found good."""
    if len(items) < _FEW or not _are_alike(items) or not common.keys().isdisjoint(items[0]):
        whole = [{**common, **item} for item in items] if common else items
        sizes = [measure_item(item) for item in whole]
        return [pack(item) for item in whole], sizes
    packed, sizes = _pack_maps(items, common, None, 0)
    check_size(max(sizes))
    return packed, sizes


def _are_alike(maps: Sequence[Any]) -> bool:
    """Whether all are maps with the same names, in the same order."""
    return {*map(type, maps)} == {dict} and len({*map(tuple, maps)}) == 1 and bool(maps[0])


def _pack_maps(maps: Sequence[Item], common: Item, where: str | None, depth: int) -> tuple[list[bytes], list[int]]:
    """Maps that are alike. `where` names the attribute that they are in, `depth` is that of their values."""
    size = sum(measure_attribute(name, value) for name, value in common.items())
    before = _header(len(common) + len(maps[0])) + pack(common)[len(_header(len(common))) :]
    parts: list[Iterable[bytes]] = []
    sizes: list[Iterable[int]] = []
    for name, values in zip(maps[0], zip(*map(dict.values, maps), strict=True), strict=True):
        size += measure_name(name)
        before += pack(name)
        kinds = {*map(type, values)}
        if _are_same(values, kinds):
            size += measure(values[0], where or name, depth)
            before += pack(values[0])
            continue
        packed, own = _pack_values(values, kinds, where or name, depth)
        parts += ([before] * len(maps), packed)
        sizes.append(own)
        before = b""
    parts.append([before] * len(maps))
    sizes.append([size] * len(maps))
    return [*map(b"".join, zip(*parts, strict=True))], [*map(sum, zip(*sizes, strict=True))]


def _are_same(values: Sequence[Any], kinds: set[type]) -> bool:
    """Whether all are one and the same string, integer or map of strings; of other kinds, equals may be of different types."""
    first = values[0]
    is_plain = kinds in _SAME or (kinds == {dict} and {*map(type, first.values())} == {str})
    return is_plain and bool(first == values[-1]) and values.count(first) == len(values)


def _pack_values(values: Sequence[Any], kinds: set[type], where: str, depth: int) -> Column:
    """What stands under one name."""
    if kinds == {str} and "".join(values).isascii():
        return map(ormsgpack.packb, values), map(len, values)
    if kinds == {int}:
        return map(pack, values), measure_integers(values, where)
    if kinds == {dict} and _are_alike(values):
        check_depth(where, depth)
        packed, sizes = _pack_maps(values, {}, where, depth + 1)
        own = CONTAINER_BYTES + ELEMENT_BYTES * len(values[0])
        return packed, [size + own for size in sizes]
    if kinds == {Decimal}:
        numbers = _numbers(values, where)
        return [packed for packed, _ in numbers], [size for _, size in numbers]
    return map(pack, values), [measure(value, where, depth) for value in values]


def _numbers(values: Sequence[Decimal], where: str) -> list[tuple[bytes, int]]:
    """Decimals as they are packed, and their sizes."""
    try:
        known = [*map(_NUMBERS.get, values)]
    except TypeError:  # a signalling NaN has no hash, and is refused by its measure
        known = [None] * len(values)
    return [found or _number(value, where) for found, value in zip(known, values, strict=True)]


def _number(value: Decimal, where: str) -> tuple[bytes, int]:
    """Sensors show the same few thousand values again and again, so these are remembered, within reason."""
    size = measure(value, where)
    number = pack(value), size
    if len(str(value)) <= _SHORT:
        if len(_NUMBERS) >= _MOST_NUMBERS:
            _NUMBERS.clear()
        _NUMBERS[value] = number
    return number


def _header(count: int) -> bytes:
    """What a map of so many entries begins with."""
    if count < 16:
        return bytes((_FIXED_MAP | count,))
    return _MAP_16 + count.to_bytes(2, "big") if count < 65_536 else _MAP_32 + count.to_bytes(4, "big")
