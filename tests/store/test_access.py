"""The store enforces access patterns before it sends anything."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tally.errors import Unavailable
from tally.kit.clock import ManualClock
from tally.store.access import (
    BatchGetItem,
    BatchWriteItem,
    DeleteItem,
    GetItem,
    PatternOperation,
    PutItem,
    Query,
    Scan,
    TransactWriteItems,
    UpdateItem,
    access,
    access_pattern,
    access_patterns,
    current_invocation,
    param,
)
from tally.store.api import Check, Get, Put
from tally.store.errors import (
    AccessViolation,
    BoundExceeded,
    ConditionFailed,
    StorageFull,
    TableNotFound,
    TransactionCancelled,
    UnknownIndex,
)
from tally.store.expressions import F, exists
from tally.store.schema import GlobalIndex, S, Table
from tally.store.sqlite import SqliteEngine, open_sqlite
from tally.store.store import Store
from tally.store.values import Item
from tests.store.example import (
    FIXTURE_KEY,
    FIXTURES,
    FOLLOW_COUNTS,
    FOLLOW_KEY,
    FOLLOWS,
    LOCK_KEY,
    LOCKS,
    Fixtures,
    Follows,
    Locks,
    make_tables,
)

ENGLISH = F("leagueCode") == "eng"
OF_LEAGUE = F("leagueCode") == param("code")
OF_MATCH = F("matchId") == param("matchId")
IS_LIVE = F("live") == "1"


@pytest.fixture
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SqliteEngine]:
    async with open_sqlite(tmp_path_factory.mktemp("access")) as engine:
        await make_tables(engine)
        yield engine


@pytest.fixture
def store(engine: SqliteEngine) -> Store:
    return Store(engine, clock=ManualClock())


def fixture(number: int, **more: Any) -> Item:
    return {
        "matchId": f"m{number:03}",
        "leagueCode": "eng",
        "startTime": f"2026-05-{number:03}",
        **more,
    }


@dataclass(frozen=True, slots=True)
class PatternViolations:
    """Methods that violate their pattern."""

    store: Store

    @access("Other table", GetItem(key=FIXTURE_KEY), table=FIXTURES)
    async def other_table(self) -> None:
        await self.store.get(LOCKS, {"lockKey": "a"})

    @access("Other operation", GetItem(key=FIXTURE_KEY), table=FIXTURES)
    async def other_operation(self) -> None:
        await self.store.put(FIXTURES, fixture(1))

    @access("No index", Query(where=OF_MATCH), table=FIXTURES)
    async def undeclared_index(self) -> None:
        await self.store.query(FIXTURES, ENGLISH, index="league-index")

    @access("Other index", Query(where=IS_LIVE, index="live-index"), table=FIXTURES)
    async def other_index(self) -> None:
        await self.store.query(FIXTURES, ENGLISH, index="league-index")

    @access("Only index", Query(where=IS_LIVE, index="live-index"), table=FIXTURES)
    async def table_instead_of_index(self) -> None:
        await self.store.query(FIXTURES, F("matchId") == "m001")

    @access("Query, not scan", Query(where=OF_MATCH), table=FIXTURES)
    async def scan(self) -> None:
        await self.store.scan(FIXTURES)

    @access("Scan, no filter", Scan(), table=FIXTURES, bound=10)
    async def filter_of_a_scan(self) -> None:
        await self.store.scan(FIXTURES, filter=exists("live"))

    @access(
        "Conditional",
        PutItem(key=FIXTURE_KEY, condition=exists("matchId"))
        + DeleteItem(key=FIXTURE_KEY, condition=exists("matchId")),
        table=FIXTURES,
    )
    async def no_condition(self) -> None:
        await self.store.delete(FIXTURES, {"matchId": "m001"})

    @access("Single put", PutItem(key=FOLLOW_KEY), table=FOLLOWS)
    async def transaction(self) -> None:
        await self.store.transact([Put(FOLLOWS, {"matchId": "m", "userId": "u", "expiresAt": 1})])

    @access("Transaction", TransactWriteItems(PutItem(key=FOLLOW_KEY)), table=FOLLOWS)
    async def table_of_a_transaction(self) -> None:
        await self.store.transact([Check(LOCKS, {"lockKey": "a"}, exists("lockKey"))])

    @access("Writes only", TransactWriteItems(PutItem(key=FOLLOW_KEY)), table=FOLLOWS)
    async def read_in_a_transaction(self) -> None:
        await self.store.transact_get([Get(FOLLOWS, {"matchId": "m", "userId": "u"})])

    @access("Too many writes", BatchWriteItem(key=FIXTURE_KEY), table=FIXTURES, bound=3)
    async def too_many_writes(self) -> None:
        await self.store.batch_write(FIXTURES, puts=[fixture(number) for number in range(4)])

    @access("Too many reads", BatchGetItem(key=FIXTURE_KEY), table=FIXTURES, bound=3)
    async def too_many_reads(self) -> None:
        await self.store.batch_get(FIXTURES, [{"matchId": f"m{number}"} for number in range(4)])

    @access("No bound", BatchGetItem(key=FIXTURE_KEY), table=FIXTURES)
    async def no_bound(self) -> None:
        await self.store.get_many(FIXTURES, [{"matchId": "m001"}])

    @access("Bound too wide", BatchGetItem(key=FIXTURE_KEY), table=FIXTURES, bound=3)
    async def wider_bound(self) -> None:
        await self.store.get_many(FIXTURES, [{"matchId": "m001"}], bound=4)


VIOLATIONS = {
    "other_table": "declares table example-fixtures, not example-locks",
    "other_operation": "declares GetItem, not PutItem",
    "undeclared_index": "declares Query, not Query on league-index",
    "other_index": r"declares Query \(GSI\), not Query on league-index",
    "table_instead_of_index": r"declares Query \(GSI\), not Query$",
    "scan": "declares Query, not Scan",
    "filter_of_a_scan": r"Scan declares the filter none, not attribute_exists\(live\)",
    "no_condition": r"DeleteItem declares the condition attribute_exists\(matchId\), not none",
    "transaction": "declares PutItem, not TransactWriteItems",
    "table_of_a_transaction": "does not declare ConditionCheck in example-locks",
    "read_in_a_transaction": "declares TransactWriteItems, not TransactGetItems",
    "too_many_writes": "more than 3 items would be written",
    "too_many_reads": "more than 3 items would be read",
    "no_bound": "it needs a bound",
    "wider_bound": "between 1 and the declared 3, not 4",
}


@pytest.mark.parametrize("method", VIOLATIONS)
async def test_an_undeclared_access_is_rejected_before_anything_is_sent(
    store: Store, method: str
) -> None:
    """The error names the pattern and is counted, and nothing is sent."""
    with pytest.raises(AccessViolation, match=VIOLATIONS[method]) as refusal:
        await getattr(PatternViolations(store), method)()
    pattern = access_patterns(PatternViolations)[method]
    assert repr(pattern.name) in str(refusal.value)
    assert store.meters.of(pattern).errors == 1
    assert [
        meter.calls for meter in store.meters.of(pattern).operations.values() if meter.calls
    ] == []


def test_every_violation_is_tried() -> None:
    assert set(access_patterns(PatternViolations)) == set(VIOLATIONS)


async def test_a_call_outside_of_a_pattern_is_rejected(store: Store) -> None:
    """Also through the helper methods."""
    with pytest.raises(AccessViolation, match="GetItem outside of an access pattern"):
        await store.get(FIXTURES, {"matchId": "m001"})
    with pytest.raises(AccessViolation, match="Scan outside of an access pattern"):
        await store.scan(FIXTURES)
    with pytest.raises(AccessViolation, match="Query outside of an access pattern"):
        _ = [item async for item in store.items(FIXTURES, ENGLISH, bound=10)]
    with pytest.raises(AccessViolation, match="BatchWriteItem outside of an access pattern"):
        await store.write_many(FIXTURES, puts=[fixture(1)], bound=10)


async def test_a_repository_reads_and_writes_as_it_declares(store: Store) -> None:
    """Single items, ranges, indexes, batches and transactions of the example."""
    fixtures, follows = Fixtures(store), Follows(store)
    await fixtures.put_many(
        fixture(number, venue="Lord's" if number % 2 else "Oval") for number in range(60)
    )
    assert await fixtures.get("m007") == fixture(7, venue="Lord's")
    assert await fixtures.get("m999") is None
    assert len(await fixtures.get_many([f"m{number:03}" for number in range(50, 70)])) == 10
    page = await fixtures.of_league("eng", "2026-05-010", "2026-05-019", limit=4)
    assert [item["matchId"] for item in page.items] == ["m010", "m011", "m012", "m013"]
    page = await fixtures.of_league("eng", "2026-05-010", "2026-05-019", after=page.next)
    assert [item["matchId"] for item in page.items] == [f"m01{number}" for number in range(4, 10)]
    assert len(await fixtures.at_venue("Oval")) == 30

    for user in ("ann", "bob", "cid", "dan"):
        await follows.follow("m007", user, expires_at=100)
    with pytest.raises(TransactionCancelled):
        await follows.follow("m007", "ann", expires_at=100)
    assert [follow["userId"] async for follow in follows.list_by_match("m007")] == [
        "ann",
        "bob",
        "cid",
        "dan",
    ]
    follow, match = await follows.with_match("m007", "ann")
    assert follow is not None
    assert match == fixture(7, venue="Lord's")
    assert await follows.remove_all("m007") == 4
    assert [follow async for follow in follows.list_by_match("m007")] == []


async def test_a_failed_condition_is_not_counted_as_an_error(store: Store) -> None:
    """A taken lock counts as rejected."""
    locks = Locks(store)
    assert await locks.acquire("match:1", "first", now=100)
    assert not await locks.acquire("match:1", "second", now=105)
    assert await locks.acquire("match:1", "second", now=111)
    with pytest.raises(ConditionFailed):
        await locks.release("match:1", "first")
    assert await locks.release("match:1", "second") == {
        "lockKey": "match:1",
        "owner": "second",
        "expiresAt": 121,
    }
    meter = store.meters.of(access_patterns(Locks)["acquire"])
    assert (meter.whole.calls, meter.rejected, meter.errors, meter.items) == (3, 1, 0, 2)
    assert meter.capacity.write >= 2


async def test_a_scan_stops_at_its_bound(store: Store) -> None:
    """Twenty live matches are read; with one more the call fails after reading 21 items."""
    fixtures = Fixtures(store)
    await fixtures.put_many(fixture(number, live="1") for number in range(20))
    assert len(await fixtures.live()) == 20
    await fixtures.put_many(fixture(number, live="1") for number in range(20, 60))
    meter = store.meters.of(access_patterns(Fixtures)["live"])
    before = meter.items
    with pytest.raises(
        BoundExceeded, match="'Scan live fixtures': more than 20 items would be read"
    ):
        await fixtures.live()
    assert meter.items - before == 21
    assert meter.errors == 1


@dataclass(frozen=True, slots=True)
class Pages:
    """Page loops with and without a bound."""

    store: Store

    async def _pages(self, start: Item | None = None) -> int:
        count = 0
        while True:
            page = await self.store.query(
                FIXTURES, ENGLISH, index="league-index", limit=2, start=start
            )
            count += len(page.items)
            start = page.next
            if start is None:
                return count

    @access("Unbounded", Query(where=OF_LEAGUE, index="league-index"), table=FIXTURES)
    async def unbounded(self, start: Item | None = None) -> int:
        return await self._pages(start)

    @access("Bounded", Query(where=OF_LEAGUE, index="league-index"), table=FIXTURES, bound=7)
    async def bounded(self) -> int:
        return await self._pages()

    @access(
        "Two leagues",
        Query(where=OF_LEAGUE, index="league-index", requests=2),
        table=FIXTURES,
    )
    async def two_leagues(self) -> int:
        wheres = [F("leagueCode") == code for code in ("eng", "aus")]
        pages = [self.store.query(FIXTURES, where, index="league-index") for where in wheres]
        return sum(len(page.items) for page in await asyncio.gather(*pages))


async def test_a_page_loop_needs_a_bound(store: Store) -> None:
    """The first page is allowed anywhere; a second page in the same call is not."""
    await Fixtures(store).put_many(fixture(number) for number in range(7))
    with pytest.raises(AccessViolation, match="it declares 1 Query per call"):
        await Pages(store).unbounded()
    page = await Fixtures(store).of_league("eng", "2026", "2027", limit=6)
    assert await Pages(store).unbounded(page.next) == 1
    assert await Pages(store).bounded() == 7
    assert await Pages(store).two_leagues() == 7


async def test_a_page_loop_ends_at_its_bound(store: Store) -> None:
    await Fixtures(store).put_many(fixture(number) for number in range(8))
    with pytest.raises(BoundExceeded, match="'Bounded': more than 7 items would be read"):
        await Pages(store).bounded()


@dataclass(frozen=True, slots=True)
class Streams:
    """A generator that reads in its body and during cleanup."""

    store: Store
    cleaned: list[str]

    @access(
        "Stream",
        Query(where=OF_LEAGUE, index="league-index") + GetItem(key=FIXTURE_KEY),
        table=FIXTURES,
        bound=100,
    )
    async def stream(self) -> AsyncGenerator[str, None]:
        try:
            async for item in self.store.items(FIXTURES, ENGLISH, index="league-index", page=1):
                yield item["matchId"]
        finally:
            found = await self.store.get(FIXTURES, {"matchId": "m000"})
            self.cleaned.append(found["matchId"] if found else "nothing")

    @access("Outer", GetItem(key=FIXTURE_KEY), table=FIXTURES)
    async def outer(self) -> list[Any]:
        before = current_invocation()
        matches = [match async for match in self.stream()]
        assert current_invocation() is before
        await self.store.get(FIXTURES, {"matchId": "m000"})
        return matches


async def test_a_generator_hides_its_pattern_from_its_consumer(store: Store) -> None:
    """The consumer's code runs in the same task, without a pattern."""
    await Fixtures(store).put_many(fixture(number) for number in range(3))
    streams = Streams(store, [])
    seen = []
    async for match in streams.stream():
        assert current_invocation() is None
        with pytest.raises(AccessViolation, match="outside of an access pattern"):
            await store.get(FIXTURES, {"matchId": match})
        seen.append(match)
    assert seen == ["m000", "m001", "m002"]
    assert current_invocation() is None
    assert streams.cleaned == ["m000"]


