"""Validates items against the attributes that their table declares.

A declared attribute has the declared type, and a required one is there. Undeclared attributes are
allowed. A table that holds data from elsewhere is not validated: `Table(..., validated=False)`.
The functions return what is wrong, or None; keys are validated by the engine.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from tally.store.api import BatchPut, ColumnarItems
from tally.store.expressions import (
    Action,
    Add,
    Discard,
    IfAbsent,
    Joined,
    Literal,
    Remove,
    Set,
    Sum,
)
from tally.store.schema import Table
from tally.store.values import type_of


def item_problem(table: Table, item: Mapping[str, Any]) -> str | None:
    """Check an item that is to be written."""
    if not table.required <= item.keys():
        return _missing(table, item)
    return _type_problem(table, item)


def _type_problem(table: Table, item: Mapping[str, Any]) -> str | None:
    declared = table.attribute_types.get
    for name, value in item.items():
        kinds = declared(name)
        if kinds is not None and type(value) not in kinds:
            problem = _value_problem(table, name, value)
            if problem is not None:
                return problem
    return None


def _value_problem(table: Table, name: str, value: Any) -> str | None:
    return _kind_problem(table, name, type_of(value))


def _kind_problem(table: Table, name: str, found: str) -> str | None:
    [expected] = [attribute.type for attribute in table.attributes if attribute.name == name]
    return None if found == expected else f"the attribute {name} is of type {expected}, not {found}"


def _missing(table: Table, names: Iterable[str]) -> str | None:
    missing = sorted(table.required.difference(names))
    if not missing:
        return None
    return f"missing required attributes: {', '.join(missing)}"


def batch_problem(table: Table, put: BatchPut) -> str | None:
    """Check the items of a TransactionBatch; columns are checked as a whole."""
    if not isinstance(put.items, ColumnarItems):
        for item in put.items:
            problem = item_problem(table, {**put.common, **item})
            if problem is not None:
                return problem
        return None
    columns = put.items.values
    for name, kinds in table.attribute_types.items():
        column = columns.get(name, ())
        if not kinds.issuperset(map(type, column)):
            for value in column:
                problem = _value_problem(table, name, value)
                if problem is not None:
                    return problem
    return _missing(table, (*columns, *put.common)) or _type_problem(table, put.common)


def update_problem(table: Table, actions: Iterable[Action], *, may_create: bool) -> str | None:
    """Check an update. One that may create an item has to set the required attributes."""
    written = set[str]()
    for action in actions:
        name, *nested = action.path.parts
        if nested or not isinstance(name, str):
            continue
        if isinstance(action, Remove | Discard):  # a set without elements does not exist
            if name in table.required:
                return f"the required attribute {name} cannot be removed"
            continue
        written.add(name)
        if name in table.attribute_types:
            problem = _action_problem(table, name, action)
            if problem is not None:
                return problem
    if may_create and not table.required <= written:
        return f"the update may create an item; {_missing(table, written)}"
    return None


def _action_problem(table: Table, name: str, action: Action) -> str | None:
    if not isinstance(action, Set | Add):
        return None
    value = action.value
    if isinstance(value, IfAbsent):
        value = value.otherwise
    if isinstance(value, Literal):
        if type(value.value) in table.attribute_types[name]:
            return None
        return _value_problem(table, name, value.value)
    if isinstance(value, Sum):
        return _kind_problem(table, name, "N")
    return _kind_problem(table, name, "L") if isinstance(value, Joined) else None
