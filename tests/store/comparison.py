"""Runs an operation on two engines and compares the results.

Results are normalized first: equal values are equal, and only guaranteed orders matter. A scan and
a batch are sets, and so are items with equal sort keys in an index. Errors are compared by family,
cancelled transactions by their reasons.
"""

import asyncio
from collections import Counter
from decimal import Context, Decimal
from typing import Any, TypeAlias

from msgspec import Struct

from tally.store.api import (
    BatchGet,
    BatchWrite,
    Capacity,
    Delete,
    Engine,
    Get,
    Operation,
    Page,
    Put,
    Query,
    Scan,
    Transaction,
    TransactionGet,
    Update,
)
from tally.store.dynamodb.engine import DynamoDBEngine
from tally.store.errors import ConditionFailed, InvalidRequest, TransactionCancelled
from tally.store.evaluate import project
from tally.store.schema import Table
from tally.store.values import MAX_DIGITS, Item, type_of
from tests.store.tables import all_items, all_pages

Plain: TypeAlias = Any

DEFAULTS: tuple[Any, ...] = (None, "NONE", ())
_EXACT = Context(prec=MAX_DIGITS)


def normalize(value: Any) -> Plain:
    """Convert a value to text that is equal exactly for equal values; 1, True and "1" differ."""
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(
                f"{name!r}: {normalize(element)}" for name, element in sorted(value.items())
            )
            + "}"
        )
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(normalize, value)) + "]"
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(map(normalize, value))) + "}"
    if type_of(value) == "N":
        return f"{_EXACT.normalize(Decimal(value)):f}"
    return repr(value)


def unordered(items: list[Item]) -> Plain:
    """Normalize items without an order."""
    return sorted(Counter(map(normalize, items)).items())


async def normalized_result(engine: Engine, operation: Operation) -> Plain:
    """Run an operation and normalize its result or error."""
    try:
        return await _run(engine, operation)
    except ConditionFailed:
        return "condition failed"
    except TransactionCancelled as refusal:
        return "cancelled", [(reason.code, normalize(reason.item)) for reason in refusal.reasons]
    except InvalidRequest:
        return "invalid"


async def _run(engine: Engine, operation: Operation) -> Plain:
    if isinstance(operation, Query | Scan):
        return _pages(operation, await all_pages(engine, operation))
    if isinstance(operation, Get):
        return normalize((await engine.get(operation)).item)
    if isinstance(operation, BatchGet):
        return unordered((await engine.batch_get(operation)).items)
    if isinstance(operation, TransactionGet):
        return normalize((await engine.transact_get(operation)).items)
    if isinstance(operation, BatchWrite):
        return "written", (await engine.batch_write(operation)).unprocessed
    if isinstance(operation, Transaction):
        await engine.transact(operation)
        return "written"
    return await _write(engine, operation)


async def _write(engine: Engine, operation: Put | Update | Delete) -> Plain:
    if isinstance(operation, Put):
        written = await engine.put(operation)
    elif isinstance(operation, Delete):
        written = await engine.delete(operation)
    else:
        written = await engine.update(operation)
        is_whole = isinstance(engine, DynamoDBEngine) and operation.returns.startswith("UPDATED")
        if written.item is not None and is_whole:
            # DynamoDB Local returns whole attributes where the service returns the parts that
            # changed.
            shown = project(written.item, [action.path for action in operation.actions])
            return normalize(shown or None), _write_cost(operation.table, written.capacity)
    return normalize(written.item), _write_cost(operation.table, written.capacity)


def _write_cost(table: Table, capacity: Capacity) -> Capacity | None:
    """The cost of a write, or None where the jar bills an index for two halves of a key."""
    halves = any(
        not index.local and index.sort not in (None, *table.key) for index in table.by_name.values()
    )
    return None if halves else capacity


def _pages(operation: Query | Scan, pages: list[Page]) -> Plain:
    """Normalize pages; an empty last page is omitted, because the jar sometimes omits it."""
    counts = [page.scanned for page in pages if page.scanned]
    items = [item for page in pages for item in page.items]
    if isinstance(operation, Scan):
        return sum(counts), unordered(items)
    if operation.index is None:
        return [(normalize(page.items), page.scanned) for page in pages if page.scanned]
    sort = operation.table.index(operation.index).sort
    order = (
        [normalize(item[sort.name]) for item in items]
        if sort and not operation.projection
        else None
    )
    return counts, unordered(items), order


def describe(operation: Any) -> str:
    """Format an operation for people, without its table and its defaults."""
    if not isinstance(operation, Struct):
        return repr(operation)
    fields = {
        name: getattr(operation, name) for name in operation.__struct_fields__ if name != "table"
    }
    if isinstance(operation, Transaction | TransactionGet):
        return (
            f"{type(operation).__name__}{[describe(part) for part in next(iter(fields.values()))]}"
        )
    shown = [f"{name}={value!r}" for name, value in fields.items() if value not in DEFAULTS]
    return f"{type(operation).__name__}({', '.join(shown)})"


class Contents:
    """The items of a table and of each of its indexes."""

    def __init__(self, items: dict[str | None, list[Item]]) -> None:
        self.items = items[None]
        self.normalized = {source: unordered(found) for source, found in items.items()}


async def contents(engine: Engine, table: Table) -> Contents:
    """Scan a table and its indexes."""
    sources = (None, *table.by_name)
    scans = [all_items(engine, Scan(table, index=source)) for source in sources]
    return Contents(dict(zip(sources, await asyncio.gather(*scans), strict=True)))


async def clear(engine: Engine, table: Table, items: list[Item]) -> None:
    """Delete the items."""
    keys = [table.primary_key(item) for item in items]
    for first in range(0, len(keys), 25):
        await engine.batch_write(BatchWrite(table, deletes=tuple(keys[first : first + 25])))
