"""Single requests, each held to its access pattern and metered: what the store sends is always one of these.

Each takes plain arguments, builds the operation, and returns what a repository wants to have of the
answer. `guard.py` says whether it may go out; `meters.py` counts what it cost.
"""

import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypeVar

from tally.kit.clock import Clock, SystemClock
from tally.store import api
from tally.store.access import Invocation, current_invocation
from tally.store.api import Engine, Page, Returns, operation_name
from tally.store.enforcement import (
    authorize,
    authorize_batch,
    check_bound,
    limit_page,
    record_result,
)
from tally.store.errors import AccessViolation, RequestRejected, StoreError
from tally.store.expressions import Action, Condition, F, Path, make_path
from tally.store.meters import Meters, PatternMeter
from tally.store.schema import Table
from tally.store.values import Item, Key

Projected: TypeAlias = Iterable[str | F]
Sent = TypeVar("Sent", bound=api.Operation)
Answer = TypeVar("Answer", bound="HasCapacity")


class HasCapacity(Protocol):
    """What every answer of an engine has."""

    @property
    def capacity(self) -> api.Capacity: ...


@dataclass(frozen=True, slots=True)
class StoreRequests:
    """One engine, watched.

    `clock` and `chance` are for the pauses between retries; `meters` may be shared by several.
    """

    engine: Engine
    clock: Clock = field(default_factory=SystemClock)
    meters: Meters = field(default_factory=Meters)
    rng: random.Random = field(default_factory=random.SystemRandom)

    async def get(
        self, table: Table, key: Key, *, project: Projected = (), consistent: bool = False
    ) -> Item | None:
        """The item at this key, or None."""
        found = await self._run(
            self.engine.get, api.Get(table, key, make_paths(project), consistent)
        )
        return found.item

    async def put(
        self,
        table: Table,
        item: Item,
        *,
        condition: Condition | None = None,
        returns: Returns = "NONE",
    ) -> Item | None:
        """Put an item in place of whatever stood there; the old one if `returns` asks for it."""
        written = await self._run(self.engine.put, api.Put(table, item, condition, returns))
        return written.item

    async def update(
        self,
        table: Table,
        key: Key,
        *actions: Action,
        condition: Condition | None = None,
        returns: Returns = "NONE",
    ) -> Item | None:
        """Change an item, or make it where there is none and the condition lets it be; what `returns` asks for."""
        written = await self._run(
            self.engine.update, api.Update(table, key, actions, condition, returns)
        )
        return written.item

    async def delete(
        self,
        table: Table,
        key: Key,
        *,
        condition: Condition | None = None,
        returns: Returns = "NONE",
    ) -> Item | None:
        """Leave no item at this key; the old one if `returns` asks for it."""
        written = await self._run(self.engine.delete, api.Delete(table, key, condition, returns))
        return written.item

    async def query(
        self,
        table: Table,
        where: Condition,
        *,
        index: str | None = None,
        filter: Condition | None = None,  # noqa: A002 - DynamoDB's word
        project: Projected = (),
        forward: bool = True,
        limit: int | None = None,
        start: Key | None = None,
        consistent: bool = False,
    ) -> Page:
        """One page of a partition, in the order of its sort key.

        `limit` counts items before the filter.
        """
        paths = make_paths(project)
        return await self._page(
            api.Query(table, where, index, filter, paths, forward, limit, start, consistent)
        )

    async def scan(
        self,
        table: Table,
        *,
        index: str | None = None,
        filter: Condition | None = None,  # noqa: A002 - DynamoDB's word
        project: Projected = (),
        limit: int | None = None,
        start: Key | None = None,
        consistent: bool = False,
    ) -> Page:
        """One page of a whole table or index, in no promised order."""
        return await self._page(
            api.Scan(table, index, filter, make_paths(project), limit, start, consistent)
        )

    async def batch_get(
        self,
        table: Table,
        keys: Sequence[Key],
        *,
        project: Projected = (),
        consistent: bool = False,
    ) -> api.BatchGetResult:
        """Up to 100 items in one request, and the keys it did not get to."""
        return await self._run(
            self.engine.batch_get, api.BatchGet(table, tuple(keys), make_paths(project), consistent)
        )

    async def batch_write(
        self, table: Table, *, puts: Sequence[Item] = (), deletes: Sequence[Key] = ()
    ) -> api.BatchWrite | None:
        """Up to 25 writes in one request, each on its own; what it did not get to."""
        written = await self._run(
            self.engine.batch_write, api.BatchWrite(table, tuple(puts), tuple(deletes))
        )
        return written.unprocessed

    async def transact(self, writes: Sequence[api.Write], *, token: str | None = None) -> None:
        """Up to 100 writes and checks, together or not at all.

        With a token, a retry within ten minutes is harmless.
        """
        await self._run(self.engine.transact, api.Transaction(tuple(writes), token))

    async def transact_get(self, gets: Sequence[api.Get]) -> list[Item | None]:
        """Up to 100 items as they stood together at one moment, in the order asked for."""
        found = await self._run(self.engine.transact_get, api.TransactionGet(tuple(gets)))
        return found.items

    async def _page(self, operation: api.Query | api.Scan, *, bounded: bool = False) -> Page:
        invocation, _ = self._entered(operation)
        if isinstance(operation, api.Query):
            page = await self._run(
                self.engine.query, limit_page(invocation, operation), bounded=bounded
            )
        else:
            page = await self._run(
                self.engine.scan, limit_page(invocation, operation), bounded=bounded
            )
        check_bound(invocation)
        return page

    def _entered(self, operation: api.Operation) -> tuple[Invocation, PatternMeter]:
        """The running call of a pattern, and its meter."""
        invocation = current_invocation()
        if invocation is None:
            what = operation_name(operation)
            raise AccessViolation(
                f"{what} outside of any access pattern: put @access on the repository's method"
            )
        return invocation, invocation.meter or invocation.attach(self.meters, self.clock)

    async def _run(
        self, send: Callable[[Sent], Awaitable[Answer]], operation: Sent, *, bounded: bool = False
    ) -> Answer:
        invocation, meter = self._entered(operation)
        counted = meter.operations[authorize(invocation, operation, bounded=bounded)]
        monotonic = self.clock.monotonic
        started = monotonic()
        try:
            answer = await send(operation)
        except RequestRejected:
            counted.refused += 1
            raise
        except Exception:
            counted.errors += 1
            raise
        finally:
            counted.took(monotonic() - started)
        counted.consumed(record_result(invocation, operation, answer), answer.capacity)
        return answer

    async def _transact_each(
        self, operations: Sequence[api.Transaction]
    ) -> list[api.TransactionResult | StoreError]:
        invocation, meter = self._entered(operations[0])
        counted = meter.operations[authorize_batch(invocation, operations)]
        started = self.clock.monotonic()
        try:
            outcomes = await self.engine.transact_each(operations)
        except Exception:
            counted.errors += len(operations)
            raise
        finally:
            counted.took(self.clock.monotonic() - started, len(operations))
        done = [outcome for outcome in outcomes if type(outcome) is api.TransactionResult]
        counted.items += _items_of(operations, outcomes, len(done))
        counted.write += sum(outcome.capacity.write for outcome in done)
        if len(done) < len(outcomes):
            refused = sum(isinstance(outcome, RequestRejected) for outcome in outcomes)
            counted.refused += refused
            counted.errors += len(outcomes) - len(done) - refused
        return outcomes


def _items_of(
    operations: Sequence[api.Transaction],
    outcomes: Sequence[api.TransactionResult | StoreError],
    done: int,
) -> int:
    """How many items the transactions wrote that were carried out."""
    if isinstance(operations, api.TransactionBatch):
        return done * len(operations.puts)
    pairs = zip(operations, outcomes, strict=True)
    return sum(
        len(operation.writes)
        for operation, outcome in pairs
        if type(outcome) is api.TransactionResult
    )


def make_paths(project: Projected) -> tuple[Path, ...]:
    return (
        tuple(one.path if isinstance(one, F) else make_path(one) for one in project)
        if project
        else ()
    )
