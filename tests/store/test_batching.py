"""Bulk methods split work into requests, resend unprocessed items, and enforce their bound."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tally.errors import Unavailable
from tally.kit.clock import ManualClock
from tally.store.access import (
    BatchGetItem,
    BatchWriteItem,
    Query,
    Scan,
    access,
    access_patterns,
    param,
)
from tally.store.api import BatchGet, BatchGetResult, BatchWrite, BatchWriteResult
from tally.store.batching import (
    INITIAL_BACKOFF_SECONDS,
    MAX_BACKOFF_SECONDS,
    MAX_STALLED_ATTEMPTS,
    BatchRetryPolicy,
    chunks,
    run_bounded,
    send_until_complete,
)
from tally.store.errors import (
    AccessViolation,
    BoundExceeded,
    DuplicateItem,
    InvalidKey,
    ItemTooLarge,
    StorageFull,
    Throttled,
    TooManyItems,
)
from tally.store.expressions import F
from tally.store.sqlite import SqliteEngine
from tally.store.store import MAX_CONCURRENT_REQUESTS, Overflow, Store
from tally.store.values import Item
from tests.store.example import FOLLOW_KEY, FOLLOWS, make_tables


class BusyEngine(SqliteEngine):
    """The SQLite engine behind a service that is busy.

    It takes only some of each batch, and notes what it was sent.
    """

    takes = 1000
    batches: list[int]
    at_once = 0
    most_at_once = 0

    async def batch_get(self, operation: BatchGet) -> BatchGetResult:
        async with _Counted(self, len(operation.keys)):
            taken = operation.keys[: self.takes]
            rest = operation.keys[self.takes :]
            if not taken:
                return BatchGetResult([], rest, (await super().batch_get(operation)).capacity)
            return replace(
                await super().batch_get(replace(operation, keys=taken)), unprocessed=rest
            )

    async def batch_write(self, operation: BatchWrite) -> BatchWriteResult:
        async with _Counted(self, len(operation.puts) + len(operation.deletes)):
            changes: list[tuple[str, Any]] = [("put", item) for item in operation.puts]
            changes += [("delete", key) for key in operation.deletes]
            taken, rest = (
                _batch(operation, part) for part in (changes[: self.takes], changes[self.takes :])
            )
            result = await super().batch_write(taken)
            return replace(result, unprocessed=rest if rest.puts or rest.deletes else None)


@dataclass
class _Counted:
    engine: BusyEngine
    size: int

    async def __aenter__(self) -> None:
        self.engine.batches.append(self.size)
        self.engine.at_once += 1
        self.engine.most_at_once = max(self.engine.most_at_once, self.engine.at_once)
        await asyncio.sleep(0)

    async def __aexit__(self, *_: object) -> None:
        self.engine.at_once -= 1


def _batch(operation: BatchWrite, changes: Sequence[tuple[str, Any]]) -> BatchWrite:
    puts = tuple(content for kind, content in changes if kind == "put")
    return replace(
        operation,
        puts=puts,
        deletes=tuple(content for kind, content in changes if kind == "delete"),
    )


@dataclass(frozen=True, slots=True)
class Repository:
    store: Store

    @access("Get many", BatchGetItem(key=FOLLOW_KEY), table=FOLLOWS, bound=1000)
    async def get_many(self, keys: Sequence[Item], **more: Any) -> list[Item]:
        return await self.store.get_many(FOLLOWS, keys, **more)

    @access("Write many", BatchWriteItem(key=FOLLOW_KEY), table=FOLLOWS, bound=1000)
    async def write_many(self, **more: Any) -> None:
        await self.store.write_many(FOLLOWS, **more)

    @access("Write one batch", BatchWriteItem(key=FOLLOW_KEY), table=FOLLOWS)
    async def batch_write(self, **more: Any) -> BatchWrite | None:
        return await self.store.batch_write(FOLLOWS, **more)

    @access("Get one batch", BatchGetItem(key=FOLLOW_KEY), table=FOLLOWS)
    async def batch_get(self, keys: Sequence[Item]) -> BatchGetResult:
        return await self.store.batch_get(FOLLOWS, keys)

    @access(
        "Items",
        Query(where=F("matchId") == param("matchId"), forward=None),
        table=FOLLOWS,
        bound=1000,
    )
    async def items(self, match_id: str, **more: Any) -> list[str]:
        return [
            item["userId"]
            async for item in self.store.items(FOLLOWS, F("matchId") == match_id, **more)
        ]

    @access(
        "Bounded items",
        Query(where=F("matchId") == param("matchId"), forward=None),
        table=FOLLOWS,
        bound=10,
    )
    async def bounded_items(self, match_id: str, **more: Any) -> list[str]:
        return [
            item["userId"]
            async for item in self.store.items(FOLLOWS, F("matchId") == match_id, **more)
        ]

    @access(
        "Get projected",
        BatchGetItem(key=FOLLOW_KEY, project=("expiresAt", "userId")),
        table=FOLLOWS,
        bound=10,
    )
    async def expiries(self, keys: Sequence[Item]) -> list[Item]:
        return await self.store.get_many(FOLLOWS, keys, project=["expiresAt", F("userId")])

    @access(
        "Filtered items",
        Query(where=F("matchId") == param("matchId"), filter=F("expiresAt") == param("time")),
        table=FOLLOWS,
        bound=1000,
    )
    async def expiring(self, match_id: str, **more: Any) -> list[str]:
        found = self.store.items(FOLLOWS, F("matchId") == match_id, **more)
        return [item["userId"] async for item in found]

    @access("Unbounded items", Query(where=F("matchId") == param("matchId")), table=FOLLOWS)
    async def unbounded_items(self, match_id: str, **more: Any) -> None:
        async for _ in self.store.items(FOLLOWS, F("matchId") == match_id, **more):
            pass

    @access("All items", Scan(), table=FOLLOWS, bound=1000)
    async def scan_items(self, **more: Any) -> list[Item]:
        return [item async for item in self.store.scan_items(FOLLOWS, **more)]


@pytest.fixture
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BusyEngine]:
    engine = BusyEngine(tmp_path_factory.mktemp("paging"))
    engine.batches = []
    try:
        await make_tables(engine)
        yield engine
    finally:
        await engine.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def repository(engine: BusyEngine, clock: ManualClock) -> Repository:
    return Repository(Store(engine, clock, rng=random.Random(1)))


def follow(number: int, match_id: str = "m") -> Item:
    return {"matchId": match_id, "userId": f"u{number:04}", "expiresAt": number}


def key(number: int, match_id: str = "m") -> Item:
    return {"matchId": match_id, "userId": f"u{number:04}"}


async def while_time_passes(clock: ManualClock, work: Awaitable[Any]) -> Any:
    """Return the result of the work; advance the clock whenever a task sleeps."""
    task = asyncio.ensure_future(work)
    while not task.done():
        sleeping = asyncio.ensure_future(clock.until_sleeping())
        await asyncio.wait({task, sleeping}, return_when=asyncio.FIRST_COMPLETED)
        if sleeping.done():
            await clock.advance(MAX_BACKOFF_SECONDS)
        sleeping.cancel()
    return task.result()


@given(st.lists(st.integers()), st.integers(1, 10))
def test_chunks_are_the_work_in_order_and_none_is_too_large(work: list[int], size: int) -> None:
    pieces = list(chunks(work, size))
    assert [element for piece in pieces for element in piece] == work
    assert all(0 < len(piece) <= size for piece in pieces)


async def test_many_writes_are_sent_in_concurrent_batches_of_25(
    repository: Repository, engine: BusyEngine
) -> None:
    await repository.write_many(puts=[follow(number) for number in range(110)])
    assert engine.batches == [25, 25, 25, 25, 10]
    assert engine.most_at_once == MAX_CONCURRENT_REQUESTS
    assert await repository.items("m", bound=200) == [f"u{number:04}" for number in range(110)]


async def test_many_reads_are_sent_in_batches_of_100(
    repository: Repository, engine: BusyEngine
) -> None:
    await repository.write_many(puts=[follow(number) for number in range(0, 300, 2)])
    engine.batches.clear()
    found = await repository.get_many([key(number) for number in range(230)])
    assert sorted(engine.batches) == [30, 100, 100]
    assert sorted(item["userId"] for item in found) == [
        f"u{number:04}" for number in range(0, 230, 2)
    ]


async def test_duplicate_keys_are_read_once(repository: Repository, engine: BusyEngine) -> None:
    await repository.write_many(puts=[follow(1)])
    assert await repository.get_many([key(1)] * 150) == [follow(1)]
    assert engine.batches == [1, 1]


async def test_only_projected_attributes_are_returned(repository: Repository) -> None:
    await repository.write_many(puts=[follow(1)])
    assert await repository.expiries([key(1)]) == [{"userId": "u0001", "expiresAt": 1}]


async def test_puts_and_deletes_share_batches(repository: Repository) -> None:
    await repository.write_many(puts=[follow(number) for number in range(40)])
    await repository.write_many(puts=[follow(50)], deletes=[key(number) for number in range(40)])
    assert await repository.items("m", bound=200) == ["u0050"]


async def test_empty_work_sends_no_request(repository: Repository, engine: BusyEngine) -> None:
    assert await repository.get_many([]) == []
    await repository.write_many()
    assert engine.batches == []


async def test_unprocessed_work_is_sent_again(
    repository: Repository, engine: BusyEngine, clock: ManualClock
) -> None:
    """All items are written and count once against the bound; back-off separates the attempts."""
    engine.takes = 7
    await while_time_passes(
        clock, repository.write_many(puts=[follow(number) for number in range(1000)])
    )
    engine.takes = 30
    found = await while_time_passes(
        clock, repository.get_many([key(number) for number in range(1000)])
    )
    assert sorted(item["userId"] for item in found) == [f"u{number:04}" for number in range(1000)]
    assert engine.batches[:1] == [25]
    assert 18 in engine.batches
    assert clock.monotonic() > 0
    meters = repository.store.meters
    assert [
        meters.of(access_patterns(Repository)[name]).items for name in ("write_many", "get_many")
    ] == [1000, 1000]


async def test_a_batch_without_progress_fails(
    repository: Repository, engine: BusyEngine, clock: ManualClock
) -> None:
    """It raises Throttled after the maximum of attempts without progress."""
    engine.takes = 0
    with pytest.raises(Unavailable, match="The store is unavailable") as raised:
        await while_time_passes(clock, repository.get_many([key(number) for number in range(3)]))
    assert isinstance(raised.value.__cause__, Throttled)
    assert (
        str(raised.value.__cause__)
        == f"3 items of a batch were not processed in {MAX_STALLED_ATTEMPTS} attempts"
    )
    assert engine.batches == [3] * MAX_STALLED_ATTEMPTS


async def test_back_off_grows_without_progress_and_resets_after_it() -> None:
    """Full jitter.

    Each back-off is drawn between zero and a limit that doubles up to the maximum.
    """
    limits: list[tuple[float, float]] = []

    class Longest(random.Random):
        def uniform(self, a: float, b: float) -> float:
            limits.append((a, b))
            return 0.0

    unprocessed = iter([[1, 2, 3, 4]] * 7 + [[1, 2]] + [[1, 2]] + [[]])

    async def send(work: Sequence[int]) -> Sequence[int]:
        return next(unprocessed)

    await send_until_complete([1, 2, 3, 4], send, BatchRetryPolicy(ManualClock(), Longest()))
    assert limits == [
        *((0, min(MAX_BACKOFF_SECONDS, INITIAL_BACKOFF_SECONDS * 2**n)) for n in range(1, 8)),
        (0, INITIAL_BACKOFF_SECONDS),
        (0, INITIAL_BACKOFF_SECONDS * 2),
    ]


async def test_the_first_failure_cancels_the_others_and_is_raised() -> None:
    """No exception group, and no job continues in the background."""
    finished, begun = [], asyncio.Event()

    async def wait_for_ever() -> None:
        begun.set()
        await asyncio.Event().wait()
        finished.append("waited")

    async def fail() -> None:
        await begun.wait()
        raise StorageFull("no room")

    async def never() -> None:
        finished.append("ran")

    with pytest.raises(StorageFull, match="no room"):
        await run_bounded([wait_for_ever, fail, never], concurrency=2)
    assert finished == []


async def test_one_invalid_item_rejects_all_before_the_first_request(
    repository: Repository, engine: BusyEngine
) -> None:
    good = [follow(number) for number in range(100)]
    with pytest.raises(InvalidKey, match="userId is missing"):
        await repository.write_many(puts=[*good, {"matchId": "m"}])
    with pytest.raises(ItemTooLarge):
        await repository.write_many(puts=[*good, follow(200) | {"teamId": "x" * 500_000}])
    with pytest.raises(DuplicateItem, match="u0003"):
        await repository.write_many(puts=good, deletes=[key(3)])
    with pytest.raises(InvalidKey, match="userId is missing"):
        await repository.get_many([key(1), {"matchId": "m"}])
    assert engine.batches == []


async def test_more_than_the_bound_is_rejected_before_anything_is_sent(
    repository: Repository, engine: BusyEngine
) -> None:
    with pytest.raises(BoundExceeded, match="'Write many': more than 1000 items would be written"):
        await repository.write_many(puts=[follow(number) for number in range(1001)])
    with pytest.raises(BoundExceeded, match="'Get many': more than 5 items would be read"):
        await repository.get_many([key(number) for number in range(6)], bound=5)
    assert engine.batches == []


async def test_a_single_batch_has_the_services_limits(
    repository: Repository, engine: BusyEngine
) -> None:
    """26 writes and 101 reads exceed one request; unprocessed work is returned to the caller."""
    with pytest.raises(TooManyItems, match="25"):
        await repository.batch_write(puts=[follow(number) for number in range(26)])
    with pytest.raises(TooManyItems, match="100"):
        await repository.batch_get([key(number) for number in range(101)])
    engine.takes = 2
    rest = await repository.batch_write(puts=[follow(1), follow(2), follow(3)], deletes=[key(4)])
    assert rest == BatchWrite(FOLLOWS, (follow(3),), (key(4),))
    found = await repository.batch_get([key(1), key(2), key(3)])
    assert (len(found.items), found.unprocessed) == (2, (key(3),))


@pytest.mark.parametrize("page", [None, 1, 3, 7, 100])
@pytest.mark.parametrize("overflow", ["raise", "stop"])
async def test_an_iteration_returns_all_items(
    repository: Repository, page: int | None, overflow: Overflow
) -> None:
    """Exactly as many items as the bound are allowed, with any page size."""
    await repository.write_many(puts=[follow(number) for number in range(7)])
    everything = [f"u{number:04}" for number in range(7)]
    assert await repository.items("m", bound=7, page=page, overflow=overflow) == everything
    assert await repository.items("m", bound=8, page=page, overflow=overflow) == everything
    assert await repository.items("nobody", bound=1, page=page, overflow=overflow) == []


@pytest.mark.parametrize("page", [None, 1, 3, 7, 100])
async def test_an_iteration_raises_or_stops_at_its_bound(
    repository: Repository, page: int | None
) -> None:
    await repository.write_many(puts=[follow(number) for number in range(7)])
    with pytest.raises(BoundExceeded, match="'Items': more than 6 items would be read"):
        await repository.items("m", bound=6, page=page)
    assert len(await repository.items("m", bound=6, page=page, overflow="stop")) == 6


async def test_an_iteration_uses_the_bound_of_its_pattern_by_default(
    repository: Repository,
) -> None:
    await repository.write_many(puts=[follow(number) for number in range(11)])
    with pytest.raises(BoundExceeded, match="'Bounded items': more than 10 items would be read"):
        await repository.bounded_items("m", page=4)
    assert len(await repository.bounded_items("m", page=4, overflow="stop")) == 10
    assert len(await repository.bounded_items("m", bound=3, overflow="stop")) == 3
    with pytest.raises(AccessViolation, match="between 1 and the declared 10, not 11"):
        await repository.bounded_items("m", bound=11)
    with pytest.raises(AccessViolation, match="it needs a bound: declare one"):
        await repository.unbounded_items("m", bound=3)


async def test_a_call_beyond_its_bound_stays_rejected(repository: Repository) -> None:
    """Catching BoundExceeded inside a pattern does not make the rest look empty."""
    await repository.write_many(puts=[follow(number) for number in range(11)])

    class Stubborn:
        @access(
            "Stubborn",
            Query(where=F("matchId") == param("matchId"), requests=2),
            table=FOLLOWS,
            bound=10,
        )
        async def read(self) -> list[Item]:
            with contextlib.suppress(BoundExceeded):
                await repository.store.query(FOLLOWS, F("matchId") == "m")
            return [
                item
                async for item in repository.store.items(
                    FOLLOWS, F("matchId") == "m", overflow="stop"
                )
            ]

    with pytest.raises(BoundExceeded, match="'Stubborn': more than 10 items would be read"):
        await Stubborn().read()


async def test_the_bound_counts_items_before_the_filter(repository: Repository) -> None:
    """DynamoDB reads and bills items that a filter removes."""
    await repository.write_many(puts=[follow(number) for number in range(11)])
    last = F("expiresAt") == 10
    assert await repository.expiring("m", bound=11, filter=last) == ["u0010"]
    with pytest.raises(BoundExceeded):
        await repository.expiring("m", bound=10, filter=last)


async def test_an_iteration_may_be_backward_and_start_at_a_key(repository: Repository) -> None:
    await repository.write_many(puts=[follow(number) for number in range(5)])
    assert await repository.items("m", bound=9, forward=False, page=2) == [
        "u0004",
        "u0003",
        "u0002",
        "u0001",
        "u0000",
    ]
    assert await repository.items("m", bound=9, start=key(2)) == ["u0003", "u0004"]


async def test_a_scan_reads_all_pages_up_to_its_bound(repository: Repository) -> None:
    await repository.write_many(puts=[follow(number, f"m{number % 3}") for number in range(30)])
    found = await repository.scan_items(page=7)
    assert sorted(item["userId"] for item in found) == [f"u{number:04}" for number in range(30)]
    with pytest.raises(BoundExceeded, match="more than 29 items would be read"):
        await repository.scan_items(bound=29)
    assert len(await repository.scan_items(bound=29, overflow="stop")) == 29
