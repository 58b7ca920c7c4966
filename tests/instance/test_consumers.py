"""A named consumer handles every change, on one instance at a time, also after a crash."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import pytest

from tally.errors import NotFound, Unavailable
from tally.instance import consumers
from tally.instance.consumers import (
    ChangeHandler,
    ConsumerMetrics,
    HandlerRetries,
    NamedConsumer,
)
from tally.instance.repository.consumers import (
    DEAD_LETTERS,
    STREAM_CONSUMERS,
    ConsumerRepository,
)
from tally.kit.clock import SystemClock
from tally.kit.locks import LockLost
from tally.kit.metrics import Metrics
from tally.kit.tasks import cancel_all
from tally.store.access import GetRecords, access
from tally.store.api import Engine, Put
from tally.store.changes import Change
from tally.store.schema import S, Table
from tally.store.sqlite import open_sqlite
from tally.store.store import Store
from tests.embedded.harness import wait_until
from tests.log_capture import captured_log
from tests.store.emulators import dynamodb_local, engine_at, engines, given_url

ORDERS = Table("orders", S("id"), stream="NEW_AND_OLD_IMAGES")
NAME = "shipping"


@dataclass(frozen=True, slots=True)
class Orders:
    store: Store
    tables: ClassVar = (ORDERS,)

    @access("Follow orders", GetRecords(), table=ORDERS)
    async def changes(self, after: str | None) -> AsyncGenerator[Change, None]:
        async for change in self.store.changes(ORDERS, after=after):
            yield change


@dataclass(slots=True)
class Instance:
    """A consumer on its own instance; it fails on the ids in `failing`."""

    store: Store
    failing: set[str] = field(default_factory=set)
    handled: list[str] = field(default_factory=list)
    attempts: list[str] = field(default_factory=list)
    positions: list[str] = field(default_factory=list)
    metrics: Metrics = field(default_factory=Metrics)
    blocked: asyncio.Event | None = None

    @property
    def repository(self) -> ConsumerRepository:
        return ConsumerRepository(self.store)

    def consumer(self, handle: ChangeHandler | None = None) -> NamedConsumer:
        return NamedConsumer(
            NAME,
            Orders(self.store).changes,
            handle or self.handle,
            self.repository,
            SystemClock(),
            metrics=ConsumerMetrics(self.metrics),
            retries=HandlerRetries(attempts=3, initial_backoff=0.0),
        )

    async def handle(self, change: Change) -> None:
        self.attempts.append(change.key["id"])
        if self.blocked is not None:
            await self.blocked.wait()
        if change.key["id"] in self.failing:
            raise ValueError(f"no stock for {change.key['id']}")
        self.handled.append(change.key["id"])
        self.positions.append(change.position)

    def metric(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, {"consumer": NAME})


@pytest.fixture(autouse=True)
def short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "RETRY_SECONDS", 0.05)


@pytest.fixture(scope="module")
def local_url() -> Iterator[str]:
    """DynamoDB Local, started once; a consumer on it polls once a second."""
    with dynamodb_local() as url:
        yield url


@pytest.fixture(params=engines("local"))
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Engine]:
    opened: AbstractAsyncContextManager[Engine] = open_sqlite(tmp_path)
    if request.param != "sqlite":
        is_given = request.param == "given"
        url = str(given_url()) if is_given else request.getfixturevalue("local_url")
        opened = engine_at(url)
    async with opened as running:
        for table in (ORDERS, STREAM_CONSUMERS, DEAD_LETTERS):
            await running.create_table(table)
        yield running


@pytest.fixture
def store(engine: Engine) -> Store:
    return Store(engine)


async def place(engine: Engine, *ids: str) -> None:
    for order_id in ids:
        await engine.put(Put(ORDERS, {"id": order_id}))


@asynccontextmanager
async def running(consumer: NamedConsumer) -> AsyncIterator["asyncio.Task[None]"]:
    task = asyncio.create_task(consumer.run())
    try:
        yield task
    finally:
        await cancel_all([task])


async def until_saved(instance: Instance) -> None:
    """Wait until the position of the last handled change is stored."""
    async with asyncio.timeout(20):
        while await instance.repository.get_position(NAME) != instance.positions[-1]:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.01)


async def test_a_consumer_continues_after_a_restart(engine: Engine, store: Store) -> None:
    first, second = Instance(store), Instance(store)
    await place(engine, "a", "b")
    async with running(first.consumer()):
        await wait_until(lambda: first.handled == ["a", "b"])
        await place(engine, "c")
        await wait_until(lambda: len(first.handled) == 3)
        await until_saved(first)
    await place(engine, "d")
    async with running(second.consumer()):
        await wait_until(lambda: second.handled == ["d"])
        await until_saved(second)
        assert second.metric("tally_stream_consumer_lag_seconds") == 0
    assert first.handled == ["a", "b", "c"]
    assert second.metric("tally_stream_consumer_lag_seconds") is None


async def test_a_change_is_repeated_if_the_consumer_crashes_before_its_checkpoint(
    engine: Engine, store: Store
) -> None:
    first, second = Instance(store, blocked=asyncio.Event()), Instance(store)
    await place(engine, "a")
    async with running(first.consumer()):
        await wait_until(lambda: first.attempts == ["a"])
        assert (first.metric("tally_stream_consumer_lag_seconds") or 0) > 0
    assert first.handled == []
    async with running(second.consumer()):
        await wait_until(lambda: second.handled == ["a"])


async def test_one_instance_works_and_another_takes_over(engine: Engine, store: Store) -> None:
    first, second = Instance(store), Instance(store)
    successor = second.consumer()
    async with running(first.consumer()):
        await place(engine, "a")
        await wait_until(lambda: first.handled == ["a"])
        async with running(successor):
            await place(engine, "b")
            await wait_until(lambda: first.handled == ["a", "b"])
            assert second.handled == []
    async with running(successor):
        await place(engine, "c")
        await wait_until(lambda: second.handled[-1:] == ["c"])
    assert "c" not in first.handled


async def test_a_change_that_cannot_be_handled_becomes_a_dead_letter(
    engine: Engine, store: Store
) -> None:
    instance = Instance(store, failing={"bad"})
    consumer = instance.consumer()
    async with running(consumer):
        await place(engine, "a", "bad", "b")
        await wait_until(lambda: instance.handled == ["a", "b"])
    assert instance.attempts == ["a", "bad", "bad", "bad", "b"]
    assert instance.metric("tally_stream_dead_letters_total") == 1
    [letter] = await instance.repository.list_letters(NAME)
    assert letter.error == "ValueError: no stock for bad"
    assert letter.change.new == {"id": "bad"}
    with pytest.raises(ValueError, match="no stock"):
        await consumer.replay(letter.id)
    instance.failing.clear()
    await consumer.replay(letter.id)
    assert instance.handled == ["a", "b", "bad"]
    assert await instance.repository.list_letters(NAME) == []
    with pytest.raises(NotFound):
        await consumer.replay(letter.id)


async def test_a_dead_letter_that_is_too_large_has_no_images(engine: Engine, store: Store) -> None:
    instance = Instance(store, failing={"big"})
    for number in range(2):
        big = {"id": "big", "text": f"{number}" * 300_000}
        await engine.put(Put(ORDERS, big))
    async with running(instance.consumer()):
        await place(engine, "end")
        await wait_until(lambda: instance.handled == ["end"])
    letters = await instance.repository.list_letters(NAME)
    assert [letter.change.kind for letter in letters] == ["INSERT", "MODIFY"]
    assert [letter.change.new is None for letter in letters] == [False, True]


async def test_a_position_that_is_not_valid_is_a_gap(engine: Engine, store: Store) -> None:
    """The consumer continues with the oldest change that is kept, and reports the gap."""
    instance = Instance(store)
    await place(engine, "a")
    assert await instance.repository.acquire(NAME, "other", 0, 1)
    await instance.repository.checkpoint(NAME, "other", "0123456789ab.1.1.0")
    async with running(instance.consumer()):
        await wait_until(lambda: instance.handled == ["a"])
    assert instance.metric("tally_stream_consumer_gaps_total") == 1


async def test_a_gap_is_repaired_after_the_store_was_unavailable(
    engine: Engine, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = Instance(store)
    await place(engine, "a")
    assert await instance.repository.acquire(NAME, "other", 0, 1)
    await instance.repository.checkpoint(NAME, "other", "0123456789ab.1.1.0")
    checkpoint, failures = ConsumerRepository.checkpoint, [Unavailable("the disk is full")]

    async def fail_once(self: ConsumerRepository, *arguments: str) -> None:
        if failures:
            raise failures.pop()
        await checkpoint(self, *arguments)

    monkeypatch.setattr(ConsumerRepository, "checkpoint", fail_once)
    async with running(instance.consumer()):
        await wait_until(lambda: instance.handled == ["a"])
    assert failures == []


@pytest.mark.parametrize("missing", ["stream", "table"])
async def test_a_consumer_continues_when_its_stream_is_back(
    engine: Engine, store: Store, missing: str
) -> None:
    """An operator or an upgrade may turn the stream off, or drop the table, and create it again."""
    instance = Instance(store)
    await place(engine, "a")
    with captured_log() as log:
        async with running(instance.consumer()):
            await wait_until(lambda: instance.handled == ["a"])
            if missing == "stream":
                await engine.ensure_table(replace(ORDERS, stream=None))
            else:
                await engine.drop_table(ORDERS.name)
            await wait_until(lambda: "consumer_interrupted" in log.getvalue())
            await engine.ensure_table(ORDERS)
            await place(engine, "b")
            await wait_until(lambda: "b" in instance.handled)


@pytest.mark.parametrize(
    "error", [OSError("no file \udcff"), asyncio.CancelledError()], ids=["surrogate", "cancelled"]
)
async def test_a_handler_may_fail_with_any_error(
    engine: Engine, store: Store, error: BaseException
) -> None:
    instance = Instance(store)

    async def handle(change: Change) -> None:
        if change.key["id"] == "bad":
            raise error
        await instance.handle(change)

    async with running(instance.consumer(handle)):
        await place(engine, "bad", "b")
        await wait_until(lambda: instance.handled == ["b"])
    [letter] = await instance.repository.list_letters(NAME)
    assert letter.change.key == {"id": "bad"}


async def test_a_dead_letter_that_is_too_deep_has_no_images(engine: Engine, store: Store) -> None:
    instance = Instance(store, failing={"deep"})
    value: object = 1
    for _ in range(31):
        value = [value]
    await engine.put(Put(ORDERS, {"id": "deep", "value": value}))
    async with running(instance.consumer()):
        await place(engine, "end")
        await wait_until(lambda: instance.handled == ["end"])
    [letter] = await instance.repository.list_letters(NAME)
    assert letter.change.new is None


async def test_many_waiting_changes_share_a_checkpoint(
    engine: Engine, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = Instance(store)
    await place(engine, *(str(number) for number in range(60)))
    checkpoint, saved = ConsumerRepository.checkpoint, []

    async def count(self: ConsumerRepository, *arguments: str) -> None:
        saved.append(arguments)
        await checkpoint(self, *arguments)

    async def handle(change: Change) -> None:
        await asyncio.sleep(0.002)  # longer than a turn of the reader
        await instance.handle(change)

    monkeypatch.setattr(ConsumerRepository, "checkpoint", count)
    async with running(instance.consumer(handle)):
        await wait_until(lambda: len(instance.handled) == 60)
        await until_saved(instance)
    assert 1 <= len(saved) < 30


async def test_a_consumer_without_the_lock_cannot_move_the_position(store: Store) -> None:
    repository = ConsumerRepository(store)
    assert await repository.acquire(NAME, "first", 0, 1)
    assert await repository.acquire(NAME, "second", 10, 20)
    with pytest.raises(LockLost):
        await repository.checkpoint(NAME, "first", "x")


async def test_a_change_that_is_parked_again_by_another_reader_is_one_dead_letter(
    store: Store,
) -> None:
    """A position of DynamoDB covers all shards: it is long, and differs between readers."""
    repository = ConsumerRepository(store)
    first, second = (
        f"0123456789ab.AAAAAAAAaAQ~{'~'.join(8 * rest + 's' for _ in range(500))}" for rest in "ab"
    )
    for position in (first, second):
        change = Change("INSERT", {"id": "x"}, position, 1_900_000_000.0)
        await repository.park(NAME, change, "no stock", 1_900_000_000_000)
    [letter] = await repository.list_letters(NAME)
    assert letter.change.position == second
