"""Encodes items as MessagePack, with extension types for decimals and sets."""

from decimal import Context, Decimal
from typing import Any

import ormsgpack

from tally.store.errors import StorageUnwritable
from tally.store.values import MAX_DIGITS, Item

_DECIMAL, _SET = 1, 2
_OPTIONS = ormsgpack.OPT_PASSTHROUGH_BIG_INT
# The default decimal context rounds to 28 digits.
_EXACT = Context(prec=MAX_DIGITS)


def pack(item: Any) -> bytes:
    """Encode an item."""
    return ormsgpack.packb(item, default=_extend, option=_OPTIONS)


def unpack(packed: bytes) -> Item:
    """Decode an item."""
    try:
        item: Item = ormsgpack.unpackb(packed, ext_hook=_restore)
    except ValueError as error:
        raise StorageUnwritable(f"a stored item is damaged: {error}") from error
    if type(item) is not dict:
        raise StorageUnwritable("a stored item is damaged: it is not a map")
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
    return normalize_number(Decimal(bytes(packed).decode()))


def normalize_number(value: Decimal) -> int | Decimal:
    """Return an int if the number is integral and short enough, else a normalized Decimal."""
    if value == value.to_integral_value() and value.adjusted() < MAX_DIGITS:
        return int(value)
    return value.normalize(_EXACT)
