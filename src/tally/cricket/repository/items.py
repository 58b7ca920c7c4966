"""Maps records to items and back, and deletes the items of a match.

Attribute names are those of the seeds: `match_id` is `matchId`. Enums are stored as their values.
None and empty texts are not stored, so that an attribute can be the key of a sparse index.

    _MAPPER = ItemMapper(Follow)
    _MAPPER = ItemMapper(LiveActivity, expires_at="ttl")    # with another attribute name
"""

import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, Generic, TypeVar, get_type_hints

from tally.store.access import BatchWriteItem, PatternOperation, Query, param
from tally.store.expressions import Action, F
from tally.store.schema import Table
from tally.store.store import Store
from tally.store.values import Item, Key

R = TypeVar("R")
DELETE_PAGE: Final = 500
_MISSING: Final = dataclasses.MISSING


def camel_case(name: str) -> str:
    """Convert `push_to_start_token` to `pushToStartToken`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


class ItemMapper(Generic[R]):
    """Converts between a frozen dataclass and the items of its table."""

    def __init__(self, record: type[R], **renamed: str) -> None:
        hints = get_type_hints(record)
        fields = dataclasses.fields(record)  # type: ignore[arg-type]  # every record is a dataclass
        self._record = record
        self._names = {
            field.name: renamed.get(field.name) or camel_case(field.name) for field in fields
        }
        self._fields = {attribute: name for name, attribute in self._names.items()}
        self._required_texts = {
            field.name: ""
            for field in fields
            if field.default is _MISSING is field.default_factory and hints[field.name] is str
        }
        self._enums = {
            name: kind for name in self._names if (kind := _enum_type(hints[name])) is not None
        }
        self._tuples = {
            name for name in self._names if getattr(hints[name], "__origin__", None) is tuple
        }

    def to_item(self, record: R) -> Item:
        """Return the item without empty attributes."""
        values = {attribute: getattr(record, name) for name, attribute in self._names.items()}
        return {
            attribute: to_store_value(value)
            for attribute, value in values.items()
            if not _is_empty(value)
        }

    def to_record(self, item: Mapping[str, Any]) -> R:
        """Return the record of a complete item."""
        names = self._fields
        fields = self._required_texts | {
            names[attribute]: value for attribute, value in item.items() if attribute in names
        }
        for name, kind in self._enums.items():
            if name in fields:
                fields[name] = kind(fields[name])
        for name in self._tuples & fields.keys():
            fields[name] = tuple(fields[name])
        return self._record(**fields)

    def update_actions(self, changes: Mapping[str, Any]) -> list[Action]:
        """Return the update actions that change these fields; an empty value is removed."""
        actions: list[Action] = []
        for name, value in changes.items():
            field = F(self._names[name])
            actions.append(field.remove() if _is_empty(value) else field.set(to_store_value(value)))
        return actions


def to_store_value(value: Any) -> Any:
    """Convert enums to values, mappings to dicts and tuples to lists."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: to_store_value(field) for key, field in value.items()}
    if isinstance(value, list | tuple):
        return [to_store_value(element) for element in value]
    return value


def match_deletion(table: Table, bound: int) -> PatternOperation:
    """Return the operations of `delete_match_items`, for a pattern with this bound."""
    key = {name: param(name) for name in table.key_names}
    of_match = Query(where=F("matchId") == param("matchId"), project=table.key_names)
    return of_match + BatchWriteItem(key=key, requests=bound // DELETE_PAGE + 1)


async def delete_match_items(store: Store, table: Table, match_id: str) -> int:
    """Delete all items of a match, including expired ones; return their number.

    Reads and deletes page by page, so that memory use is bounded.
    """
    deleted = 0
    start: Key | None = None
    while True:
        page = await store.query(
            table,
            F("matchId") == match_id,
            project=table.key_names,
            limit=DELETE_PAGE,
            start=start,
            consistent=True,
        )
        await store.write_many(table, deletes=page.items, bound=DELETE_PAGE)
        deleted += len(page.items)
        start = page.next
        if start is None:
            return deleted


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value)


def _enum_type(hint: Any) -> type[Enum] | None:
    for option in (hint, *getattr(hint, "__args__", ())):
        if isinstance(option, type) and issubclass(option, Enum):
            return option
    return None
