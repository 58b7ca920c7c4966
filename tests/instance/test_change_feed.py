"""Event streams replay exactly: on any process, after any disconnect, or with a snapshot."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tally.errors import Unavailable
from tally.instance import change_feed
from tally.instance.change_feed import Change, ChangeFeed, EventSource
from tally.kit.clock import SystemClock
from tally.kit.hub import Hub, StreamSubscription, encode_event
from tally.kit.metrics import Metrics
from tally.store.api import Engine, Put
from tally.store.change_logs import change_log
from tally.store.changes import START
from tally.store.schema import S, Table
from tally.store.sqlite import SqliteEngine, open_sqlite
from tally.store.store import Store
from tests.embedded.harness import wait_until
from tests.kit.test_hub import parse
from tests.store.emulators import dynamodb_local, engine_at

NOTES = Table("notes", S("topic"), S("id"), stream="NEW_IMAGE")
NoteLog = change_log(NOTES, "notes", "tests")
WAIT_SECONDS = 20.0


def encode_note(change: Change) -> bytes:
    return b"" if change.new is None else encode_event("note", change.new["id"], change.position)


class Process:
    """What one process has: an engine on the shared directory, a hub and a feed."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.hub = Hub(SystemClock(), Metrics())
        self.log = NoteLog(Store(engine))
        self.feed = ChangeFeed(self.log, self._publish, self.hub, SystemClock())

    async def _publish(self, change: Change) -> None:
        self.hub.publish(change.key["topic"], change.sequence, encode_note(change))

    async def write(self, topic: str, name: str) -> None:
        await self.engine.put(Put(NOTES, {"topic": topic, "id": name}))

    def source(self, topic: str, snapshot: Callable[[], object]) -> EventSource:
        async def read() -> object:
            return snapshot()

        return EventSource(
            topic=topic,
            feeds=(self.feed,),
            log=self.log,
            partition=topic,
            encode=encode_note,
            snapshot=read,
        )


@asynccontextmanager
async def open_processes(folder: Path, count: int = 2) -> AsyncIterator[list[Process]]:
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(open_sqlite(folder)) for _ in range(count)]
        for engine in engines:
            await engine.ensure_table(NOTES)
        yield [Process(engine) for engine in engines]


@dataclass
class Client:
    """Keeps what it has received, and its last event id."""

    topic: str
    written: list[str]
    received: list[str] = field(default_factory=list)
    last_event_id: str = ""
    snapshots: int = 0
    _stack: AsyncExitStack | None = None
    _subscription: StreamSubscription | None = None

    async def connect(self, process: Process) -> None:
        await self.disconnect()
        self._stack = stack = AsyncExitStack()
        subscription = self._subscription = process.hub.subscribe(self.topic)
        stack.callback(process.hub.unsubscribe, self.topic, subscription)
        source = process.source(self.topic, lambda: list(self.written))
        await stack.enter_async_context(source.following(subscription))
        async for chunk in source.opening(subscription, self.last_event_id or None):
            self.take(chunk)

    async def disconnect(self) -> None:
        if self._stack is not None:
            await self._stack.aclose()
        self._stack = self._subscription = None

    def take(self, chunk: bytes) -> None:
        for event in parse(chunk.decode()):
            self.last_event_id = event["id"]
            if event["event"] == "snapshot":
                self.snapshots += 1
                self.received = json.loads(event["data"])
            else:
                self.received.append(json.loads(event["data"]))

    async def read(self) -> None:
        assert self._subscription is not None
        async with asyncio.timeout(WAIT_SECONDS):
            self.take(await self._subscription.next())

    async def complete(self) -> None:
        """Read until nothing is missing."""
        while len(self.received) < len(self.written):
            await self.read()


STEPS = st.lists(
    st.sampled_from(["write 0", "write 1", "connect 0", "connect 1", "disconnect", "read"]),
    max_size=30,
)


@given(steps=STEPS)
@settings(max_examples=30)
async def test_a_client_has_every_event_once_wherever_it_reconnects(steps: list[str]) -> None:
    """Any disconnects, any process, with events of other partitions in between."""
    with TemporaryDirectory() as folder:
        async with open_processes(Path(folder)) as processes:
            written: list[str] = []
            client = Client("a", written)
            await client.connect(processes[0])
            for step in [*steps, "connect 1"]:
                action, _, number = step.partition(" ")
                process = processes[int(number or 0)]
                if action == "write":
                    await process.write("b", f"{len(written)}")
                    await process.write("a", f"{len(written)}")
                    written.append(f"{len(written)}")
                elif action == "connect":
                    await client.connect(process)
                elif action == "disconnect":
                    await client.disconnect()
                elif client._subscription is not None and len(client.received) < len(written):
                    await client.read()
                assert client.received == written[: len(client.received)]
            await client.complete()
            assert client.received == written
            assert client.snapshots == 1, "every reconnect continued exactly"
            await client.disconnect()