async def test_a_generator_that_is_left_early_cleans_up_under_its_pattern(store: Store) -> None:
    await Fixtures(store).put_many(fixture(number) for number in range(3))
    streams = Streams(store, [])
    stream = streams.stream()
    assert await anext(stream) == "m000"
    await stream.aclose()
    assert streams.cleaned == ["m000"]
    meter = store.meters.of(access_patterns(Streams)["stream"])
    assert meter.whole.calls == 1
    assert [count.calls for count in meter.operations.values()] == [1, 1]


async def test_patterns_may_be_nested(store: Store) -> None:
    """The inner pattern applies until it ends."""
    await Fixtures(store).put_many(fixture(number) for number in range(3))
    assert await Streams(store, []).outer() == ["m000", "m001", "m002"]
    assert store.meters.of(access_patterns(Streams)["outer"]).items == 1


async def test_concurrent_calls_have_separate_bounds(store: Store) -> None:
    """Twenty concurrent calls with a bound of seven each."""
    await Fixtures(store).put_many(fixture(number) for number in range(7))
    assert await asyncio.gather(*(Pages(store).bounded() for _ in range(20))) == [7] * 20
    meter = store.meters.of(access_patterns(Pages)["bounded"])
    assert (meter.whole.calls, meter.items, meter.errors) == (20, 140, 0)


