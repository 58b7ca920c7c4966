"""The store as repositories use it.

    follow = await store.get(FOLLOWS, {"matchId": match_id, "userId": user_id})
    await store.update(FOLLOWS, key, F("teamId").set(team_id), condition=exists("matchId"))
    async for follow in store.items(FOLLOWS, F("matchId") == match_id, bound=200_000): ...

It checks every call against the access pattern of the running method and meters it; calls outside
of a pattern are rejected. The single requests (`requests.py`) have DynamoDB's limits; `get_many`,
`write_many`, `items` and `scan_items` send as many requests as their bound allows.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec.structs import replace

from tally.store import api
from tally.store.access import Invocation
from tally.store.batching import BatchRetryPolicy, chunks, run_bounded, send_until_complete
from tally.store.bounds import bound_exceeded, check_bound, resolve_bound
from tally.store.changes import Change, ChangePage
from tally.store.enforcement import authorize, begin
from tally.store.errors import StorageDamaged, StoreError
from tally.store.expressions import Condition
from tally.store.pattern_operations import UseKey
from tally.store.requests import Projected, StoreRequests, make_paths
from tally.store.schema import Table, check_key
from tally.store.validate import check_batch_write, check_distinct
from tally.store.values import Item, Key

Overflow: TypeAlias = Literal["raise", "stop"]
BatchEntry: TypeAlias = tuple[Literal["put", "delete"], Any]
T = TypeVar("T")
MAX_CONCURRENT_REQUESTS = 4


@dataclass(frozen=True, slots=True)
class Store(StoreRequests):
    """Reads and writes items within access patterns.

    Methods with a `bound` use the pattern's bound by default; a given bound must not exceed it.
    """

    async def get_many(
        self,
        table: Table,
        keys: Iterable[Key],
        *,
        project: Projected = (),
        consistent: bool = False,
        bound: int | None = None,
    ) -> list[Item]:
        """Read the items at these keys, in no particular order; duplicate keys are read once."""
        distinct_keys = _distinct(table, keys)
        paths, found = make_paths(project), list[Item]()
        whole = api.BatchGet(table, tuple(distinct_keys), paths, consistent)
        begin(self._check_bound(whole, len(distinct_keys), bound), whole)

        async def send(keys: Sequence[Key]) -> Sequence[Key]:
            batch = await self._run(
                self._engine.batch_get,
                api.BatchGet(table, tuple(keys), paths, consistent),
                counted=True,
            )
            found.extend(batch.items)
            return batch.unprocessed

        await self._send_in_chunks(distinct_keys, api.MAX_BATCH_GET, send)
        return found

    async def write_many(
        self,
        table: Table,
        *,
        puts: Iterable[Item] = (),
        deletes: Iterable[Key] = (),
        bound: int | None = None,
    ) -> None:
        """Put and delete items, not atomically. All are validated before the first is sent."""
        changes: list[BatchEntry] = [
            *(("put", item) for item in puts),
            *(("delete", key) for key in deletes),
        ]
        whole = _batch(table, changes)
        invocation = self._check_bound(whole, len(changes), bound)
        for chunk in chunks(changes, api.MAX_BATCH_WRITE):
            check_batch_write(_batch(table, chunk))
        check_distinct((table, table.primary_key(key_or_item)) for _, key_or_item in changes)
        begin(invocation, whole)

        async def send(batch: Sequence[BatchEntry]) -> Sequence[BatchEntry]:
            unprocessed = (
                await self._run(self._engine.batch_write, _batch(table, batch), counted=True)
            ).unprocessed
            if unprocessed is None:
                return ()
            return [
                *(("put", item) for item in unprocessed.puts),
                *(("delete", key) for key in unprocessed.deletes),
            ]

        await self._send_in_chunks(changes, api.MAX_BATCH_WRITE, send)

    async def transact_each(
        self, operations: Sequence[api.Transaction], *, bound: int | None = None
    ) -> list[StoreError | None]:
        """Run independent transactions; return None for each that was applied, or its error.

        For puts of new items into the same tables, `TransactionBatch` is fastest.
        """
        if not operations:
            return []
        named: api.Transaction | api.TransactionBatch
        if isinstance(operations, api.TransactionBatch):
            named, count = operations, len(operations) * len(operations.puts)
        else:
            named = operations[0]
            count = sum(len(operation.writes) for operation in operations)
        self._check_bound(named, count, bound)
        outcomes = await self._transact_each(operations, named)
        return [
            None if isinstance(outcome, api.TransactionResult) else outcome for outcome in outcomes
        ]

    def items(
        self,
        table: Table,
        where: Condition,
        *,
        index: str | None = None,
        filter: Condition | None = None,  # noqa: A002 - DynamoDB's word
        project: Projected = (),
        forward: bool = True,
        page: int | None = None,
        start: Key | None = None,
        consistent: bool = False,
        bound: int | None = None,
        overflow: Overflow = "raise",
    ) -> AsyncGenerator[Item, None]:
        """Iterate over a range, `page` items per request.

        At most `bound` items are read, before the filter; then the iteration raises or stops.
        """
        paths = make_paths(project)
        query = api.Query(table, where, index, filter, paths, forward, page, start, consistent)
        return self._iterate(query, bound, overflow)

    async def count_items(
        self,
        table: Table,
        where: Condition,
        *,
        index: str | None = None,
        filter: Condition | None = None,  # noqa: A002 - DynamoDB's word
        consistent: bool = False,
        bound: int | None = None,
    ) -> int:
        """Count the items of a range without returning them, page by page.

        It reads, and costs, as much as `items`; at most `bound` items are read, before the filter.
        """
        query = api.Query(table, where, index, filter, consistent=consistent, count_only=True)
        return sum([page.count async for page in self._pages(query, bound, "raise")])

    def scan_items(
        self,
        table: Table,
        *,
        index: str | None = None,
        filter: Condition | None = None,  # noqa: A002 - DynamoDB's word
        project: Projected = (),
        page: int | None = None,
        consistent: bool = False,
        segment: api.ScanSegment | None = None,
        bound: int | None = None,
        overflow: Overflow = "raise",
    ) -> AsyncGenerator[Item, None]:
        """Iterate over a table, an index or a segment of them, `page` items per request.

        At most `bound` items are read, before the filter; then the iteration raises or stops.
        """
        paths = make_paths(project)
        scan = api.Scan(table, index, filter, paths, page, None, consistent, segment=segment)
        return self._iterate(scan, bound, overflow)

    async def changes(
        self, table: Table, *, after: str | None = None
    ) -> AsyncGenerator[Change, None]:
        """Iterate over the changes of a table after a position, as they happen, without an end.

        `after` is the position of a change, `START` for the oldest change that is kept, or None for
        the next one. Changes of a key come in order. Raise PositionExpired if changes after the
        position were trimmed, and PositionUnknown if it is of another stream or engine.
        """
        operation = api.ReadChanges(table, after)
        invocation, use = self._authorize_stream(operation)
        # Not the meter of the call, whose duration would be that of the subscription.
        meter = self.meters.of(invocation.pattern).operations[use]
        meter.record_call(0.0)
        try:
            async with aclosing(self._engine.changes(table, after)) as found:
                async for change in found:
                    meter.items += 1
                    yield change
        except StorageDamaged as error:
            self.damage.record(error)
            raise

    async def stream_position(self, table: Table) -> str:
        """Return the position after the last change so far, for `changes(after=...)`.

        Take it before you read a table, so that no change after the read is missed.
        """
        self._authorize_stream(api.ReadChanges(table), counted=True)
        return await self._engine.stream_position(table)

    async def read_changes(
        self, table: Table, partition: Any, *, after: str | None, limit: int
    ) -> ChangePage:
        """Return up to `limit` changes of a partition after a position, without waiting for more.

        After None, return an empty page at the end of the stream. Raise like `changes`.
        """
        invocation, use = self._authorize_stream(api.ReadChanges(table, after), counted=True)
        meter = self.meters.of(invocation.pattern).operations[use]
        started = self.clock.monotonic()
        try:
            page = await self._engine.read_changes(table, partition, after, limit)
        except StorageDamaged as error:
            self.damage.record(error)
            raise
        meter.record_call(self.clock.monotonic() - started)
        meter.items += len(page.changes)
        return page

    async def has_changes(self, table: Table, *, after: str, until: str) -> bool | None:
        """Whether the table has changes between two positions.

        None if the engine cannot tell: DynamoDB does not report how far a stream is behind.
        """
        self._authorize_stream(api.ReadChanges(table), counted=True)
        return await self._engine.has_changes(table, after, until)

    def _authorize_stream(
        self, operation: api.ReadChanges, *, counted: bool = False
    ) -> tuple[Invocation, UseKey]:
        invocation = self._invocation(operation)
        return invocation, authorize(invocation, operation, counted=counted)

    async def _iterate(
        self, operation: api.Query | api.Scan, bound: int | None, overflow: Overflow
    ) -> AsyncGenerator[Item, None]:
        async for page in self._pages(operation, bound, overflow):
            for item in page.items:
                yield item

    async def _pages(
        self, operation: api.Query | api.Scan, bound: int | None, overflow: Overflow
    ) -> AsyncGenerator[api.Page, None]:
        invocation, _ = self._current(operation)
        begin(invocation, operation)
        remaining = allowed = resolve_bound(invocation, bound, invocation.read)
        check_bound(invocation)
        # One item past the bound distinguishes the end from an overflow.
        extra = 1 if overflow == "raise" else 0
        size = operation.limit
        while remaining + extra > 0:
            limit = remaining + extra if size is None else min(size, remaining + extra)
            page = await self._page(replace(operation, limit=limit), counted=True)
            remaining -= page.scanned
            if remaining < 0:
                raise bound_exceeded(invocation, "read", allowed)
            yield page
            if page.next is None:
                return
            operation = replace(operation, start=page.next)

    def _check_bound(
        self,
        operation: api.BatchGet | api.BatchWrite | api.Transaction | api.TransactionBatch,
        count: int,
        bound: int | None,
    ) -> Invocation:
        invocation, _ = self._current(operation)
        reads = isinstance(operation, api.BatchGet)
        limit = resolve_bound(invocation, bound, invocation.read if reads else invocation.written)
        if count > limit:
            raise bound_exceeded(invocation, "read" if reads else "written", limit)
        return invocation

    async def _send_in_chunks(
        self, work: Sequence[T], size: int, send: Callable[[Sequence[T]], Awaitable[Sequence[T]]]
    ) -> None:
        retry_policy = BatchRetryPolicy(self.clock, self.rng)
        await run_bounded(
            (
                partial(send_until_complete, chunk, send, retry_policy)
                for chunk in chunks(work, size)
            ),
            MAX_CONCURRENT_REQUESTS,
        )


def _distinct(table: Table, keys: Iterable[Key]) -> list[Key]:
    distinct: dict[tuple[Any, ...], Key] = {}
    for key in keys:
        check_key(table, key)
        distinct[tuple(key[name] for name in table.key_names)] = key
    return list(distinct.values())


def _batch(table: Table, changes: Sequence[BatchEntry]) -> api.BatchWrite:
    puts = tuple(key_or_item for kind, key_or_item in changes if kind == "put")
    deletes = tuple(key_or_item for kind, key_or_item in changes if kind == "delete")
    return api.BatchWrite(table, puts, deletes)
