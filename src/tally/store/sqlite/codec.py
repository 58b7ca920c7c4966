"""Encodes values as MessagePack, with extension types for decimals and sets."""

from decimal import Context, Decimal
from typing import Any

import ormsgpack

from tally.kit.memo import Memo
from tally.store.errors import StorageDamaged
from tally.store.values import MAX_DIGITS

_DECIMAL, _SET = 1, 2
_OPTIONS = ormsgpack.OPT_PASSTHROUGH_BIG_INT
# The default decimal context rounds to 28 digits.
_EXACT = Context(prec=MAX_DIGITS)


def pack(value: Any) -> bytes:
    """Encode a value."""
    return ormsgpack.packb(value, default=_extend, option=_OPTIONS)


def unpack(packed: bytes) -> Any:
    """Decode a map or a list."""
    try:
        value: Any = ormsgpack.unpackb(packed, ext_hook=restore_extension)
    except ValueError as error:
        raise StorageDamaged(f"a stored item is damaged: {error}") from error
    if type(value) is not dict and type(value) is not list:
        raise StorageDamaged("a stored item is damaged: it is not a map or a list")
    return value


def _extend(value: Any) -> Any:
    if type(value) is Decimal:
        return _decimals[value]
    if isinstance(value, set | frozenset):
        return ormsgpack.Ext(_SET, pack(list(value)))
    if isinstance(value, int):
        return ormsgpack.Ext(_DECIMAL, str(value).encode())
    raise TypeError(f"{type(value).__name__} cannot be packed")


def _encode_decimal(value: Decimal) -> Any:
    return ormsgpack.Ext(_DECIMAL, str(value).encode()) if value else 0


_decimals = Memo(_encode_decimal)  # sensors repeat a few thousand values


def restore_extension(tag: int, packed: bytes) -> Any:
    """Decode a decimal or a set."""
    if tag == _SET:
        return frozenset(ormsgpack.unpackb(packed, ext_hook=restore_extension))
    return _numbers[bytes(packed).decode()]


def normalize_number(value: Decimal) -> int | Decimal:
    """Return an int if the number is integral, else a normalized Decimal."""
    if value == value.to_integral_value():
        return int(value)
    return value.normalize(_EXACT)


def _decode_number(text: str) -> int | Decimal:
    return normalize_number(Decimal(text))


_numbers = Memo(_decode_number)