async def test_concurrent_requests_cannot_exceed_the_bound(store: Store) -> None:
    """Reads count before they are sent, so the fourth of five is rejected before any response."""

    class Eager:
        @access("Eager", GetItem(key=FIXTURE_KEY, requests=9), table=FIXTURES, bound=3)
        async def get(self) -> list[Any]:
            gets = (store.get(FIXTURES, {"matchId": f"m{number}"}) for number in range(5))
            return await asyncio.gather(*gets, return_exceptions=True)

    outcomes = await Eager().get()
    assert [type(outcome) for outcome in outcomes] == [type(None)] * 3 + [BoundExceeded] * 2
    assert store.meters.of(access_patterns(Eager)["get"]).operations["GetItem", None].calls == 3


@dataclass(frozen=True, slots=True)
class TaskLeaks:
    store: Store
    go_on: asyncio.Event

    async def _later(self) -> Item | None:
        await self.go_on.wait()
        return await self.store.get(FIXTURES, {"matchId": "m001"})

    @access("Leaves a task behind", GetItem(key=FIXTURE_KEY), table=FIXTURES)
    async def leave(self) -> asyncio.Task[Item | None]:
        return asyncio.create_task(self._later())


async def test_a_task_that_outlives_its_pattern_is_rejected(store: Store) -> None:
    go_on = asyncio.Event()
    task = await TaskLeaks(store, go_on).leave()
    go_on.set()
    with pytest.raises(AccessViolation, match="the method has returned"):
        await task


