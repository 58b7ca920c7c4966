"""`Store.transact_each` enforces its pattern and bound, and meters each transaction."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import pytest

from tally.kit.clock import ManualClock
from tally.store.access import PutItem, TransactWriteItems, access, access_pattern
from tally.store.api import Put, Transaction, Write
from tally.store.errors import (
    AccessViolation,
    BoundExceeded,
    StoreError,
    StoreUnavailable,
    TransactionCancelled,
)
from tally.store.expressions import not_exists
from tally.store.sqlite import SqliteEngine, open_sqlite
from tally.store.store import Store
from tests.store.example import FOLLOW_KEY, FOLLOWS, LOCKS, make_tables


@pytest.fixture
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SqliteEngine]:
    async with open_sqlite(tmp_path_factory.mktemp("each")) as engine:
        await make_tables(engine)
        yield engine


@dataclass(frozen=True, slots=True)
class Batches:
    """Creates many follows per call."""

    store: Store

    @access(
        "Follow",
        TransactWriteItems(PutItem(key=FOLLOW_KEY, condition=not_exists("matchId"))),
        table=FOLLOWS,
        bound=6,
    )
    async def follow(self, users: Sequence[str]) -> list[StoreError | None]:
        return await self.store.transact_each(
            [Transaction((self._follow(user),)) for user in users]
        )

    @access(
        "Follow without end",
        TransactWriteItems(PutItem(key=FOLLOW_KEY, condition=not_exists("matchId"))),
        table=FOLLOWS,
    )
    async def unbounded(self) -> None:
        await self.store.transact_each([Transaction((self._follow("ann"),))])

    @access("Put", PutItem(key=FOLLOW_KEY), table=FOLLOWS, bound=6)
    async def undeclared(self) -> None:
        await self.store.transact_each([Transaction((self._follow("ann"),))])

    @access(
        "Follow elsewhere",
        TransactWriteItems(PutItem(key=FOLLOW_KEY, condition=not_exists("matchId"))),
        table=FOLLOWS,
        bound=6,
    )
    async def elsewhere(self) -> None:
        await self.store.transact_each(
            [Transaction((self._follow("ann"),)), Transaction((Put(LOCKS, {"lockKey": "a"}),))]
        )

    @staticmethod
    def _follow(user: str) -> Write:
        return Put(
            FOLLOWS,
            {"matchId": "m", "userId": user, "expiresAt": 1},
            condition=not_exists("matchId"),
        )


@pytest.fixture
def batches(engine: SqliteEngine) -> Batches:
    return Batches(Store(engine, clock=ManualClock()))


async def test_results_are_in_order_and_metered(batches: Batches) -> None:
    assert await batches.follow(["ann", "bob"]) == [None, None]
    again, new = await batches.follow(["ann", "cid"])
    assert isinstance(again, TransactionCancelled)
    assert new is None
    pattern = access_pattern(Batches.follow)
    assert pattern is not None
    meter = batches.store.meters.of(pattern)
    assert meter.whole.calls == 2
    counted = meter.operations["TransactWriteItems", None]
    assert (counted.calls, counted.items, counted.rejected, counted.errors) == (4, 3, 1, 0)
    assert sum(counted.buckets) == 4


async def test_no_transactions_send_nothing(batches: Batches) -> None:
    assert await batches.follow([]) == []


async def test_more_writes_than_the_bound_are_rejected_before_the_first(batches: Batches) -> None:
    with pytest.raises(BoundExceeded, match="more than 6 items would be written"):
        await batches.follow([f"user-{number}" for number in range(7)])
    assert await batches.follow(["user-0"]) == [None]


@pytest.mark.parametrize(
    ("method", "why"),
    [
        ("unbounded", "it needs a bound"),
        ("undeclared", "not TransactWriteItems"),
        ("elsewhere", "does not declare PutItem in example-locks"),
    ],
)
async def test_an_undeclared_operation_is_rejected(batches: Batches, method: str, why: str) -> None:
    with pytest.raises(AccessViolation, match=why):
        await getattr(batches, method)()
    assert await batches.follow(["ann"]) == [None]


async def test_an_unavailable_store_counts_as_an_error_of_every_transaction(
    engine: SqliteEngine, batches: Batches
) -> None:
    await engine.close()
    with pytest.raises(Exception, match="unavailable") as raised:
        await batches.follow(["ann", "bob"])
    assert isinstance(raised.value.__cause__, StoreUnavailable)
    pattern = access_pattern(Batches.follow)
    assert pattern is not None
    counted = batches.store.meters.of(pattern).operations["TransactWriteItems", None]
    assert (counted.calls, counted.errors) == (2, 2)
