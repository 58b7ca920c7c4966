"""Reads ranges page by page, in short turns that do not block the event loop.

A page that takes several turns is not one snapshot: each turn sees what was committed before it,
and continues after the last key of the previous turn. An open cursor would give one snapshot, and
keep all other reads of the connection at it too.
"""

from collections.abc import Iterator
from functools import partial
from math import inf
from typing import Any, NamedTuple, TypeAlias

import apsw

from tally.kit.time_slices import TimeSlices
from tally.store.api import MAX_PAGE_BYTES, Page, Query, Scan
from tally.store.evaluate import predicate, projector
from tally.store.schema import KeyPart, index_key
from tally.store.sqlite import capacity
from tally.store.sqlite.keys import encode_part, successor
from tally.store.sqlite.layout import IndexLayout, Layout, index_name
from tally.store.sqlite.segments import segment_test
from tally.store.validate import KeyRange
from tally.store.values import Item, Key, measure_item

# A read of at most this many rows takes about half a turn: it does not wait for one, and is one
# snapshot, so that no item is missing from a page because its index key changed meanwhile.
MAX_SHORT_READ = 128
_NO_LIMIT = -1
_Bound: TypeAlias = tuple[str, bytes]


class _Shape(NamedTuple):
    """The properties that determine the SQL of a range, used as a cache key."""

    partition: bool
    operators: tuple[str, ...]
    after_start: bool
    forward: bool


class Reader:
    """Reads one page of a query or scan."""

    def __init__(
        self,
        connection: apsw.Connection,
        layout: Layout,
        operation: Query | Scan,
        slices: TimeSlices,
    ) -> None:
        self._connection = connection
        self._slices = slices
        self._layout = layout
        self._operation = operation
        self._index = layout.index_layout(operation.index) if operation.index else None
        self._forward = operation.forward if isinstance(operation, Query) else True
        self._matches = predicate(operation.filter) if operation.filter is not None else None
        self._project = projector(operation.projection) if operation.projection else None
        self._fetches = self._index is not None and self._index.fetches(
            operation.projection, whole_items=operation.whole_items
        )
        self._bytes = 0
        self._fetched_steps = 0
        self._scanned = 0
        source = self._index.index if self._index else layout.table
        self._is_in_segment = segment_test(source.partition, operation)
        self.items: list[Item] = []
        self._last: Item | None = None

    async def page(self, key_range: KeyRange | None) -> Page:
        """Read until the limit, the page size or the end."""
        start = self._operation.start
        limit = self._operation.limit
        is_short = limit is not None and limit <= MAX_SHORT_READ
        if is_short and self._is_in_segment is None:
            if self._index is None:
                return self._finish(more=self._read_short(key_range, start))
            return self._finish(more=self._read(key_range, start, inf) is True)
        while True:
            async with self._slices as deadline:
                has_more = self._read(key_range, start, deadline)
            if has_more is not None:
                return self._finish(more=has_more)
            start = self._last_key()

    def _read_short(self, key_range: KeyRange | None, start: Key | None) -> bool:
        """Read a few rows of the table at once; return whether more may follow."""
        limit = self._operation.limit or 0
        cursor = self._connection.execute(*self._statement(key_range, start, limit))
        unpack, items, total = self._layout.packer.unpack, [], 0
        for pk, sk, packed, size in cursor:
            items.append(unpack(packed, (pk, sk)))
            total += size
            if total >= MAX_PAGE_BYTES:
                cursor.close()
                break
        self._bytes, self._scanned = total, len(items)
        self._last = items[-1] if items else None
        if self._matches is not None:
            items = [*filter(self._matches, items)]
        self.items = items if self._project is None else [*map(self._project, items)]
        return total >= MAX_PAGE_BYTES or self._scanned == limit

    def _read(self, key_range: KeyRange | None, start: Key | None, deadline: float) -> bool | None:
        """Read rows; return whether more may follow, or None if the turn ended first."""
        limit = self._operation.limit
        remaining = _NO_LIMIT
        if limit is not None and self._is_in_segment is None:
            remaining = limit - self._scanned
        statement, values = self._statement(key_range, start, remaining)
        cursor = self._connection.execute(statement, values)
        add_item = self._add if self._index is None else partial(self._add_indexed, self._index)
        unpack = self._layout.packer.unpack
        monotonic, is_in_segment = self._slices.monotonic, self._is_in_segment
        for pk, sk, packed, size in cursor:
            item = unpack(packed, (pk, sk))
            if is_in_segment is None or is_in_segment(item):
                add_item(item, size)
            else:
                self._last = item  # the next turn continues after it
            if self._bytes >= MAX_PAGE_BYTES or self._scanned == limit:
                cursor.close()
                return True
            if monotonic() >= deadline:
                cursor.close()
                return None
        return False

    def _add(self, item: Item, size: int) -> None:
        self._last = item
        self._scanned += 1
        self._bytes += size
        if self._matches is None or self._matches(item):
            self.items.append(item if self._project is None else self._project(item))

    def _add_indexed(self, index: IndexLayout, item: Item, size: int) -> None:
        self._last = item
        self._scanned += 1
        projected = index.project(item)
        self._bytes += size if projected is item else measure_item(projected)
        candidate = item if self._operation.whole_items else projected
        if self._matches is not None and not self._matches(candidate):
            return
        if self._fetches:
            self._fetched_steps += capacity.read_steps(size)
            projected = item
        self.items.append(projected if self._project is None else self._project(projected))

    def _finish(self, *, more: bool) -> Page:
        cost = capacity.read_capacity(
            self._bytes, consistent=self._operation.consistent, fetched_steps=self._fetched_steps
        )
        return Page(
            [] if self._operation.count_only else self.items,
            self._last_key() if more and self._last is not None else None,
            self._scanned,
            cost,
            len(self.items),
        )

    def _last_key(self) -> Item:
        last = self._last or {}
        key = {name: last[name] for name in self._layout.table.key_names}
        if self._index is not None:
            key.update((part.name, last[part.name]) for part in index_key(self._index.index))
        return key

    def _statement(
        self, key_range: KeyRange | None, start: Key | None, max_rows: int
    ) -> tuple[str, tuple[Any, ...]]:
        partition: tuple[bytes, ...] = ()
        bounds: list[_Bound] = []
        if key_range is not None:
            key = self._index.index if self._index else self._layout.table
            partition = (encode_part(key.partition, key_range.partition),)
            if key.sort is not None and key_range.operator is not None:
                bounds = [*_bounds(key.sort, key_range.operator, key_range)]
        if start is not None and bounds:
            # The page key is within the range, so it replaces the bound on its side.
            replaced = ">" if self._forward else "<"
            bounds = [bound for bound in bounds if not bound[0].startswith(replaced)]
        start_row = () if start is None else self._start_row(start)
        shape = _Shape(
            bool(partition),
            tuple(operator for operator, _ in bounds),
            bool(start_row),
            self._forward,
        )
        statements = self._layout.ranges
        statement = statements.get((self._operation.index, shape))
        if statement is None:
            statement = statements[self._operation.index, shape] = _compose(
                self._layout, self._index, shape
            )
        return statement, (*partition, *(value for _, value in bounds), *start_row, max_rows)

    def _start_row(self, start: Key) -> tuple[bytes, ...]:
        """Return the page key as the columns that order the rows."""
        row = self._layout.read_key(start)
        if self._index is None:
            return row if isinstance(self._operation, Scan) else row[1:]
        entry = self._index.read_key(start) or (b"", b"")
        return (*entry, *row) if isinstance(self._operation, Scan) else (*entry[1:], *row)