async def test_an_engine_failure_is_raised_as_a_domain_error(
    store: Store,
) -> None:
    """Services know no store errors, only that a retry may succeed."""

    class Broken:
        @access("Broken", GetItem(key=FIXTURE_KEY), table=FIXTURES)
        async def get(self) -> None:
            raise StorageFull("no room")

        @access("Breaks off", GetItem(key=FIXTURE_KEY), table=FIXTURES)
        async def stream(self) -> AsyncGenerator[int, None]:
            yield 1
            raise StorageFull("no room")

    with pytest.raises(Unavailable) as away:
        await Broken().get()
    assert isinstance(away.value.__cause__, StorageFull)
    stream = Broken().stream()
    assert await anext(stream) == 1
    with pytest.raises(Unavailable) as away:
        await anext(stream)
    assert isinstance(away.value.__cause__, StorageFull)


async def test_a_missing_table_is_raised_as_a_domain_error(store: Store) -> None:
    """The installation is not complete yet: a client gets 503, not 500."""
    missing = Table("never-made", partition=S("id"))

    class Unprovisioned:
        @access("Unprovisioned", GetItem(key={"id": param("id")}), table=missing)
        async def get(self) -> Item | None:
            return await store.get(missing, {"id": "1"})

    with pytest.raises(Unavailable) as away:
        await Unprovisioned().get()
    assert isinstance(away.value.__cause__, TableNotFound)