async def test_a_long_absence_is_replayed_page_by_page(tmp_path: Path) -> None:
    async with open_processes(tmp_path) as (one, two):
        written: list[str] = []
        client = Client("a", written)
        await client.connect(one)
        await client.disconnect()
        for number in range(change_feed.REPLAY_PAGE + 10):
            await one.write("a", f"{number}")
            written.append(f"{number}")
        await client.connect(two)
        assert client.received == written
        assert client.snapshots == 1


@pytest.mark.parametrize("last_event_id", ["unknown", "0" * 12 + ".1.1.0", START])
async def test_an_unknown_position_gets_a_snapshot_and_what_follows(
    tmp_path: Path, last_event_id: str
) -> None:
    async with open_processes(tmp_path) as (one, two):
        written = ["0"]
        await one.write("a", "0")
        client = Client("a", written, last_event_id=last_event_id)
        await client.connect(two)
        assert (client.received, client.snapshots) == (["0"], 1)
        await one.write("a", "1")
        written.append("1")
        await client.complete()
        assert (client.received, client.snapshots) == (["0", "1"], 1)
        await client.disconnect()


async def test_a_change_during_the_snapshot_is_not_sent_twice(tmp_path: Path) -> None:
    """The snapshot is taken again, so that it contains the change."""
    async with open_processes(tmp_path, 1) as (process,):
        written: list[str] = []
        taken: list[list[str]] = []

        async def snapshot() -> list[str]:
            before = list(written)
            if not written:
                written.append("0")
                await process.write("a", "0")
            taken.append(before)
            return before

        source = EventSource(
            topic="a",
            feeds=(process.feed,),
            log=process.log,
            partition="a",
            encode=encode_note,
            snapshot=snapshot,
        )
        subscription = process.hub.subscribe("a")
        client = Client("a", written)
        async with source.following(subscription):
            async for chunk in source.opening(subscription, None):
                client.take(chunk)
            await process.write("a", "1")
            client.take(await subscription.next())
        assert taken == [[], ["0"]]
        assert client.received == ["0", "1"]


async def test_a_client_on_dynamodb_gets_no_event_that_its_snapshot_contains() -> None:
    """The feed of the process polls once a second, so it publishes the change later."""
    with dynamodb_local() as url:
        async with engine_at(url) as engine:
            await engine.create_table(NOTES)
            process, written = Process(engine), list[str]()
            first = Client("a", written)
            await first.connect(process)
            for number in range(3):
                written.append(f"{number}")
                await process.write("a", written[-1])
                await process.write("b", written[-1])
                client = Client("a", written)
                await client.connect(process)
                snapshot_id = client.last_event_id
                await client.disconnect()
                again = Client("a", written, [*written], last_event_id=snapshot_id)
                await again.connect(process)
                await client.connect(process)
                written.append(f"{number}, later")
                await process.write("a", written[-1])
                for one in (client, again):
                    await one.complete()
                    assert one.received == written
                    await one.disconnect()
            await first.complete()
            assert first.received == written
            await first.disconnect()


async def test_the_log_is_read_once_per_process_and_only_for_streams(tmp_path: Path) -> None:
    async with open_processes(tmp_path, 1) as (process,):
        clients = [Client("a", []) for _ in range(3)]
        for client in clients:
            await client.connect(process)
        assert isinstance(process.engine, SqliteEngine)
        streams = process.engine._streams
        await wait_until(lambda: len(streams._waiting) == 1)
        for client in clients:
            await client.disconnect()
        assert len(streams._waiting) == 0
        assert process.feed._task is None


async def test_streams_reconnect_if_the_feed_cannot_continue(tmp_path: Path) -> None:
    """They replay what the feed has missed."""
    async with open_processes(tmp_path, 1) as (process,):
        written: list[str] = []
        client = Client("a", written)
        subscription = process.hub.subscribe("a")

        async def fail(change: Change) -> None:
            raise RuntimeError(change.kind)

        broken = ChangeFeed(process.log, fail, process.hub, SystemClock())
        async with broken.following(subscription):
            await process.write("a", "0")
            async with asyncio.timeout(WAIT_SECONDS):
                [event] = parse((await subscription.next()).decode())
            assert event["event"] == "reconnect"
            assert await subscription.next() == b""
        written.append("0")
        await client.connect(process)
        assert client.received == ["0"]
        await client.disconnect()


async def test_a_stream_of_an_unavailable_store_is_refused(tmp_path: Path) -> None:
    async with open_processes(tmp_path, 1) as (process,):
        pass
    with pytest.raises(Unavailable):
        await Client("a", []).connect(process)
