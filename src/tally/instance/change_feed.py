"""Event streams: the changes of tables as server-sent events, with exact replay.

    feed = ChangeFeed(ReadingLog(store), publish_reading, hub, clock)
    source = EventSource(topic, (feed,), feed.log, hardware_id, encode_reading, snapshot)
    return EventStream(hub, source, request)

A feed reads the log of one table, once per process, and only while streams need it. The id of an
event is the position of its change. A client that reconnects with `Last-Event-ID` reads what it
missed from the log, whichever process it was connected to, and continues with the feed: events that
both contain are recognised by their sequence numbers. If the position is too old or unknown, the
client receives a `snapshot` and the events after it.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from tally.errors import Unavailable
from tally.kit import logs
from tally.kit.clock import Clock
from tally.kit.event_stream import ReadState
from tally.kit.hub import Hub, StreamSubscription, encode_event
from tally.kit.tasks import cancel_all
from tally.store.change_logs import ChangeLog
from tally.store.changes import START, Change
from tally.store.errors import PositionExpired, PositionUnknown

# The HTTP edge of a backend uses these types without the rest of the store.
__all__ = ["Change", "ChangeFeed", "ChangeLog", "EventSource"]

PublishChange: TypeAlias = Callable[[Change], Awaitable[object]]
# Returns the server-sent event of a change; empty if the change is none of the stream's.
EncodeChange: TypeAlias = Callable[[Change], bytes]

SNAPSHOT: Final = "snapshot"
RETRY_SECONDS: Final = 1.0
REPLAY_PAGE: Final = 256
MAX_REPLAYED: Final = 100_000
_SNAPSHOT_ATTEMPTS: Final = 3

_log = logs.logger()


class ChangeFeed:
    """Publishes the changes of a table while streams of this process are open."""

    def __init__(self, log: ChangeLog, publish: PublishChange, hub: Hub, clock: Clock) -> None:
        self.log = log
        self._publish = publish
        self._hub = hub
        self._clock = clock
        self._subscriptions: set[StreamSubscription] = set()
        self._task: asyncio.Task[None] | None = None
        self._started: asyncio.Future[None] | None = None

    @asynccontextmanager
    async def following(self, subscription: StreamSubscription) -> AsyncIterator[None]:
        """Publish every change from now on, until the last stream leaves."""
        self._subscriptions.add(subscription)
        try:
            if self._task is None or self._task.done() or self._started is None:
                self._started = asyncio.get_running_loop().create_future()
                self._task = asyncio.create_task(self._run(self._started), name="change-feed")
            await asyncio.shield(self._started)
            yield
        finally:
            self._subscriptions.discard(subscription)
            if not self._subscriptions and self._task is not None:
                task, self._task = self._task, None
                await cancel_all([task])

    async def _run(self, started: "asyncio.Future[None]") -> None:
        try:
            position = (await self.log.read("", None, 1)).position
        except BaseException as error:  # noqa: BLE001  (raised to the streams that wait)
            if not started.done():
                started.set_exception(error)
                started.exception()  # retrieved even if no stream waits any more
            return
        started.set_result(None)
        try:
            await self._follow(position)
        except Exception as error:  # noqa: BLE001  (clients reconnect and replay)
            _log.error("Change feed failed", action="change_feed_failed", error=error)
            for subscription in tuple(self._subscriptions):
                self._hub.reconnect(subscription)

    async def _follow(self, position: str) -> None:
        is_available = True
        while True:
            try:
                async with aclosing(self.log.follow(position)) as changes:
                    async for change in changes:
                        await self._publish(change)
                        position, is_available = change.position, True
            except Unavailable as error:
                if is_available:
                    is_available = False
                    _log.warning("Change feed interrupted", action="feed_interrupted", error=error)
                await self._clock.sleep(RETRY_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSource:
    """An event stream of one partition; with `state`, also a state stream.

    `feeds` publish to the topic. `snapshot` returns what a client needs that cannot continue.
    """

    topic: str
    feeds: tuple[ChangeFeed, ...]
    log: ChangeLog
    partition: Any
    encode: EncodeChange
    snapshot: Callable[[], Awaitable[object]]
    state: ReadState | None = None

    @asynccontextmanager
    async def following(self, subscription: StreamSubscription) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for feed in self.feeds:
                await stack.enter_async_context(feed.following(subscription))
            yield

    async def opening(
        self, subscription: StreamSubscription, last_event_id: str | None
    ) -> AsyncGenerator[bytes, None]:
        """Yield the missed events or a snapshot, and the state."""
        is_replayed = False
        # No event has the id START, which would replay everything that the log keeps.
        if last_event_id and last_event_id != START:
            try:
                async with aclosing(self._replay(subscription, last_event_id)) as pages:
                    async for page in pages:
                        is_replayed = page is None
                        yield page or b""
            except (PositionExpired, PositionUnknown):
                pass  # the snapshot contains what was missed
        if not is_replayed:
            yield await self._take_snapshot(subscription)
        if self.state is not None:
            yield encode_event(*await self.state())

    async def _replay(
        self, subscription: StreamSubscription, position: str
    ) -> AsyncGenerator[bytes | None, None]:
        """Yield the events after a position page by page, and None at their end."""
        for _ in range(MAX_REPLAYED // REPLAY_PAGE):
            page = await self.log.read(self.partition, position, REPLAY_PAGE)
            if page.is_complete:
                subscription.start(page.sequence)
            if events := b"".join(map(self.encode, page.changes)):
                yield events
            if page.is_complete:
                yield None
                return
            position = page.position

    async def _take_snapshot(self, subscription: StreamSubscription) -> bytes:
        """Return a snapshot as of a position; a change in between is a reason to take another."""
        attempts = 0
        while True:
            attempts += 1
            page = await self.log.read(self.partition, None, 1)
            content = await self.snapshot()
            if attempts == _SNAPSHOT_ATTEMPTS or not await self._has_changed(page.position):
                subscription.start(page.sequence)
                return encode_event(SNAPSHOT, content, page.position)

    async def _has_changed(self, position: str) -> bool:
        try:
            page = await self.log.read(self.partition, position, REPLAY_PAGE)
        except (PositionExpired, PositionUnknown):
            return False  # this engine cannot tell
        return not page.is_complete or any(map(self.encode, page.changes))
