"""Ranges of a table or an index, a page at a time, in short strides, so that nobody waits long for the event loop."""

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import apsw

from tally.store.api import MAX_PAGE_BYTES, Page, Query, Scan
from tally.store.evaluate import matches, projector
from tally.store.schema import KeyPart, index_key
from tally.store.sqlite import capacity
from tally.store.sqlite.codec import unpack
from tally.store.sqlite.keys import encode_part, successor
from tally.store.sqlite.layout import IndexLayout, Layout, index_name
from tally.store.validate import KeyRange
from tally.store.values import Item, Key

_STRIDE = 128
_Bound: TypeAlias = tuple[str, bytes]


class _Shape(NamedTuple):
    """What decides the text of a range's statement, so that it is composed once."""

    partition: bool
    operators: tuple[str, ...]
    after: bool
    forward: bool


class Reader:
    """One page of a query or scan, as it is read."""

    def __init__(
        self, connection: apsw.Connection, layout: Layout, operation: Query | Scan
    ) -> None:
        self._connection = connection
        self._layout = layout
        self._operation = operation
        self._index = layout.index_layout(operation.index) if operation.index else None
        self._forward = operation.forward if isinstance(operation, Query) else True
        self._project = projector(operation.projection) if operation.projection else None
        self._fetches = self._index is not None and self._index.fetches(operation.projection)
        self._bytes = 0
        self._fetched = 0
        self._scanned = 0
        self.items: list[Item] = []
        self._last: Item | None = None

    async def page(self, wanted: KeyRange | None) -> Page:
        """Read until the limit, the page's size or the end."""
        start = self._operation.start
        limit = self._operation.limit
        while True:
            stride = _STRIDE if limit is None else min(_STRIDE, limit - self._scanned)
            count, full = self._read(wanted, start, stride)
            if full or (limit is not None and self._scanned >= limit):
                return self._finish(more=True)
            if count < stride:
                return self._finish(more=False)
            start = self._page_key()
            await asyncio.sleep(0)

    def _read(self, wanted: KeyRange | None, start: Key | None, stride: int) -> tuple[int, bool]:
        statement, values = self._statement(wanted, start, stride)
        cursor = self._connection.execute(statement, values)
        take = (
            self._take_plain
            if self._index is None and self._operation.filter is None
            else self._take
        )
        count = 0
        for packed, size in cursor:
            count += 1
            take(unpack(packed), size)
            if self._bytes >= MAX_PAGE_BYTES:
                cursor.close()
                return count, True
        return count, False

    def _take_plain(self, item: Item, size: int) -> None:
        """What most reads do: every item of the table's own range, whole or projected."""
        self._last = item
        self._scanned += 1
        self._bytes += size
        self.items.append(item if self._project is None else self._project(item))

    def _take(self, item: Item, size: int) -> None:
        operation, index = self._operation, self._index
        self._last = item
        self._scanned += 1
        self._bytes += size if index is None else index.carried_size(item, size)
        carried = item if index is None else index.carry(item)
        if operation.filter is not None and not matches(operation.filter, carried):
            return
        if self._fetches:
            self._fetched += capacity.read_steps(size)
            carried = item
        self.items.append(carried if self._project is None else self._project(carried))

    def _finish(self, *, more: bool) -> Page:
        cost = capacity.read_capacity(
            self._bytes, consistent=self._operation.consistent, fetched=self._fetched
        )
        return Page(
            self.items,
            self._page_key() if more and self._last is not None else None,
            self._scanned,
            cost,
        )

    def _page_key(self) -> Item:
        last = self._last or {}
        names = dict.fromkeys(
            (*self._layout.table.key_names, *(part.name for part in self._index_parts()))
        )
        return {name: last[name] for name in names}

    def _index_parts(self) -> tuple[KeyPart, ...]:
        return index_key(self._index.index) if self._index else ()

    def _statement(
        self, wanted: KeyRange | None, start: Key | None, stride: int
    ) -> tuple[str, tuple[Any, ...]]:
        key = (self._index.index if self._index else self._layout.table) if wanted else None
        partition = (
            () if key is None or wanted is None else (encode_part(key.partition, wanted.partition),)
        )
        bounds = list(_bounds(key.sort, wanted)) if key is not None and key.sort and wanted else []
        if start is not None and bounds:
            # The page key is inside the range, so it replaces the bound that was passed on the way
            # to it.
            passed = ">" if self._forward else "<"
            bounds = [bound for bound in bounds if not bound[0].startswith(passed)]
        after = () if start is None else self._row_of(start)
        shape = _Shape(
            bool(partition), tuple(operator for operator, _ in bounds), bool(after), self._forward
        )
        known = self._layout.ranges
        statement = known.get((self._operation.index, shape))
        if statement is None:
            statement = known[self._operation.index, shape] = _compose(
                self._layout, self._index, shape
            )
        return statement, (*partition, *(value for _, value in bounds), *after, stride)

    def _row_of(self, start: Key) -> tuple[bytes, ...]:
        """The page key as the columns that order the rows."""
        row = self._layout.read_key(start)
        if self._index is None:
            return row if isinstance(self._operation, Scan) else row[1:]
        entry = self._index.read_key(start) or (b"", b"")
        return (*entry, *row) if isinstance(self._operation, Scan) else (*entry[1:], *row)


def _bounds(sort: KeyPart, wanted: KeyRange) -> Iterator[_Bound]:
    """The key condition on the sort key as comparisons of bytes."""
    if wanted.operator is None:
        return
    low = encode_part(sort, wanted.low)
    if wanted.operator == "begins_with":
        yield ">=", low
        behind = successor(low)
        if behind is not None:
            yield "<", behind
    elif wanted.operator == "between":
        yield ">=", low
        yield "<=", encode_part(sort, wanted.high)
    elif wanted.operator == "=":
        yield ">=", low
        yield "<=", low
    else:
        yield wanted.operator, low


def _compose(layout: Layout, index: IndexLayout | None, shape: _Shape) -> str:
    if index is None:
        source, columns, result = layout.rows, ["pk", "sk"], "item, size"
    else:
        # CROSS JOIN keeps SQLite from turning the loops round: the entries give the order, the rows
        # are looked up.
        entries = index_name(layout.table.name, index.index.name)
        source = f"{entries} AS e CROSS JOIN {layout.rows} AS r ON r.pk = e.pk AND r.sk = e.sk"
        columns, result = ["e.ipk", "e.isk", "e.pk", "e.sk"], "r.item, r.size"
    order = columns[1:] if shape.partition else columns
    tests = [f"{columns[0]} = ?"] if shape.partition else []
    tests += [f"{columns[1]} {operator} ?" for operator in shape.operators]
    if shape.after:
        marks = ", ".join("?" for _ in order)
        tests.append(f"({', '.join(order)}) {'>' if shape.forward else '<'} ({marks})")
    where = f" WHERE {' AND '.join(tests)}" if tests else ""
    direction = "" if shape.forward else " DESC"
    ordering = ", ".join(column + direction for column in order)
    return f"SELECT {result} FROM {source}{where} ORDER BY {ordering} LIMIT ?"
