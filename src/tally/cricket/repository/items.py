"""How a record stands in a table: its fields under the attribute names of the seeds, enums as their values.

What is None or an empty text is not there, so that it can be the key of a sparse index.

_SHAPE = Shape(Follow)                            match_id is matchId, team_id is teamId
_SHAPE = Shape(LiveActivity, expires_at="ttl")    and one that the table calls otherwise
"""

import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, Generic, TypeVar, get_type_hints

from tally.store.expressions import Action, F
from tally.store.values import Item

R = TypeVar("R")
_MISSING: Final = dataclasses.MISSING


def camel(name: str) -> str:
    """`push_to_start_token` is `pushToStartToken`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


class ItemMapper(Generic[R]):
    """Between a frozen class and the items of its table, both ways."""

    def __init__(self, record: type[R], **renamed: str) -> None:
        hints = get_type_hints(record)
        fields = dataclasses.fields(record)  # type: ignore[arg-type]  # every record is a dataclass
        self._record = record
        self._names = {field.name: renamed.get(field.name) or camel(field.name) for field in fields}
        self._required = {
            field.name for field in fields if field.default is _MISSING is field.default_factory
        }
        self._texts = {name for name in self._names if hints[name] is str}
        self._enums = {
            name: kind for name in self._names if (kind := _enum_in(hints[name])) is not None
        }
        self._tuples = {
            name for name in self._names if getattr(hints[name], "__origin__", None) is tuple
        }

    def item(self, record: R) -> Item:
        """The item, without what is empty."""
        values = {attribute: getattr(record, name) for name, attribute in self._names.items()}
        return {
            attribute: plain(value) for attribute, value in values.items() if not _is_empty(value)
        }

    def record(self, item: Mapping[str, Any]) -> R:
        """The record of a whole item."""
        found = {
            name: self._read(
                name, item[attribute] if attribute in item or name not in self._texts else ""
            )
            for name, attribute in self._names.items()
            if name in self._required or attribute in item
        }
        return self._record(**found)

    def steps(self, changes: Mapping[str, Any]) -> list[Action]:
        """What an update does to change these fields; one that becomes empty is taken away."""
        steps: list[Action] = []
        for name, value in changes.items():
            field = F(self._names[name])
            steps.append(field.remove() if _is_empty(value) else field.set(plain(value)))
        return steps

    def _read(self, name: str, value: Any) -> Any:
        if name in self._enums:
            return self._enums[name](value)
        return tuple(value) if name in self._tuples else value


def plain(value: Any) -> Any:
    """A value as the store keeps it: no enums, no read-only maps, lists for tuples."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value)


def _enum_in(hint: Any) -> type[Enum] | None:
    for option in (hint, *getattr(hint, "__args__", ())):
        if isinstance(option, type) and issubclass(option, Enum):
            return option
    return None
