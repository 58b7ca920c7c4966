"""Checks keys and items against the table's key schema, with the messages of the service."""

from collections.abc import Mapping
from typing import Any, Final

from tally.store.errors import ItemTooLarge
from tally.store.schema import (
    MAX_PARTITION_BYTES,
    MAX_SORT_BYTES,
    KeyPart,
    Table,
    check_item_keys,
    index_key,
)
from tally.store.values import Item, measure_item, measure_value, type_of
from tally.store.wire.service_errors import ServiceError, invalid
from tally.store.wire.values import read_item

_INVALID: Final = "One or more parameter values were invalid: "
_NO_MATCH: Final = "The provided key element does not match the schema"
_FAST_PATH_CHARACTERS: Final = 1024


class KeySchemaMismatch(ServiceError):
    """A key or an item does not fit the key schema; in a transaction, the reason of its item."""


def read_primary_key(table: Table, key: Mapping[str, Any]) -> Item:
    """Read a primary key; it has exactly the attributes of the schema."""
    return check_primary_key(table, read_item(key))


def check_primary_key(table: Table, values: Item) -> Item:
    """Return a primary key if it has exactly the attributes of the schema."""
    if len(values) != len(table.key_names):
        raise _mismatch(_NO_MATCH)
    for part in table.key:
        value = values.get(part.name)
        if value is None or type_of(value) != part.type:
            raise _mismatch(_NO_MATCH)
        _check_key_value(part, value, is_partition=part is table.partition)
    return values


def read_checked_item(table: Table, item: Mapping[str, Any]) -> Item:
    """Read an item that is to be written."""
    return check_new_item(table, read_item(item))


def check_new_item(table: Table, values: Item) -> Item:
    """Return an item that is to be written if its keys and its size are valid."""
    for part in table.key:
        if part.name not in values:
            raise _mismatch(f"{_INVALID}Missing the key {part.name} in the item")
        found = type_of(values[part.name])
        if found != part.type:
            raise _mismatch(
                f"{_INVALID}Type mismatch for key {part.name} expected: {part.type} actual: {found}"
            )
        _check_key_value(part, values[part.name], is_partition=part is table.partition)
    check_index_keys(table, values)
    try:
        check_item_keys(table, values, measure_item(values))
    except ItemTooLarge:
        raise invalid("Item size has exceeded the maximum allowed size") from None
    return values


def read_batch_item(table: Table, item: Mapping[str, Any]) -> Item:
    """Read an item of a batch, which reports a wrong key as that of a read."""
    values = read_item(item)
    for part in table.key:
        if part.name not in values or type_of(values[part.name]) != part.type:
            raise _mismatch(_NO_MATCH)
    return check_new_item(table, values)


def check_index_keys(table: Table, item: Mapping[str, Any], *, is_update: bool = False) -> None:
    """Reject an attribute that an index cannot have as its key."""
    for index in table.by_name.values():
        for part in index_key(index):
            if part.name not in item or part.name in table.key_names:
                continue
            found = type_of(item[part.name])
            if found != part.type:
                raise _mismatch(
                    f"{_INVALID}Type mismatch for Index Key {part.name} Expected: {part.type}"
                    f" Actual: {found} IndexName: {index.name}"
                )
            if item[part.name] in ("", b""):
                kind = "string" if part.type == "S" else "binary"
                if is_update:
                    raise invalid(
                        "One or more parameter values are not valid. The update expression"
                        " attempted to update a secondary index key to a value that is not"
                        " supported. The AttributeValue for a key attribute cannot contain an"
                        f" empty {kind} value."
                    )
                raise invalid(
                    "One or more parameter values are not valid. A value specified for a secondary"
                    " index key is not supported. The AttributeValue for a key attribute cannot"
                    f" contain an empty {kind} value. IndexName: {index.name}, IndexKey:"
                    f" {part.name}"
                )


def _check_key_value(part: KeyPart, value: Any, *, is_partition: bool) -> None:
    if type(value) is str and 0 < len(value) <= _FAST_PATH_CHARACTERS and value.isascii():
        return
    if part.type == "N":
        return
    if not value:
        kind = "string" if part.type == "S" else "binary"
        raise invalid(
            "One or more parameter values are not valid. The AttributeValue for a key attribute"
            f" cannot contain an empty {kind} value. Key: {part.name}"
        )
    size = measure_value(value, part.name)
    if is_partition and size > MAX_PARTITION_BYTES:
        raise _parameter(
            f"Size of hashkey has exceeded the maximum size limit of{MAX_PARTITION_BYTES} bytes"
        )
    if not is_partition and size > MAX_SORT_BYTES:
        raise _parameter(
            "Aggregated size of all range keys has exceeded the size limit of"
            f" {MAX_SORT_BYTES} bytes"
        )


def _mismatch(message: str) -> KeySchemaMismatch:
    return KeySchemaMismatch(invalid(message).body["__type"], message)


def _parameter(message: str) -> ServiceError:
    return invalid(_INVALID + message)
