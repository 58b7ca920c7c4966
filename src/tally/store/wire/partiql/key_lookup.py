"""Finds the key that a WHERE clause names."""

from collections.abc import Iterator
from typing import Any

from tally.store.expressions import (
    And,
    BeginsWith,
    Between,
    Compare,
    Condition,
    In,
    Literal,
    Path,
)
from tally.store.schema import KeyPart, Table
from tally.store.values import Item, type_of
from tally.store.wire.service_errors import ServiceError, invalid

_SWAPPED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def conjuncts(where: Condition | None) -> list[Condition]:
    """Return the conditions that all have to be true, with attributes on the left."""
    return [] if where is None else [*_conjuncts(where)]


def _conjuncts(node: Condition) -> Iterator[Condition]:
    if isinstance(node, And):
        yield from _conjuncts(node.left)
        yield from _conjuncts(node.right)
    elif isinstance(node, Compare) and isinstance(node.left, Literal) and node.operator in _SWAPPED:
        yield Compare(_SWAPPED[node.operator], node.right, node.left)
    else:
        yield node


def split_key(table: Table, where: Condition | None) -> tuple[Item, list[Condition]]:
    """Return the key of the single item that a clause names, and the other conditions."""
    key: Item = {}
    others: list[Condition] = []
    for node in conjuncts(where):
        name = attribute_of(node)
        if name in table.key_names and name not in key and _is_equality(node):
            key[name] = node.right.value  # type: ignore[attr-defined]  # an equality has it
        else:
            others.append(node)
    if len(key) < len(table.key_names):
        raise no_key()
    return key, others


def no_key() -> ServiceError:
    return invalid("Where clause does not contain a mandatory equality on all key attributes")


def attribute_of(node: Any) -> str | None:
    """Return the top-level attribute that a condition tests."""
    for field in ("left", "value", "path"):
        operand = getattr(node, field, None)
        if isinstance(operand, Path) and len(operand.parts) == 1:
            return str(operand.parts[0])
    return None


def partition_values(nodes: list[Condition], partition: KeyPart) -> list[Any] | None:
    """Return the values that the partition key may have; None if it is not restricted."""
    for node in nodes:
        if attribute_of(node) != partition.name:
            continue
        if _is_equality(node):
            return [node.right.value]  # type: ignore[attr-defined]  # an equality has it
        if isinstance(node, In) and all(isinstance(option, Literal) for option in node.options):
            values = [option.value for option in node.options if isinstance(option, Literal)]
            if all(type_of(value) == partition.type for value in values):
                return [*dict.fromkeys(values)]
    return None


def sort_condition(nodes: list[Condition], sort: KeyPart | None) -> Condition | None:
    """Return the first condition that a query can use for the sort key."""
    for node in nodes:
        if sort is None or attribute_of(node) != sort.name:
            continue
        operands = [getattr(node, name, None) for name in ("right", "low", "high", "prefix")]
        literals = [operand for operand in operands if operand is not None]
        if not isinstance(node, Compare | Between | BeginsWith) or not all(
            isinstance(operand, Literal) and type_of(operand.value) == sort.type
            for operand in literals
        ):
            continue
        if isinstance(node, Compare) and node.operator == "<>":
            continue
        if isinstance(node, BeginsWith) and sort.type == "N":
            continue
        return node
    return None


def _is_equality(node: Any) -> bool:
    return isinstance(node, Compare) and node.operator == "=" and isinstance(node.right, Literal)
