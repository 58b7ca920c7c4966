"""Encodes keys as bytes in DynamoDB's order: strings and binaries bytewise, numbers by value.

A number becomes a sign, a decimal exponent and its digits, with the bytes of negative numbers
inverted. Zero sorts between them.
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
_INVERTED = bytes(255 - value for value in range(256))
_NEGATIVE_END = b"\xff"

RowKey: TypeAlias = tuple[bytes, bytes]


def encode_number(value: int | Decimal) -> bytes:
    """Encode a number as bytes that sort by value."""
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
    return _POSITIVE + body if value > 0 else _NEGATIVE + body.translate(_INVERTED) + _NEGATIVE_END


_ENCODERS: dict[KeyType, Callable[[Any], bytes]] = {"S": str.encode, "N": encode_number, "B": bytes}


def encode_part(part: KeyPart, value: Any) -> bytes:
    """Encode the value of a key attribute."""
    return _ENCODERS[part.type](value)


def row_key_reader(table: Table) -> Callable[[Mapping[str, Any]], RowKey]:
    """Return a function that encodes the primary key of a validated item or key."""
    partition, sort = table.partition, table.sort
    first, encode_first = partition.name, _ENCODERS[partition.type]
    if sort is None:
        return lambda item: (encode_first(item[first]), b"")
    second, encode_second = sort.name, _ENCODERS[sort.type]
    return lambda item: (encode_first(item[first]), encode_second(item[second]))


def checked_key_reader(table: Table) -> Callable[[Mapping[str, Any]], RowKey]:
    """Return a function that validates and encodes a key; it has a fast path for strings."""
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
            try:
                pk, sk = one.encode(), two.encode()
            except UnicodeEncodeError:  # a lone surrogate
                return read_checked(key)
            if 0 < len(pk) <= MAX_PARTITION_BYTES and (
                0 < len(sk) <= MAX_SORT_BYTES or second is None
            ):
                return pk, sk
        return read_checked(key)

    return read_strings


def key_columns(
    table: Table, columns: Mapping[str, Sequence[Any]], common: Item
) -> tuple[list[bytes], list[bytes]] | None:
    """Encode the primary keys of items given by attribute.

    None if the fast path for strings fails.
    """
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
    """Return a function that encodes an item's index key.

    It returns None if the item is not indexed. A write with an invalid index key is rejected
    earlier; an item older than the index is just not in it.
    """
    partition, sort = index.partition, index.sort
    first, encode_first = partition.name, _lenient_encoder(partition, MAX_PARTITION_BYTES)

    def read_partition(item: Mapping[str, Any]) -> RowKey | None:
        one = encode_first(item.get(first))
        return None if one is None else (one, b"")

    if sort is None:
        return read_partition
    second, encode_second = sort.name, _lenient_encoder(sort, MAX_SORT_BYTES)

    def read(item: Mapping[str, Any]) -> RowKey | None:
        one, two = encode_first(item.get(first)), encode_second(item.get(second))
        return None if one is None or two is None else (one, two)

    return read


def _lenient_encoder(part: KeyPart, limit: int) -> Callable[[Any], bytes | None]:
    """Return an encoder that returns None for an invalid key.

    Missing, wrong type, empty or too long.
    """
    if part.type == "N":
        return lambda value: (
            encode_number(value) if type(value) is int or type(value) is Decimal else None
        )

    def encode_string(value: Any) -> bytes | None:
        encoded = value.encode() if type(value) is str else b""
        return encoded if 0 < len(encoded) <= limit else None

    def encode_binary(value: Any) -> bytes | None:
        return value if type(value) is bytes and 0 < len(value) <= limit else None

    return encode_string if part.type == "S" else encode_binary


def successor(prefix: bytes) -> bytes | None:
    """Return the smallest bytes after all that start with the prefix; None if there are none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,)) if stripped else None
