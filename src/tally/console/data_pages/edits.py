"""Changes of single items: parses what an operator entered, compares it, and writes it.

The editor shows DynamoDB JSON, which keeps the type of every value. A write contains only the
attributes that changed, and its condition is that the whole item is as the operator saw it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tally.console.data_pages.reads import readable_errors
from tally.console.data_pages.redaction import is_masked, masked_names
from tally.errors import Invalid
from tally.store import api
from tally.store.attributes import item_problem
from tally.store.expressions import Action, Condition, F
from tally.store.schema import Table
from tally.store.values import Item, Key
from tally.store.wire.item_encoding import encode_item
from tally.store.wire.service_errors import ServiceError
from tally.store.wire.values import read_value

# Distinguishes an absent attribute from one whose value is None, DynamoDB's NULL.
ABSENT: Any = object()


@dataclass(frozen=True, slots=True)
class AttributeChange:
    """One attribute that differs; `before` or `after` is ABSENT."""

    name: str
    before: Any
    after: Any

    @property
    def action(self) -> Action:
        return F(self.name).remove() if self.after is ABSENT else F(self.name).set(self.after)


def editable_text(item: Item) -> str:
    """Return the attributes that can be edited, as DynamoDB JSON."""
    return dynamodb_json({name: item[name] for name in item if name not in masked_names(item)})


def dynamodb_json(item: Mapping[str, Any]) -> str:
    return msgspec.json.format(encode_item(item), indent=2).decode()


def value_text(value: Any) -> str:
    """Return one side of a difference."""
    if value is ABSENT:
        return ""
    return msgspec.json.encode(msgspec.json.decode(encode_item({"": value}))[""]).decode()


def parse_item(table: Table, before: Item, text: str) -> Item:
    """Return the item that the editor's text stands for, or raise Invalid with the place."""
    try:
        document = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise Invalid(f"This is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise Invalid('An item is an object of attributes, such as {"name": {"S": "Ada"}}')
    hidden = masked_names(before)
    edited = {name: _value(name, value) for name, value in document.items()}
    for name, value in edited.items():
        if name in hidden or is_masked(name, value):
            raise Invalid(f"{name} is masked, because it may be a secret; it cannot be edited")
    after = {**edited, **{name: before[name] for name in hidden}}
    if {name: after.get(name) for name in table.key_names} != table.primary_key(before):
        raise Invalid(f"The key cannot be changed: {', '.join(table.key_names)}")
    if problem := item_problem(table, after):
        raise Invalid(problem)
    return after


def _value(name: str, value: Any) -> Any:
    try:
        return read_value(value)
    except ServiceError as error:
        message = error.body.get("message") or error.body.get("Message") or "invalid value"
        raise Invalid(f"{name}: {message}") from None


def compare(before: Item, after: Item) -> list[AttributeChange]:
    """Return the attributes that differ, sorted by name."""
    changes = (
        AttributeChange(name, before.get(name, ABSENT), after.get(name, ABSENT))
        for name in sorted({*before, *after})
    )
    return [change for change in changes if not _is_same(change.before, change.after)]


def _is_same(before: Any, after: Any) -> bool:
    """Return whether two values have the same type and content; sets have no order."""
    if isinstance(before, (set, frozenset)) and before == after:
        return True
    return value_text(before) == value_text(after)


async def save(
    engine: api.Engine, table: Table, before: Item, changes: list[AttributeChange]
) -> None:
    """Write the changes, unless the item has changed meanwhile; then raise Conflict."""
    actions = tuple(change.action for change in changes)
    added = [change.name for change in changes if change.before is ABSENT]
    with readable_errors():
        await engine.update(
            api.Update(table, table.primary_key(before), actions, _unchanged(before, added))
        )


async def delete(engine: api.Engine, table: Table, before: Item) -> None:
    """Delete the item, unless it has changed meanwhile; then raise Conflict."""
    with readable_errors():
        await engine.delete(api.Delete(table, table.primary_key(before), _unchanged(before, ())))


def _unchanged(before: Item, absent: Iterable[str]) -> Condition:
    """Return the condition that every attribute is as before, and the others are absent."""
    equal: list[Condition] = [F(name) == value for name, value in before.items()]
    equal += [F(name).not_exists() for name in absent]
    condition, *others = equal
    for other in others:
        condition &= other
    return condition


async def load_item(engine: api.Engine, table: Table, key: Key) -> Item | None:
    with readable_errors():
        return (await engine.get(api.Get(table, key, consistent=True))).item