def _bounds(sort: KeyPart, operator: str, key_range: KeyRange) -> Iterator[_Bound]:
    """Translate the sort-key condition to comparisons of encoded keys."""
    low = encode_part(sort, key_range.low)
    if operator == "begins_with":
        yield ">=", low
        end = successor(low)
        if end is not None:
            yield "<", end
    elif operator == "between":
        yield ">=", low
        yield "<=", encode_part(sort, key_range.high)
    elif operator == "=":
        yield ">=", low
        yield "<=", low
    else:
        yield operator, low


def _compose(layout: Layout, index: IndexLayout | None, shape: _Shape) -> str:
    if index is None:
        source, columns, result = layout.rows, ["pk", "sk"], "pk, sk, item, size"
    else:
        # CROSS JOIN fixes the join order: index entries first, then row lookups.
        entries = index_name(layout.table.name, index.index.name)
        source = f"{entries} AS e CROSS JOIN {layout.rows} AS r ON r.pk = e.pk AND r.sk = e.sk"
        columns, result = ["e.ipk", "e.isk", "e.pk", "e.sk"], "r.pk, r.sk, r.item, r.size"
    order = columns[1:] if shape.partition else columns
    tests = [f"{columns[0]} = ?"] if shape.partition else []
    tests += [f"{columns[1]} {operator} ?" for operator in shape.operators]
    if shape.after_start:
        marks = ", ".join("?" for _ in order)
        tests.append(f"({', '.join(order)}) {'>' if shape.forward else '<'} ({marks})")
    where = f" WHERE {' AND '.join(tests)}" if tests else ""
    direction = "" if shape.forward else " DESC"
    ordering = ", ".join(column + direction for column in order)
    return f"SELECT {result} FROM {source}{where} ORDER BY {ordering} LIMIT ?"
