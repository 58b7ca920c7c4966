"""Writes items as the protocol's JSON, in parts that let other requests run."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from tally.store.encode import to_wire

_ITEMS_PER_TURN: Final = 256  # a page of 1 MB may have 26,000 items
_encode: Final = msgspec.json.Encoder().encode


def raw_item(item: Mapping[str, Any]) -> msgspec.Raw:
    """Return an item or a key for a response, which embeds it as it is."""
    return msgspec.Raw(encode_item(item))


async def raw_items(items: Sequence[Mapping[str, Any]]) -> Sequence[object]:
    """Return items for a response; other requests run between the parts of a long page.

    The response encodes the items of a short page in one pass.
    """
    if len(items) <= _ITEMS_PER_TURN:
        return [_typed(item) for item in items]
    encoded: list[msgspec.Raw] = []
    for start in range(0, len(items), _ITEMS_PER_TURN):
        if start:
            await asyncio.sleep(0)
        encoded += [raw_item(item) for item in items[start : start + _ITEMS_PER_TURN]]
    return encoded


def encode_item(item: Mapping[str, Any]) -> bytes:
    """Return the JSON of an item or a key, with the type of each value."""
    return _encode(_typed(item))


def _typed(item: Mapping[str, Any]) -> dict[str, Any]:
    # Most values are strings and integers: written here, they need no call.
    return {
        name: {"S": value}
        if (kind := type(value)) is str
        else {"N": str(value)}
        if kind is int
        else to_wire(value)
        for name, value in item.items()
    }
