"""Server-sent events for many clients at once: publish to a topic, and everyone who listens gets it.

A message is serialised once, however many clients there are. Each client has a bounded queue: one
that does not keep up is dropped, never waited for. A client that comes back with `Last-Event-ID`
gets what it missed from the topic's ring of recent messages; if that is not enough, or it was with
another process before, it gets a snapshot instead. At shutdown everyone is told when to reconnect.
The HTTP side is `tally.kit.event_stream`.

    hub.publish(f"match:{match_id}", "display", display_state)
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from tally.errors import Unavailable
from tally.kit.clock import Clock
from tally.kit.metrics import Metrics

PING: Final = b": ping\n\n"
# Of one client, in bytes, before what comes next: a slow one must not cost more memory than this
# and one chunk.
MAX_WAITING: Final = 1024 * 1024


class TopicMessage:
    """An event of a topic; its bytes are made when first needed, and then shared by all clients."""

    __slots__ = ("_bytes", "_content", "_event", "_id", "number")

    def __init__(self, origin: str, number: int, event: str, content: object) -> None:
        self.number = number
        self._id = f"{origin}-{number}"
        self._event = event
        self._content = content
        self._bytes: bytes | None = None

    def encoded(self) -> bytes:
        if self._bytes is None:
            self._bytes = encode_event(self._event, self._content, self._id)
            self._content = None
        return self._bytes


def encode_event(event: str, content: object, identity: str | None = None) -> bytes:
    """An event as it goes over the wire; JSON has no line ends of its own, so one data line is enough."""
    head = f"id: {identity}\nevent: {event}\ndata: " if identity else f"event: {event}\ndata: "
    return head.encode() + msgspec.json.encode(content) + b"\n\n"


class StreamSubscription:
    """What waits for one client.

    `needs_snapshot` says that it does not know all that went before.
    """

    def __init__(self, capacity: int, replay: bytes | None, position: str) -> None:
        self.needs_snapshot = replay is None
        self.position = position
        self.on_dropped: Callable[[], object] = noop
        self._capacity = capacity
        self._waiting: deque[bytes] = deque([replay] if replay else [])
        self._size = 0
        self._ready = asyncio.Event()
        self._is_over = False

    def put(self, chunk: bytes) -> bool:
        """Queue `chunk`, or give the client up if it is too far behind already: so many chunks, or so many bytes."""
        if len(self._waiting) >= self._capacity or self._size >= MAX_WAITING:
            self._waiting.clear()
            self._is_over = True
            self._ready.set()
            self.on_dropped()
            return False
        self._waiting.append(chunk)
        self._size += len(chunk)
        self._ready.set()
        return True

    def end(self, farewell: bytes) -> None:
        """Let the client read what waits for it, and `farewell`, and then nothing more."""
        self._waiting.append(farewell)
        self._is_over = True
        self._ready.set()

    async def next(self) -> bytes:
        """All that waits, in one piece; empty when it is over."""
        while not self._waiting and not self._is_over:
            self._ready.clear()
            await self._ready.wait()
        chunk = b"".join(self._waiting)
        self._waiting.clear()
        self._size = 0
        return chunk


def noop() -> None:
    pass


class Topic:
    """Those who listen to one topic, and its recent messages."""

    def __init__(self, number: int, history: int) -> None:
        self.subscriptions: set[StreamSubscription] = set()
        self.expires_at: float | None = None
        self._recent: deque[TopicMessage] = deque(maxlen=history)
        # Of the messages up to this one, not all are here.
        self._forgotten = number

    def append(self, message: TopicMessage) -> None:
        if len(self._recent) == self._recent.maxlen:
            self._forgotten = self._recent[0].number
        self._recent.append(message)

    def since(self, number: int) -> bytes | None:
        """What came after message `number`, or None if that is not known for certain."""
        if number < self._forgotten:
            return None
        return b"".join(message.encoded() for message in self._recent if message.number > number)


class Hub:
    """All topics of a process; each is kept while someone listens, and for `linger` seconds after the last one left."""

    def __init__(
        self,
        clock: Clock,
        metrics: Metrics,
        *,
        queue: int = 64,
        history: int = 64,
        ping_seconds: float = 15,
        linger: float = 30,
        reconnect_ms: tuple[int, int] = (500, 3000),
        chance: random.Random | None = None,
    ) -> None:
        self._clock = clock
        self._metrics = metrics
        self._queue = queue
        self._history = history
        self._ping_seconds = ping_seconds
        self._linger = linger
        self._reconnect_ms = reconnect_ms
        self._chance = chance or random.Random()  # noqa: S311  (spreads reconnections; nothing secret)
        # Numbers of another process, or of this one before a restart, mean nothing here.
        self._origin = f"{self._chance.getrandbits(48):012x}"
        self._number = 0
        self._topics: dict[str, Topic] = {}
        self._is_closed = False

    def publish(self, topic: str, event: str, content: object) -> None:
        """Send to all who listen to `topic`; `content` must not change afterwards.

        Nearly free where nobody listens.
        """
        self.publish_all(topic, event, (content,))

    def publish_all(self, topic: str, event: str, contents: Iterable[object]) -> None:
        """Send several in one piece: a client that keeps up is not dropped for how many they are.

        `contents` may make each of them when it is asked for it, which is never where nobody
        listens.
        """
        held = self._topics.get(topic)
        if held is None:
            return
        messages = [self._message(held, event, content) for content in contents]
        if held.subscriptions:
            self._deliver(held, b"".join(message.encoded() for message in messages))

    def _message(self, topic: Topic, event: str, content: object) -> TopicMessage:
        self._number += 1
        message = TopicMessage(self._origin, self._number, event, content)
        topic.append(message)
        self._metrics.stream_messages.inc()
        return message

    def is_active(self, topic: str) -> bool:
        """Whether anybody listens, or has until a moment ago and may come back: whether it is worth making news for."""
        return topic in self._topics

    def subscribe(self, topic: str, last_event_id: str | None = None) -> StreamSubscription:
        """Start to listen; what came after `last_event_id` waits already, if it is known."""
        if self._is_closed:
            raise Unavailable("The server is stopping", retry_after=1)
        held = self._topics.get(topic)
        if held is None or self._is_expired(held):
            # What was published before had no number: nobody's last event, however late, is known
            # to be the last.
            self._number += 1
            held = self._topics[topic] = Topic(self._number, self._history)
        held.expires_at = None
        replay = self._replay(held, last_event_id or "")
        subscription = StreamSubscription(self._queue, replay, f"{self._origin}-{self._number}")
        held.subscriptions.add(subscription)
        self._metrics.stream_clients.inc()
        return subscription

    def unsubscribe(self, topic: str, subscription: StreamSubscription) -> None:
        held = self._topics.get(topic)
        if held is not None and subscription in held.subscriptions:
            self._leave(held, subscription)

    def close(self) -> None:
        """Tell every client when to come back, each at a moment of its own, and end its stream."""
        self._is_closed = True
        for topic in self._topics.values():
            for subscription in topic.subscriptions:
                wait = self._chance.randint(*self._reconnect_ms)
                subscription.end(
                    f"retry: {wait}\n".encode() + encode_event("reconnect", {"retryMs": wait})
                )

    async def run(self) -> None:
        """Keep connections alive through proxies, find those that are dead, and forget old topics; until cancelled."""
        while True:
            await self._clock.sleep(self._ping_seconds)
            for name, topic in list(self._topics.items()):
                self._deliver(topic, PING)
                if self._is_expired(topic):
                    del self._topics[name]

    def _replay(self, topic: Topic, last_event_id: str) -> bytes | None:
        origin, _, number = last_event_id.rpartition("-")
        is_ours = (
            origin == self._origin and number.isascii() and number.isdigit() and len(number) < 19
        )
        return topic.since(int(number)) if is_ours else None

    def _deliver(self, topic: Topic, chunk: bytes) -> None:
        too_slow = [
            subscription for subscription in topic.subscriptions if not subscription.put(chunk)
        ]
        for subscription in too_slow:
            self._leave(topic, subscription)
            self._metrics.stream_dropped.inc()

    def _leave(self, topic: Topic, subscription: StreamSubscription) -> None:
        topic.subscriptions.discard(subscription)
        self._metrics.stream_clients.dec()
        if not topic.subscriptions:
            topic.expires_at = self._clock.monotonic() + self._linger

    def _is_expired(self, topic: Topic) -> bool:
        return topic.expires_at is not None and topic.expires_at <= self._clock.monotonic()