async def test_a_missing_index_is_raised_as_a_domain_error(store: Store) -> None:
    """The upgrade is not complete yet."""
    declared = replace(FIXTURES, indexes=(GlobalIndex("added-later", S("leagueId")),))

    class Upgraded:
        @access(
            "Upgraded",
            Query(where=F("leagueId") == param("league"), index="added-later"),
            table=declared,
            bound=10,
        )
        async def list(self) -> Sequence[Item]:
            page = await store.query(declared, F("leagueId") == "5", index="added-later", limit=10)
            return page.items

    with pytest.raises(Unavailable) as away:
        await Upgraded().list()
    assert isinstance(away.value.__cause__, UnknownIndex)


async def test_a_call_that_never_reaches_the_store_is_not_counted(store: Store) -> None:
    """A cached result is no access: "GetItem (on cache miss)" counts the misses."""

    class Cached:
        @access("Cached", GetItem(key=FIXTURE_KEY).with_note("on cache miss"), table=FIXTURES)
        async def get(self, *, hit: bool) -> Item | None:
            return {} if hit else await store.get(FIXTURES, {"matchId": "m001"})

    cached = Cached()
    await cached.get(hit=True)
    await cached.get(hit=False)
    assert store.meters.of(access_patterns(Cached)["get"]).whole.calls == 1


async def test_latency_excludes_the_consumer(store: Store) -> None:
    """The clock advances only in the consumer."""
    clock = store.clock
    assert isinstance(clock, ManualClock)
    await Fixtures(store).put_many(fixture(number) for number in range(3))
    async for _ in Streams(store, []).stream():
        await clock.advance(10)
    meter = store.meters.of(access_patterns(Streams)["stream"])
    assert (meter.whole.calls, meter.whole.seconds) == (1, 0.0)


async def test_latency_counts_what_the_body_does_after_reaching_the_store(store: Store) -> None:
    clock = store.clock
    assert isinstance(clock, ManualClock)

    move = clock.advance

    class Slow:
        @access("Slow", GetItem(key=FIXTURE_KEY), table=FIXTURES)
        async def get(self) -> None:
            await store.get(FIXTURES, {"matchId": "m001"})
            await move(2)

    await Slow().get()
    meter = store.meters.of(access_patterns(Slow)["get"])
    assert (meter.whole.seconds, meter.whole.slowest) == (2.0, 2.0)
    assert [count.seconds for count in meter.operations.values()] == [0.0]


