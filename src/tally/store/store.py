"""The store as a repository sees it: operations that take plain arguments and return plain things.

    follow = await store.get(FOLLOWS, {"matchId": match_id, "userId": user_id})
    await store.update(FOLLOWS, key, F("teamId").set(team_id), condition=present("matchId"))
    async for follow in store.items(FOLLOWS, F("matchId") == match_id, bound=200_000): ...

It holds every call to the access pattern whose method is running, and counts what the call cost; a
call from anywhere else is refused. The single requests (`requests.py`) have DynamoDB's limits;
`get_many`, `write_many`, `items` and `scan_items` go on over as many requests as their bound
allows.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec.structs import replace

from tally.store import api
from tally.store.batching import BatchRetryPolicy, chunks, run_bounded, send_until_complete
from tally.store.enforcement import bound_exceeded, check_bound, resolve_bound
from tally.store.errors import StoreError
from tally.store.expressions import Condition
from tally.store.requests import Projected, StoreRequests, make_paths
from tally.store.schema import Table, check_key
from tally.store.validate import check_batch_write, check_distinct
from tally.store.values import Item, Key

Overflow: TypeAlias = Literal["raise", "stop"]
Change: TypeAlias = tuple[Literal["put", "delete"], Any]
T = TypeVar("T")
MAX_CONCURRENT_REQUESTS = 4


@dataclass(frozen=True, slots=True)
class Store(StoreRequests):
    """What repositories hold.

    A helper's bound is the one it is given, at most the pattern's, or else the pattern's.
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
        """All items at these keys that there are, in no promised order; a key given twice is read once."""
        wanted = _distinct(table, keys)
        paths, found = make_paths(project), list[Item]()
        self._check_bound(api.BatchGet(table, tuple(wanted)), len(wanted), bound)

        async def send(keys: Sequence[Key]) -> Sequence[Key]:
            answer = await self._run(
                self.engine.batch_get, api.BatchGet(table, tuple(keys), paths, consistent)
            )
            found.extend(answer.items)
            return answer.unprocessed

        await self._in_chunks(wanted, api.MAX_BATCH_GET, send)
        return found

    async def write_many(
        self,
        table: Table,
        *,
        puts: Iterable[Item] = (),
        deletes: Iterable[Key] = (),
        bound: int | None = None,
    ) -> None:
        """Put and delete all of these, each on its own.

        All are checked before the first is sent.
        """
        changes: list[Change] = [
            *(("put", item) for item in puts),
            *(("delete", key) for key in deletes),
        ]
        self._check_bound(_batch(table, changes), len(changes), bound)
        for chunk in chunks(changes, api.MAX_BATCH_WRITE):
            check_batch_write(_batch(table, chunk))
        check_distinct((table, table.key_of(content)) for _, content in changes)

        async def send(undone: Sequence[Change]) -> Sequence[Change]:
            rest = (await self._run(self.engine.batch_write, _batch(table, undone))).unprocessed
            if rest is None:
                return ()
            return [
                *(("put", item) for item in rest.puts),
                *(("delete", key) for key in rest.deletes),
            ]

        await self._in_chunks(changes, api.MAX_BATCH_WRITE, send)

    async def transact_each(
        self, operations: Sequence[api.Transaction], *, bound: int | None = None
    ) -> list[StoreError | None]:
        """Many transactions at once, each on its own: for each of them None if it happened, or why it did not.

        Those that only put new items of the same tables are best given as `Alike`.
        """
        if not operations:
            return []
        if isinstance(operations, api.TransactionBatch):
            count = len(operations) * len(operations.puts)
        else:
            count = sum(len(operation.writes) for operation in operations)
        self._check_bound(operations[0], count, bound)
        outcomes = await self._transact_each(operations)
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
        """All items of a range, `page` at a time.

        At most `bound` are looked at, before the filter: then it raises or stops.
        """
        paths = make_paths(project)
        query = api.Query(table, where, index, filter, paths, forward, page, start, consistent)
        return self._all(query, bound, overflow)

    def scan_items(
        self,
        table: Table,
        *,
        index: str | None = None,
        filter: Condition | None = None,  # noqa: A002 - DynamoDB's word
        project: Projected = (),
        page: int | None = None,
        consistent: bool = False,
        bound: int | None = None,
        overflow: Overflow = "raise",
    ) -> AsyncGenerator[Item, None]:
        """All items of a table or index, `page` at a time.

        At most `bound` are looked at: then it raises or stops.
        """
        scan = api.Scan(table, index, filter, make_paths(project), page, None, consistent)
        return self._all(scan, bound, overflow)

    async def _all(
        self, operation: api.Query | api.Scan, bound: int | None, overflow: Overflow
    ) -> AsyncGenerator[Item, None]:
        invocation, _ = self._entered(operation)
        left = most = resolve_bound(invocation, bound, invocation.read)
        check_bound(invocation)
        # One item past the bound tells "that was all" from "there is more".
        spare = 1 if overflow == "raise" else 0
        size = operation.limit
        while left + spare > 0:
            limit = left + spare if size is None else min(size, left + spare)
            page = await self._page(replace(operation, limit=limit), bounded=True)
            left -= page.scanned
            if left < 0:
                raise bound_exceeded(invocation, "read", most)
            for item in page.items:
                yield item
            if page.next is None:
                return
            operation = replace(operation, start=page.next)

    def _check_bound(
        self,
        operation: api.BatchGet | api.BatchWrite | api.Transaction,
        count: int,
        bound: int | None,
    ) -> None:
        invocation, _ = self._entered(operation)
        reads = isinstance(operation, api.BatchGet)
        most = resolve_bound(invocation, bound, invocation.read if reads else invocation.written)
        if count > most:
            raise bound_exceeded(invocation, "read" if reads else "written", most)

    async def _in_chunks(
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


def _batch(table: Table, changes: Sequence[Change]) -> api.BatchWrite:
    puts = tuple(content for kind, content in changes if kind == "put")
    deletes = tuple(content for kind, content in changes if kind == "delete")
    return api.BatchWrite(table, puts, deletes)
