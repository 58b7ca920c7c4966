"""Keys as bytes whose order is DynamoDB's order: strings and binaries bytewise, numbers by value.

A number becomes a sign, a decimal exponent and its digits, with everything turned round for
negatives. Zero stands between.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from tally.store.schema import (
    MAX_PARTITION_BYTES,
    MAX_SORT_BYTES,
    Index,
    KeyPart,
    KeyType,
    Table,
    check_key,
)
from tally.store.values import Item

_NEGATIVE, _ZERO, _POSITIVE = b"\x7f", b"\x80", b"\x81"
_EXPONENT_OFFSET = 129
_TURNED = bytes(255 - value for value in range(256))
_END_OF_NEGATIVE = b"\xff"

RowKey: TypeAlias = tuple[bytes, bytes]


def encode_number(value: int | Decimal) -> bytes:
    """A number as bytes that sort by its value."""
    if not value:
        return _ZERO
    if isinstance(value, int):
        text = str(abs(value))
        exponent = len(text)
    else:
        _sign, digits, scale = value.as_tuple()
        text = "".join(map(str, digits)).lstrip("0")
        exponent = len(text) + int(scale)
    body = bytes((exponent + _EXPONENT_OFFSET,)) + text.rstrip("0").encode()
    return _POSITIVE + body if value > 0 else _NEGATIVE + body.translate(_TURNED) + _END_OF_NEGATIVE


_ENCODERS: dict[KeyType, Callable[[Any], bytes]] = {"S": str.encode, "N": encode_number, "B": bytes}


def encode_part(part: KeyPart, value: Any) -> bytes:
    """A key attribute's value as bytes."""
    return _ENCODERS[part.type](value)


def row_key_reader(table: Table) -> Callable[[Mapping[str, Any]], RowKey]:
    """A function from an item or key, already found good, to the bytes of its primary key."""
    partition, sort = table.partition, table.sort
    first, encode_first = partition.name, _ENCODERS[partition.type]
    if sort is None:
        return lambda item: (encode_first(item[first]), b"")
    second, encode_second = sort.name, _ENCODERS[sort.type]
    return lambda item: (encode_first(item[first]), encode_second(item[second]))


def checked_key_reader(table: Table) -> Callable[[Mapping[str, Any]], RowKey]:
    """A function from exactly a key to its bytes; good strings, the common case, are checked as they are encoded."""
    read = row_key_reader(table)

    def read_checked(key: Mapping[str, Any]) -> RowKey:
        check_key(table, key)
        return read(key)

    if any(part.type != "S" for part in table.key):
        return read_checked
    first = table.partition.name
    second = table.sort.name if table.sort else None

    def read_strings(key: Mapping[str, Any]) -> RowKey:
        one, two = key.get(first), key.get(second) if second else ""
        if type(one) is str and type(two) is str and len(key) == (2 if second else 1):
            pk, sk = one.encode(), two.encode()
            if 0 < len(pk) <= MAX_PARTITION_BYTES and (
                0 < len(sk) <= MAX_SORT_BYTES or second is None
            ):
                return pk, sk
        return read_checked(key)

    return read_strings


def key_columns(
    table: Table, columns: Mapping[str, Sequence[Any]], common: Item
) -> tuple[list[bytes], list[bytes]] | None:
    """The bytes of the primary keys of items by attribute, if they are good strings, the common case; None: look more closely."""
    if table.by_name:
        return None
    count = len(next(iter(columns.values())))
    found = [
        _key_column(part, columns.get(part.name) or [common.get(part.name)] * count)
        for part in table.key
    ]
    first, second = found[0], found[1] if table.sort else [b""] * count
    return (first, second) if first and second else None


def _key_column(part: KeyPart, values: Sequence[Any]) -> list[bytes]:
    if part.type != "S" or {*map(type, values)} != {str}:
        return []
    encoded = [*map(str.encode, values)]
    lengths = [*map(len, encoded)]
    return encoded if min(lengths) > 0 and max(lengths) <= MAX_SORT_BYTES else []


def index_key_reader(index: Index) -> Callable[[Mapping[str, Any]], RowKey | None]:
    """A function from an item to the bytes of its key in the index, or None where the item is not in it.

    A write with an unfit index key is refused before it comes here; an item that is older than the
    index is just not in it.
    """
    partition, sort = index.partition, index.sort
    first, encode_first = partition.name, _fitting(partition, MAX_PARTITION_BYTES)

    def read_partition(item: Mapping[str, Any]) -> RowKey | None:
        one = encode_first(item.get(first))
        return None if one is None else (one, b"")

    if sort is None:
        return read_partition
    second, encode_second = sort.name, _fitting(sort, MAX_SORT_BYTES)

    def read(item: Mapping[str, Any]) -> RowKey | None:
        one, two = encode_first(item.get(first)), encode_second(item.get(second))
        return None if one is None or two is None else (one, two)

    return read


def _fitting(part: KeyPart, most: int) -> Callable[[Any], bytes | None]:
    """An encoder that answers None for what is no value of a key: missing, of another type, empty or too long."""
    if part.type == "N":
        return lambda value: (
            encode_number(value) if type(value) is int or type(value) is Decimal else None
        )

    def encode_string(value: Any) -> bytes | None:
        encoded = value.encode() if type(value) is str else b""
        return encoded if 0 < len(encoded) <= most else None

    def encode_binary(value: Any) -> bytes | None:
        return value if type(value) is bytes and 0 < len(value) <= most else None

    return encode_string if part.type == "S" else encode_binary


def successor(prefix: bytes) -> bytes | None:
    """The first bytes behind everything that starts with the prefix; None where there is nothing behind."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,)) if stripped else None
