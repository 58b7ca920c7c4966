"""The single requests of the store, each checked against its access pattern and metered.

Each method takes plain arguments, builds the operation and returns the relevant part of the result.
`enforcement.py` decides whether an operation is allowed; `meters.py` counts what it costs.
"""

import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypeVar

from tally.kit.clock import Clock, SystemClock
from tally.store import api
from tally.store.access import Invocation, current_invocation
from tally.store.api import Engine, Page, Returns, ScanSegment, operation_name
from tally.store.bounds import check_bound, limit_page, record_result
from tally.store.damage import DamageMonitor
from tally.store.enforcement import authorize, authorize_batch
from tally.store.errors import AccessViolation, RequestRejected, StorageDamaged, StoreError
from tally.store.expressions import Action, Condition, F, Path, make_path
from tally.store.meters import Meters, PatternMeter
from tally.store.schema import Table
from tally.store.values import Item, Key

Projected: TypeAlias = Iterable[str | F]
OperationT = TypeVar("OperationT", bound=api.Operation)
ResultT = TypeVar("ResultT", bound="HasCapacity")


class HasCapacity(Protocol):
    """A result with its consumed capacity."""

    @property
    def capacity(self) -> api.Capacity: ...


@dataclass(frozen=True, slots=True)
class StoreRequests:
    """One method per DynamoDB operation, on one engine.

    `clock` and `rng` time the retries of batches; several stores may share `meters`.
    """

    _engine: Engine
    clock: Clock = field(default_factory=SystemClock)
    meters: Meters = field(default_factory=Meters)
    rng: random.Random = field(default_factory=random.SystemRandom)
    damage: DamageMonitor = field(default_factory=DamageMonitor)

    async def get(
        self, table: Table, key: Key, *, project: Projected = (), consistent: bool = False
    ) -> Item | None:
        """Return the item at this key, or None."""
        found = await self._run(
            self._engine.get, api.Get(table, key, make_paths(project), consistent)
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
        """Write an item, replacing an existing one.

        Return the old item if `returns` requests it.
        """
        written = await self._run(self._engine.put, api.Put(table, item, condition, returns))
        return written.item

    async def update(
        self,
        table: Table,
        key: Key,
        *actions: Action,
        condition: Condition | None = None,
        returns: Returns = "NONE",
    ) -> Item | None:
        """Change an item, or create it if the condition allows it.

        Return what `returns` requests.
        """
        written = await self._run(
            self._engine.update, api.Update(table, key, actions, condition, returns)
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
        """Delete the item at this key; return it if `returns` requests it."""
        written = await self._run(self._engine.delete, api.Delete(table, key, condition, returns))
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
        count_only: bool = False,
    ) -> Page:
        """Read one page of a partition in sort-key order.

        `limit` counts items before the filter. With `count_only` the page has no items, only their
        `count`.
        """
        paths = make_paths(project)
        return await self._page(
            api.Query(
                table, where, index, filter, paths, forward, limit, start, consistent, count_only
            )
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
        count_only: bool = False,
        segment: ScanSegment | None = None,
    ) -> Page:
        """Read one page of a table, an index or a segment of them, in no particular order.

        With `count_only` the page has no items, only their `count`.
        """
        paths = make_paths(project)
        return await self._page(
            api.Scan(table, index, filter, paths, limit, start, consistent, count_only, segment)
        )

    async def batch_get(
        self,
        table: Table,
        keys: Sequence[Key],
        *,
        project: Projected = (),
        consistent: bool = False,
    ) -> api.BatchGetResult:
        """Read up to 100 items in one request; the result lists unprocessed keys."""
        return await self._run(
            self._engine.batch_get,
            api.BatchGet(table, tuple(keys), make_paths(project), consistent),
        )

    async def batch_write(
        self, table: Table, *, puts: Sequence[Item] = (), deletes: Sequence[Key] = ()
    ) -> api.BatchWrite | None:
        """Send up to 25 writes in one request, not atomically; return the unprocessed writes."""
        written = await self._run(
            self._engine.batch_write, api.BatchWrite(table, tuple(puts), tuple(deletes))
        )
        return written.unprocessed

    async def transact(self, writes: Sequence[api.Write], *, token: str | None = None) -> None:
        """Apply up to 100 writes and checks atomically.

        With a token, repeating the transaction within ten minutes has no effect.
        """
        await self._run(self._engine.transact, api.Transaction(tuple(writes), token))

    async def transact_get(self, gets: Sequence[api.Get]) -> list[Item | None]:
        """Read up to 100 items in one consistent snapshot, in the given order."""
        found = await self._run(self._engine.transact_get, api.TransactionGet(tuple(gets)))
        return found.items

    async def _page(self, operation: api.Query | api.Scan, *, counted: bool = False) -> Page:
        invocation, _ = self._current(operation)
        if isinstance(operation, api.Query):
            page = await self._run(
                self._engine.query, limit_page(invocation, operation), counted=counted
            )
        else:
            page = await self._run(
                self._engine.scan, limit_page(invocation, operation), counted=counted
            )
        check_bound(invocation)
        return page

    def _current(
        self, operation: api.Operation | api.TransactionBatch
    ) -> tuple[Invocation, PatternMeter]:
        """Return the current invocation and its meter.

        Raise AccessViolation outside of a pattern.
        """
        invocation = self._invocation(operation)
        return invocation, invocation.meter or invocation.attach(self.meters, self.clock)

    def _invocation(
        self, operation: api.Operation | api.TransactionBatch | api.ReadChanges
    ) -> Invocation:
        invocation = current_invocation()
        if invocation is None:
            what = operation_name(operation)
            raise AccessViolation(
                f"{what} outside of an access pattern: decorate the repository method with @access"
            )
        return invocation

    async def _run(
        self,
        send: Callable[[OperationT], Awaitable[ResultT]],
        operation: OperationT,
        *,
        counted: bool = False,
    ) -> ResultT:
        invocation, meter = self._current(operation)
        operation_meter = meter.operations[authorize(invocation, operation, counted=counted)]
        monotonic = self.clock.monotonic
        started = monotonic()
        try:
            result = await send(operation)
        except RequestRejected:
            operation_meter.rejected += 1
            raise
        except StorageDamaged as error:
            operation_meter.errors += 1
            self.damage.record(error)
            raise
        except Exception:
            operation_meter.errors += 1
            raise
        finally:
            operation_meter.record_call(monotonic() - started)
        operation_meter.record_result(record_result(invocation, operation, result), result.capacity)
        return result

    async def _transact_each(
        self, operations: Sequence[api.Transaction], named: api.Transaction | api.TransactionBatch
    ) -> list[api.TransactionResult | StoreError]:
        invocation, meter = self._current(named)
        operation_meter = meter.operations[authorize_batch(invocation, operations)]
        started = self.clock.monotonic()
        try:
            outcomes = await self._engine.transact_each(operations)
        except Exception as error:
            operation_meter.errors += len(operations)
            if isinstance(error, StorageDamaged):
                self.damage.record(error)
            raise
        finally:
            operation_meter.record_call(self.clock.monotonic() - started, len(operations))
        applied = [outcome for outcome in outcomes if type(outcome) is api.TransactionResult]
        operation_meter.items += _count_items(operations, outcomes, len(applied))
        operation_meter.write += sum(outcome.capacity.write for outcome in applied)
        if len(applied) < len(outcomes):
            rejected = sum(isinstance(outcome, RequestRejected) for outcome in outcomes)
            operation_meter.rejected += rejected
            operation_meter.errors += len(outcomes) - len(applied) - rejected
            for outcome in outcomes:
                if isinstance(outcome, StorageDamaged):
                    self.damage.record(outcome)
        return outcomes


def _count_items(
    operations: Sequence[api.Transaction],
    outcomes: Sequence[api.TransactionResult | StoreError],
    applied: int,
) -> int:
    """Count the items that applied transactions wrote."""
    if isinstance(operations, api.TransactionBatch):
        return applied * len(operations.puts)
    pairs = zip(operations, outcomes, strict=True)
    return sum(
        len(operation.writes)
        for operation, outcome in pairs
        if type(outcome) is api.TransactionResult
    )


def make_paths(project: Projected) -> tuple[Path, ...]:
    """Convert a projection's names and fields to paths."""
    return (
        tuple(field.path if isinstance(field, F) else make_path(field) for field in project)
        if project
        else ()
    )
