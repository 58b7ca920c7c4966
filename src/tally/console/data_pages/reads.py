"""Reads of the data pages: a query by key or by index, or a page of a table, as URLs name them."""

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Self

from tally.errors import Conflict, Invalid, Unavailable
from tally.store import api
from tally.store.errors import ConditionFailed, InvalidRequest, StoreError
from tally.store.expressions import Condition, F
from tally.store.schema import Index, KeyPart, Table
from tally.store.values import Item, Key

PAGE_SIZES: Final = (25, 100, 500)
SORT_CONDITIONS: Final = ("=", "<", "<=", ">", ">=", "begins with", "between")
_number: Final = re.compile(r"-?[0-9]{1,38}(?:\.[0-9]{1,38})?")


@dataclass(frozen=True, slots=True)
class ItemQuery:
    """What to read. Without a partition key, it is a scan of the table or the index."""

    index: str = ""
    partition: str = ""
    condition: str = "="
    value: str = ""
    upper: str = ""
    order: str = "ascending"

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> Self:
        """Return the query of an address; unknown parameters are ignored."""
        return cls(**{name: parameters[name] for name in cls.__slots__ if name in parameters})

    def parameters(self) -> dict[str, str]:
        """Return the query string; defaults are left out."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {name: text for name, text in fields.items() if text != _DEFAULTS[name]}

    def read(self, table: Table, limit: int, start: Key | None = None) -> api.Query | api.Scan:
        """Return the operation, or raise Invalid."""
        keyed: Table | Index = table
        if self.index:
            with readable_errors():
                keyed = table.index(self.index)
        index = self.index or None
        if not self.partition:
            if self.value:
                raise Invalid(f"Enter {keyed.partition.name} too: a query needs a partition key")
            return api.Scan(table, index, limit=limit, start=start)
        where: Condition = F(keyed.partition.name) == parse_key(keyed.partition, self.partition)
        if self.value:
            where &= self._sort_condition(keyed)
        return api.Query(
            table, where, index, limit=limit, start=start, forward=self.order != "descending"
        )

    def _sort_condition(self, keyed: Table | Index) -> Condition:
        if keyed.sort is None:
            raise Invalid("This key has no sort key")
        attribute, value = F(keyed.sort.name), parse_key(keyed.sort, self.value)
        if self.condition == "between":
            return attribute.between(value, parse_key(keyed.sort, self.upper))
        if self.condition == "begins with":
            return attribute.begins_with(value)
        comparisons = {
            "=": attribute == value,
            "<": attribute < value,
            "<=": attribute <= value,
            ">": attribute > value,
            ">=": attribute >= value,
        }
        if self.condition not in comparisons:
            raise Invalid(f"condition must be one of {', '.join(SORT_CONDITIONS)}")
        return comparisons[self.condition]


_DEFAULTS: Final = {name: getattr(ItemQuery(), name) for name in ItemQuery.__slots__}


def parse_key(part: KeyPart, text: str) -> str | Decimal | bytes:
    """Read a key attribute from text: a number, or base64 of a binary value."""
    if part.type == "N":
        if not _number.fullmatch(text):
            raise Invalid(f"{part.name} must be a number")
        return Decimal(text)
    if part.type == "B":
        try:
            return b64decode(text, validate=True)
        except binascii.Error:
            raise Invalid(f"{part.name} must be base64") from None
    return text


def key_text(value: Any) -> str:
    return b64encode(value).decode() if isinstance(value, bytes) else str(value)


def key_parameters(table: Table, item: Mapping[str, Any]) -> dict[str, str]:
    """Return the query string of an item's page."""
    names = ("partition", "sort")
    return {name: key_text(item[part.name]) for name, part in zip(names, table.key, strict=False)}


def key_from_address(table: Table, partition: str, sort: str) -> Key:
    """Return the key that a URL names, or raise Invalid."""
    texts = (partition, sort)[: len(table.key)]
    if not all(texts):
        raise Invalid(f"The address must name {' and '.join(table.key_names)}")
    return {part.name: parse_key(part, text) for part, text in zip(table.key, texts, strict=True)}


async def read_page(engine: api.Engine, operation: api.Query | api.Scan) -> api.Page:
    with readable_errors():
        if isinstance(operation, api.Query):
            return await engine.query(operation)
        return await engine.scan(operation)


async def read_items(
    engine: api.Engine, table: Table, query: ItemQuery, limit: int
) -> AsyncIterator[list[Item]]:
    """Yield pages of up to `limit` items in total."""
    start: Key | None = None
    while limit > 0:
        page = await read_page(engine, query.read(table, min(limit, PAGE_SIZES[-1]), start))
        yield page.items
        limit -= len(page.items)
        start = page.next
        if start is None:
            return


@contextmanager
def readable_errors() -> Iterator[None]:
    """Raise errors of the store as domain errors with the message of the store."""
    try:
        yield
    except ConditionFailed:
        raise Conflict(
            "The item was changed or deleted since you opened it; reload the page"
        ) from None
    except InvalidRequest as error:
        raise Invalid(str(error)) from error
    except StoreError as error:
        raise Unavailable(str(error)) from error
