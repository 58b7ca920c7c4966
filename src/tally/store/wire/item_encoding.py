"""Writes items as the protocol's JSON directly, without a tree of typed values in between.

It takes half of the time of `encode.item_to_wire` and a JSON encoder, and a query of ten items
consists mostly of it.
"""

import asyncio
import base64
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any, Final

import msgspec

from tally.store.encode import to_wire
from tally.store.errors import InvalidValue

_ITEMS_PER_TURN: Final = 256  # a page of 1 MB may have 26,000 items
_quote: Final[Callable[[str], str]] = encode_basestring


def raw_item(item: Mapping[str, Any]) -> msgspec.Raw:
    """Return an item or a key for a response, which embeds it as it is."""
    return msgspec.Raw(encode_item(item))


async def raw_items(items: Sequence[Mapping[str, Any]]) -> list[msgspec.Raw]:
    """Return items for a response; other requests run between the parts of a long page."""
    encoded: list[msgspec.Raw] = []
    for start in range(0, len(items), _ITEMS_PER_TURN):
        if start:
            await asyncio.sleep(0)
        encoded += [raw_item(item) for item in items[start : start + _ITEMS_PER_TURN]]
    return encoded


def encode_item(item: Mapping[str, Any]) -> bytes:
    """Return the JSON of an item or a key, with the type of each value."""
    return _map(item).encode()


def _map(item: Mapping[str, Any]) -> str:
    writers = _WRITERS
    try:
        pairs = [f"{_quote(name)}:{writers[type(value)](value)}" for name, value in item.items()]
    except KeyError as error:
        raise InvalidValue(f"{error.args[0]} is not a supported type") from None
    return f"{{{','.join(pairs)}}}"


def _list(elements: Any) -> str:
    writers = _WRITERS
    return f'{{"L":[{",".join([writers[type(element)](element) for element in elements])}]}}'


def _set(elements: Any) -> str:
    ((kind, content),) = to_wire(elements).items()
    texts = [base64.b64encode(each).decode() for each in content] if kind == "BS" else content
    return f'{{"{kind}":[{",".join(map(_quote, texts))}]}}'


_WRITERS: Final[dict[type, Callable[[Any], str]]] = {
    str: lambda value: f'{{"S":{_quote(value)}}}',
    int: lambda value: f'{{"N":"{value}"}}',
    Decimal: lambda value: f'{{"N":"{to_wire(value)["N"]}"}}',
    bytes: lambda value: f'{{"B":"{base64.b64encode(value).decode()}"}}',
    bool: lambda value: '{"BOOL":true}' if value else '{"BOOL":false}',
    type(None): lambda _value: '{"NULL":true}',
    list: _list,
    tuple: _list,
    dict: lambda value: f'{{"M":{_map(value)}}}',
    set: _set,
    frozenset: _set,
}
