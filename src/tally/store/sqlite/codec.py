"""Items as bytes in a row: MessagePack, with extensions for the types it does not have (exact decimals and sets)."""

from decimal import Context, Decimal
from typing import Any

import ormsgpack

from tally.store.errors import StorageUnwritable
from tally.store.values import (
    CONTAINER_BYTES,
    ELEMENT_BYTES,
    MAX_DIGITS,
    NAME_BYTES,
    Item,
    check_size,
    measure,
    measure_item,
    measure_name,
)

_DECIMAL, _SET = 1, 2
_OPTIONS = ormsgpack.OPT_PASSTHROUGH_BIG_INT
# The default context rounds to 28 digits.
_EXACT = Context(prec=MAX_DIGITS)
# Decimals, with their size and what they are packed as.
_MOST_NUMBERS = 16_384
_SHORT = 9  # characters: of such numbers nobody can find many with one hash, to make them slow to look up
_NUMBERS: dict[Decimal, tuple[int, Any]] = {}


def pack(item: Any) -> bytes:
    """An item as bytes."""
    return ormsgpack.packb(item, default=_extend, option=_OPTIONS)


def pack_measured(item: Item) -> tuple[bytes, int]:
    """An item as bytes and its size, once every value in it has been found good: `measure_item` and `pack` in one walk.

    For many items at once, whose cost is that of looking at every value. A map's decimals are packed beforehand, which spares a
    call from ormsgpack for each.
    """
    if type(item) is not dict:
        return pack(item), measure_item(item)
    size, known, packable = 0, NAME_BYTES.get, item
    for name, value in item.items():
        size += known(name) or measure_name(name)
        kind = type(value)
        if kind is str and value.isascii():
            size += len(value)
        elif kind is dict:
            try:
                own, inner = _packable_map(value, name)
            except TypeError:  # a signalling NaN has no hash
                own, inner = measure(value, name), value
            size += own
            if inner is not value:
                packable = {**packable, name: inner}
        else:
            size += measure(value, name)
    check_size(size)
    return pack(packable), size


def _packable_map(content: dict[str, Any], where: str) -> tuple[int, dict[str, Any]]:
    """The size of a map, and the same with its decimals as they are packed."""
    size, known, packable = CONTAINER_BYTES + ELEMENT_BYTES * len(content), NAME_BYTES.get, content
    for name, value in content.items():
        size += known(name) or measure_name(name)
        kind = type(value)
        if kind is Decimal:
            own, packed = _NUMBERS.get(value) or _number(value, where)
            size += own
            if packable is content:
                packable = content.copy()
            packable[name] = packed
        elif kind is str and value.isascii():
            size += len(value)
        else:
            size += measure(value, where, 1)
    return size, packable


def _number(value: Decimal, where: str) -> tuple[int, Any]:
    """Sensors show the same few thousand values again and again, so these are remembered, within reason."""
    number = measure(value, where), _extend(value)
    if len(str(value)) <= _SHORT:
        if len(_NUMBERS) >= _MOST_NUMBERS:
            _NUMBERS.clear()
        _NUMBERS[value] = number
    return number


def unpack(packed: bytes) -> Item:
    """The item in the bytes."""
    try:
        item: Item = ormsgpack.unpackb(packed, ext_hook=_restore)
    except ValueError as error:
        raise StorageUnwritable(f"a stored item is damaged: {error}") from error
    if type(item) is not dict:
        raise StorageUnwritable("a stored item is damaged: it is no map")
    return item


def _extend(value: Any) -> Any:
    if isinstance(value, Decimal):
        return ormsgpack.Ext(_DECIMAL, str(value).encode()) if value else 0
    if isinstance(value, set | frozenset):
        return ormsgpack.Ext(_SET, pack(list(value)))
    if isinstance(value, int):
        return ormsgpack.Ext(_DECIMAL, str(value).encode())
    raise TypeError(f"{type(value).__name__} cannot be packed")


def _restore(tag: int, packed: bytes) -> Any:
    if tag == _SET:
        return frozenset(ormsgpack.unpackb(packed, ext_hook=_restore))
    return exact(Decimal(bytes(packed).decode()))


def exact(value: Decimal) -> int | Decimal:
    """A number in its plainest form: an int where it is whole and short enough to be read as one."""
    if value == value.to_integral_value() and value.adjusted() < MAX_DIGITS:
        return int(value)
    return value.normalize(_EXACT)
