"""The DynamoDB engine reads streams whose shards split, close, expire and are throttled."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally.kit.clock import ManualClock
from tally.store.api import Put
from tally.store.changes import START, Change
from tally.store.dynamodb.engine import DynamoDBEngine
from tally.store.dynamodb.stream_reader import StreamReader
from tally.store.errors import PositionExpired, PositionUnknown, StreamNotFound
from tests.store.emulators import local_engine
from tests.store.fake_dynamodb import closed, refusal, throttled
from tests.store.fake_streams import CREATED_AT, StreamsService, fake_streams
from tests.store.streams import BOTH, next_changes

DAY = 86_400


class EagerClock(ManualClock):
    """A clock whose sleepers wake at once; time passes by what they slept."""

    def __init__(self) -> None:
        super().__init__(datetime.fromtimestamp(CREATED_AT, UTC))

    async def sleep(self, seconds: float) -> None:
        self._elapsed += seconds
        await asyncio.sleep(0)


@pytest.fixture
async def service() -> AsyncIterator[StreamsService]:
    async with fake_streams() as running:
        yield running


@pytest.fixture
def clock() -> EagerClock:
    return EagerClock()


@pytest.fixture
async def engine(service: StreamsService, clock: EagerClock) -> AsyncIterator[DynamoDBEngine]:
    async with service.engine(clock) as opened:
        yield opened


def keys(changes: list[Change]) -> list[str]:
    return [change.key["id"] for change in changes]


async def test_children_are_read_after_their_parent(
    engine: DynamoDBEngine, service: StreamsService
) -> None:
    """Also grandchildren; the description of the stream has several pages."""
    for number in range(7):
        service.write("a", f"a{number}")
    service.split("a", "b", "c")
    service.write("b", "b0")
    service.split("b", "d", "e", "f")
    for shard in "cdef":
        service.write(shard, f"{shard}0")
    found = keys(await next_changes(engine, BOTH, 12))
    assert found[:7] == [f"a{number}" for number in range(7)]
    assert sorted(found[7:]) == ["b0", "c0", "d0", "e0", "f0"]
    assert found.index("b0") < min(found.index(key) for key in ("d0", "e0", "f0"))


async def test_a_split_is_noticed_while_following(
    engine: DynamoDBEngine, service: StreamsService
) -> None:
    async with asyncio.timeout(20), aclosing(engine.changes(BOTH, START)) as changes:
        service.write("a", "a0")
        assert (await anext(changes)).key["id"] == "a0"
        service.write("a", "a1")
        service.split("a", "b")
        service.write("b", "b0")
        assert keys([await anext(changes), await anext(changes)]) == ["a1", "b0"]


async def test_a_position_covers_all_shards(
    engine: DynamoDBEngine, service: StreamsService
) -> None:
    """Reading from any position gives exactly the changes that were not read before it."""
    service.split("a", "b", "c", "d")
    for number in range(5):
        for shard in "bcd":
            service.write(shard, f"{shard}{number}")
    service.split("b", "e", "f")
    service.write("f", "f0")
    changes = await next_changes(engine, BOTH, 16)
    assert len({change.position for change in changes}) == 16
    for number, change in enumerate(changes[:-1]):
        rest = await next_changes(engine, BOTH, 15 - number, change.position)
        assert {one.id for one in rest} == {one.id for one in changes[number + 1 :]}
    assert max(len(change.position) for change in changes) < 120


async def test_an_expired_iterator_is_replaced(
    engine: DynamoDBEngine, service: StreamsService
) -> None:
    expired = refusal("ExpiredIteratorException", "the iterator has expired")
    async with asyncio.timeout(20), aclosing(engine.changes(BOTH, START)) as changes:
        service.write("a", "a0")
        await anext(changes)
        service.fail("GetRecords", expired)
        service.write("a", "a1")
        assert (await anext(changes)).key["id"] == "a1"


async def test_a_throttled_reader_backs_off_and_continues(
    engine: DynamoDBEngine, service: StreamsService
) -> None:
    """More than two readers of a shard are throttled."""
    service.write("a", "a0")
    service.fail("DescribeStream", throttled())
    service.fail("GetShardIterator", closed)
    service.fail("GetRecords", refusal("LimitExceededException", "two readers"), throttled())
    assert keys(await next_changes(engine, BOTH, 1)) == ["a0"]


async def test_a_position_expires_with_the_records_after_it(
    engine: DynamoDBEngine, service: StreamsService
) -> None:
    for number in range(8):
        service.write("a", f"a{number}")
    changes = await next_changes(engine, BOTH, 8)
    service.trim("a", 6)
    assert keys(await next_changes(engine, BOTH, 2)) == ["a6", "a7"]
    with pytest.raises(PositionExpired, match="streamed: changes after the position were trimmed"):
        await next_changes(engine, BOTH, 1, changes[3].position)
    assert keys(await next_changes(engine, BOTH, 2, changes[5].position)) == ["a6", "a7"]


async def test_a_position_expires_with_its_shard(
    engine: DynamoDBEngine, service: StreamsService
) -> None:
    service.write("a", "a0")
    [change] = await next_changes(engine, BOTH, 1)
    service.split("a", "b")
    service.write("b", "b0")
    del service.shards["a"]
    with pytest.raises(PositionExpired):
        await next_changes(engine, BOTH, 1, change.position)
    assert keys(await next_changes(engine, BOTH, 1)) == ["b0"]


async def test_a_position_before_a_shard_expires_after_a_day(
    engine: DynamoDBEngine, service: StreamsService, clock: EagerClock
) -> None:
    """The service skips trimmed records at the beginning of a shard without an error.

    An open shard is younger.
    """
    position = await engine.stream_position(BOTH)
    service.write("a", "a0")
    await clock.advance(DAY + 1)
    assert keys(await next_changes(engine, BOTH, 1, position)) == ["a0"]
    service.split("a", "b")
    with pytest.raises(PositionExpired):
        await next_changes(engine, BOTH, 1, position)


async def test_a_consumer_that_is_overtaken_by_trimming_is_stopped(
    engine: DynamoDBEngine, service: StreamsService
) -> None:
    for number in range(8):
        service.write("a", f"a{number}")
    async with asyncio.timeout(20), aclosing(engine.changes(BOTH, START)) as changes:
        await anext(changes)
        service.trim("a", 6)
        with pytest.raises(PositionExpired):
            async for _ in changes:
                pass


async def test_a_record_that_is_trimmed_before_it_is_read_is_no_gap_after_start(
    engine: DynamoDBEngine, service: StreamsService
) -> None:
    service.write("a", "a0")
    service.fail("GetRecords", refusal("TrimmedDataAccessException", "trimmed"))
    assert keys(await next_changes(engine, BOTH, 1)) == ["a0"]


@pytest.mark.parametrize("is_enabled", [False, True], ids=["off", "off and on"])
async def test_a_consumer_ends_with_its_stream(
    engine: DynamoDBEngine, service: StreamsService, is_enabled: bool
) -> None:
    expected = PositionUnknown if is_enabled else StreamNotFound
    async with asyncio.timeout(20), aclosing(engine.changes(BOTH, START)) as changes:
        service.write("a", "a0")
        await anext(changes)
        service.shards["a"].is_open = False
        service.is_enabled, service.label = is_enabled, "2031-01-01T00:00:00.000"
        with pytest.raises(expected, match="streamed"):
            await anext(changes)


async def test_the_deletion_of_an_expired_item_is_marked(
    engine: DynamoDBEngine, service: StreamsService
) -> None:
    """The service names itself as the one who deleted it."""
    ttl = {"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"}
    service.write("a", "kept", userIdentity={"Type": "User", "PrincipalId": "ann"})
    service.write("a", "expired", eventName="REMOVE", userIdentity=ttl)
    assert [change.is_expiry for change in await next_changes(engine, BOTH, 2)] == [False, True]


@pytest.mark.judge
async def test_dynamodb_local_marks_the_deletion_of_an_expired_item() -> None:
    """It deletes expired items a few seconds later."""
    expired = {"id": "expired", "at": "1", "expires": int(time.time()) - 7_200}
    async with local_engine() as engine:
        await engine.create_table(BOTH)
        await engine.put(Put(BOTH, expired))
        async with asyncio.timeout(180), aclosing(engine.changes(BOTH, START)) as changes:
            inserted, removed = await anext(changes), await anext(changes)
    assert (inserted.kind, inserted.is_expiry) == ("INSERT", False)
    assert (removed.kind, removed.is_expiry, removed.old) == ("REMOVE", True, expired)


@pytest.mark.parametrize("existing", [0, 2, 20])
async def test_the_last_position_is_after_all_changes(
    engine: DynamoDBEngine, service: StreamsService, existing: int
) -> None:
    """Of every open shard, and also if its records have several pages."""
    service.split("a", "b", "c")
    for number in range(existing):
        service.write("b", f"b{number}")
    position = await engine.stream_position(BOTH)
    service.write("b", "next b")
    service.write("c", "next c")
    assert sorted(keys(await next_changes(engine, BOTH, 2, position))) == ["next b", "next c"]


async def test_empty_pages_before_the_records_of_a_shard_hide_none(
    engine: DynamoDBEngine, service: StreamsService
) -> None:
    """The service may need several requests to get to the records of a quiet shard."""
    for number in range(7):
        service.write("a", f"a{number}")
    service.empty_pages = 4
    position = await engine.stream_position(BOTH)
    first = await next_changes(engine, BOTH, 1, START)
    page = await engine.read_changes(BOTH, "a6", after=first[0].position, limit=10)
    assert (keys([*page.changes]), page.is_complete) == (["a6"], True)
    service.split("a", "b", "c")
    service.write("b", "b0")
    page = await engine.read_changes(BOTH, "b0", after=first[0].position, limit=10)
    assert keys([*page.changes]) == ["b0"]
    assert keys(await next_changes(engine, BOTH, 1, position)) == ["b0"]


async def test_a_replay_that_finds_no_end_is_refused(
    engine: DynamoDBEngine, service: StreamsService
) -> None:
    """A client then gets a snapshot, instead of a part of what it missed."""
    service.write("a", "a0")
    service.write("a", "a1")
    [first] = await next_changes(engine, BOTH, 1, START)
    await engine.stream_position(BOTH)
    service.empty_pages = 1_000_000
    with pytest.raises(PositionExpired):
        await engine.read_changes(BOTH, "a1", after=START, limit=10)
    assert first.key["id"] == "a0"


async def test_the_last_position_of_a_busy_shard_does_not_need_its_history(
    engine: DynamoDBEngine, service: StreamsService, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3_000):
        service.write("a", f"a{number}")
    reply = service._next_reply

    def write_meanwhile(request: Any) -> Any:
        if request.operation == "GetRecords":
            service.write("a", "busy")
        return reply(request)

    monkeypatch.setattr(service, "_next_reply", write_meanwhile)
    position = await engine.stream_position(BOTH)
    assert service.requests["GetRecords"] < 10
    assert keys(await next_changes(engine, BOTH, 1, position)) == ["busy"]


async def test_consumers_of_a_process_share_one_reader(
    engine: DynamoDBEngine, service: StreamsService, clock: EagerClock
) -> None:
    """A shard allows two readers: fifty consumers poll it about once a second together."""
    position = await engine.stream_position(BOTH)
    async with AsyncExitStack() as stack:
        followers = [
            await stack.enter_async_context(aclosing(engine.changes(BOTH, position)))
            for _ in range(50)
        ]
        for number in range(3):
            service.write("a", f"a{number}")
            before, at = service.requests["GetRecords"], clock.monotonic()
            async with asyncio.timeout(20):
                found = await asyncio.gather(*map(anext, followers))
            assert keys(found) == [f"a{number}"] * 50
            polls = service.requests["GetRecords"] - before
            assert polls <= clock.monotonic() - at + 3


async def test_a_consumer_continues_within_a_page_that_others_have_read(
    engine: DynamoDBEngine, service: StreamsService
) -> None:
    position = await engine.stream_position(BOTH)
    async with asyncio.timeout(20), aclosing(engine.changes(BOTH, position)) as changes:
        for number in range(3):
            service.write("a", f"a{number}")
        first, *rest = [await anext(changes) for _ in range(3)]
        before = service.requests["GetShardIterator"]
        assert await next_changes(engine, BOTH, 2, first.position) == rest
        assert service.requests["GetShardIterator"] == before


async def test_many_consumers_that_connect_at_once_share_their_requests(
    engine: DynamoDBEngine, service: StreamsService
) -> None:
    """DescribeStream allows ten requests per second; also when a shard ends for all of them."""
    for number in range(4):
        service.write("a", f"a{number}")
    positions = await asyncio.gather(*(engine.stream_position(BOTH) for _ in range(200)))
    service.split("a", "b")
    service.write("b", "b0")
    async with asyncio.timeout(60):
        found = await asyncio.gather(
            *(next_changes(engine, BOTH, 1, position) for position in positions)
        )
    assert {change.key["id"] for changes in found for change in changes} == {"b0"}
    assert service.requests["DescribeStream"] < 20


_STEPS = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 7)),
    st.tuples(st.just("write"), st.integers(0, 7)),
    st.tuples(st.just("split"), st.integers(0, 7)),
    st.tuples(st.just("fail"), st.sampled_from(["expired", "throttled", "closed"])),
    st.tuples(st.just("read"), st.integers(1, 6)),
    st.tuples(st.just("move"), st.booleans()),
)
_FAILURES = {
    "expired": refusal("ExpiredIteratorException", "the iterator has expired"),
    "throttled": throttled(),
    "closed": closed,
}


class Partitions:
    """Assigns the keys 0 to 7 to open shards, and splits them."""

    def __init__(self, service: StreamsService) -> None:
        self._service = service
        self._shards = dict.fromkeys(range(8), "a")
        self.written: dict[str, list[int]] = {str(key): [] for key in range(8)}
        self.count = 0

    def write(self, key: int) -> None:
        self._service.write(self._shards[key], str(key), number=self.count)
        self.written[str(key)].append(self.count)
        self.count += 1

    def split(self, key: int) -> None:
        parent = self._shards[key]
        members = [one for one, shard in self._shards.items() if shard == parent]
        halves = [members[: len(members) // 2], members[len(members) // 2 :]]
        children = [f"{parent}{number}" for number, half in enumerate(halves) if half]
        self._service.split(parent, *children)
        for child, half in zip(children, filter(None, halves), strict=True):
            self._shards |= dict.fromkeys(half, child)


async def run_steps(
    service: StreamsService, engine: DynamoDBEngine, steps: list[tuple[Any, ...]]
) -> None:
    """Read while shards split; a consumer moves to another process, with or without a crash."""
    service.restart()
    engine._streams = StreamReader(engine._streams._requests)
    partitions, seen = Partitions(service), dict[str, Change]()
    order: list[Change] = []
    saved, saved_count, position = START, 0, START
    for step in [*steps, ("read", 10**6)]:
        if step[0] == "write":
            partitions.write(step[1])
        elif step[0] == "split":
            partitions.split(step[1])
        elif step[0] == "fail":
            service.fail("GetRecords", _FAILURES[step[1]])
        elif step[0] == "move":
            if step[1]:
                position = saved
                del order[saved_count:]
            engine._streams = StreamReader(engine._streams._requests)  # of another process
        elif count := min(step[1], partitions.count - len(order)):
            found = await next_changes(engine, BOTH, count, position)
            order += found
            seen |= {change.id: change for change in found}
            position = found[-1].position
            saved, saved_count = (position, len(order)) if step[1] % 2 else (saved, saved_count)
    numbers = [(change.key["id"], int((change.new or {})["n"])) for change in order]
    for key, written in partitions.written.items():
        of_key = [number for found, number in numbers if found == key]
        assert of_key == sorted(of_key)
        assert len({*of_key}) == len(of_key) == len(written)
    assert len(seen) == partitions.count


@pytest.mark.soak
def test_every_change_of_splitting_shards_is_seen_once_and_in_order_per_key() -> None:
    with asyncio.Runner() as runner:  # an engine takes longer to open than an example to run
        stack = AsyncExitStack()
        service = runner.run(stack.enter_async_context(fake_streams()))
        engine = runner.run(stack.enter_async_context(service.engine(EagerClock())))

        @given(st.lists(_STEPS, max_size=40))
        def check(steps: list[tuple[Any, ...]]) -> None:
            runner.run(run_steps(service, engine, steps))

        check()
        runner.run(stack.aclose())
