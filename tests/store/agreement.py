"""Runs one operation on two engines and says where their answers differ.

An answer is put into a plain form first, in which equal values are equal and no order matters that
DynamoDB does not promise: a scan and a batch are sets, and so are items with one sort key in an
index. Of an error, its family counts, and of a cancelled transaction the reasons.
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

UNTOLD: tuple[Any, ...] = (None, "NONE", ())
_EXACT = Context(prec=MAX_DIGITS)


def plain(value: Any) -> Plain:
    """A value as text that is the same for equal values, and different for any two others: 1 and True, 1 and "1"."""
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{name!r}: {plain(each)}" for name, each in sorted(value.items()))
            + "}"
        )
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(plain, value)) + "]"
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(map(plain, value))) + "}"
    if type_of(value) == "N":
        return f"{_EXACT.normalize(Decimal(value)):f}"
    return repr(value)


def bag(items: list[Item]) -> Plain:
    """Items without an order."""
    return sorted(Counter(map(plain, items)).items())


async def answer(engine: Engine, operation: Operation) -> Plain:
    """What an engine makes of an operation."""
    try:
        return await _run(engine, operation)
    except ConditionFailed:
        return "condition failed"
    except TransactionCancelled as refusal:
        return "cancelled", [(reason.code, plain(reason.item)) for reason in refusal.reasons]
    except InvalidRequest:
        return "invalid"


async def _run(engine: Engine, operation: Operation) -> Plain:
    if isinstance(operation, Query | Scan):
        return _pages(operation, await all_pages(engine, operation))
    if isinstance(operation, Get):
        return plain((await engine.get(operation)).item)
    if isinstance(operation, BatchGet):
        return bag((await engine.batch_get(operation)).items)
    if isinstance(operation, TransactionGet):
        return plain((await engine.transact_get(operation)).items)
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
            return plain(shown or None), _cost(operation.table, written.capacity)
    return plain(written.item), _cost(operation.table, written.capacity)


def _cost(table: Table, capacity: Capacity) -> Capacity | None:
    """What a write cost; not where the jar counts an index that an item had half a key of before and the other half after."""
    halves = any(
        not index.local and index.sort not in (None, *table.key) for index in table.by_name.values()
    )
    return None if halves else capacity


def _pages(operation: Query | Scan, pages: list[Page]) -> Plain:
    """Pages in plain form; a last one without items is left out, since the jar sees at times that none can follow."""
    counts = [page.scanned for page in pages if page.scanned]
    items = [item for page in pages for item in page.items]
    if isinstance(operation, Scan):
        return sum(counts), bag(items)
    if operation.index is None:
        return [(plain(page.items), page.scanned) for page in pages if page.scanned]
    sort = operation.table.index(operation.index).sort
    order = (
        [plain(item[sort.name]) for item in items] if sort and not operation.projection else None
    )
    return counts, bag(items), order


def told(operation: Any) -> str:
    """An operation without its table and without what was left at its default, to be read by a person."""
    if not isinstance(operation, Struct):
        return repr(operation)
    fields = {
        name: getattr(operation, name) for name in operation.__struct_fields__ if name != "table"
    }
    if isinstance(operation, Transaction | TransactionGet):
        return f"{type(operation).__name__}{[told(part) for part in next(iter(fields.values()))]}"
    return f"{type(operation).__name__}({', '.join(f'{name}={each!r}' for name, each in fields.items() if each not in UNTOLD)})"


class Contents:
    """All that stands in a table and in each of its indexes."""

    def __init__(self, items: dict[str | None, list[Item]]) -> None:
        self.items = items[None]
        self.plain = {source: bag(found) for source, found in items.items()}


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