@pytest.mark.parametrize(
    ("operation", "more", "problem"),
    [
        (Scan(), {}, "a Scan requires a bound"),
        (Query(where=OF_MATCH) + Scan(index="live-index"), {}, "a Scan requires a bound"),
        (Query(where=IS_LIVE, index="no-index"), {}, "table example-fixtures has no index"),
        (Query(where=OF_MATCH) + Query(where=OF_MATCH), {}, "operations must be distinct"),
        (Query(where=OF_LEAGUE), {}, "Query: the key condition must start with matchId = "),
        (Query(where=F("matchId") > "m"), {}, "Query: the key condition must start with matchId"),
        (GetItem(key=FIXTURE_KEY), {"bound": 0}, "bound must be at least 1"),
        (GetItem(key=FOLLOW_KEY), {}, "GetItem: the key of example-fixtures is matchId"),
        (GetItem(key=FIXTURE_KEY, requests=0), {}, "GetItem: requests must be at least 1"),
        (
            TransactWriteItems(PutItem(table=LOCKS, key=LOCK_KEY)),
            {},
            "it does not declare table example-locks",
        ),
    ],
)
def test_an_invalid_declaration_is_rejected_immediately(
    operation: PatternOperation, more: dict[str, Any], problem: str
) -> None:
    with pytest.raises(AccessViolation, match=f"access pattern 'Wrong': {problem}"):
        access("Wrong", operation, table=FIXTURES, **more)


def test_a_pattern_must_be_async() -> None:
    def plain() -> None: ...

    with pytest.raises(AccessViolation, match="must be async or an async generator"):
        access("Plain", GetItem(key=FIXTURE_KEY), table=FIXTURES)(plain)
    with pytest.raises(AccessViolation, match="the name is empty"):
        access(" ", GetItem(key=FIXTURE_KEY), table=FIXTURES)


@pytest.mark.parametrize(
    ("operation", "label"),
    [
        (GetItem(key=FIXTURE_KEY), "GetItem"),
        (GetItem(key=FIXTURE_KEY).with_note("on cache miss"), "GetItem (on cache miss)"),
        (Query(where=IS_LIVE, index="live-index"), "Query (GSI)"),
        (Query(where=OF_MATCH) + DeleteItem(key=FIXTURE_KEY), "Query + DeleteItem"),
        (Scan(filter=exists("venue")), "Scan + filter"),
        (Scan(index="live-index", filter=exists("venue")), "Scan (GSI) + filter"),
        (PutItem(key=FIXTURE_KEY, condition=exists("matchId")), "PutItem (conditional)"),
        (PutItem(key=FIXTURE_KEY, condition=(exists("matchId"), None)), "PutItem"),
        (
            UpdateItem(key=FIXTURE_KEY, condition=exists("matchId")).with_note("rare"),
            "UpdateItem (conditional, rare)",
        ),
    ],
)
def test_an_operation_is_formatted_as_in_the_documentation(
    operation: PatternOperation, label: str
) -> None:
    @access("Labelled", operation, table=FIXTURES, bound=1)
    async def method() -> None: ...

    pattern = access_pattern(method)
    assert pattern is not None
    assert pattern.operation_label == label


def test_a_transaction_names_the_other_tables_that_it_touches() -> None:
    assert (
        access_patterns(Follows)["follow"].operation_label
        == "TransactWriteItems with example-follow-counts"
    )


def test_a_pattern_keeps_the_name_and_the_signature_of_its_method() -> None:
    assert Fixtures.get.__name__ == "get"
    assert list(Fixtures.get.__annotations__) == ["match_id", "return"]
    assert list(access_patterns(Fixtures)) == [
        "get",
        "get_many",
        "of_league",
        "live",
        "at_venue",
        "put_many",
        "archive",
    ]


def test_a_subclass_may_replace_a_pattern_or_hide_it() -> None:
    class Quiet(Fixtures):
        @access("Get fixture quietly", GetItem(key=FIXTURE_KEY), table=FIXTURES)
        async def get(self, match_id: str) -> Item | None:
            return await self.store.get(FIXTURES, {"matchId": match_id})

        live = None  # type: ignore[assignment]

    assert access_patterns(Quiet)["get"].name == "Get fixture quietly"
    assert "live" not in access_patterns(Quiet)
    assert access_patterns(Quiet)["archive"] is access_patterns(Fixtures)["archive"]


async def test_a_transaction_may_use_only_declared_tables(store: Store) -> None:
    """The example's pattern declares both tables."""
    await Follows(store).follow("m001", "ann", expires_at=5)

    class Counts:
        @access("Get count", GetItem(key=FIXTURE_KEY), table=FOLLOW_COUNTS)
        async def get(self) -> Item | None:
            return await store.get(FOLLOW_COUNTS, {"matchId": "m001"})

    assert await Counts().get() == {"matchId": "m001", "followers": 1}
