"""Fan-out of server-sent events: delivers messages to the subscribers of a topic.

There are two kinds of messages. Every subscriber receives each *event*, in order. A *state*
replaces an earlier one that a client has not read yet. A message is serialised once for all
subscribers. Each subscriber has a bounded queue, and a subscriber that falls behind is dropped. At
shutdown, each client receives a reconnection delay.

    hub.publish_state(f"match:{match_id}", "display", display_state)

`tally.kit.event_stream` is the HTTP side; `tally.instance.change_feed` publishes the changes of
tables as events, and replays them for clients that reconnect.
"""

import asyncio
import math
import random
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from tally.errors import Unavailable
from tally.kit.clock import Clock
from tally.kit.metrics import Metrics

PING: Final = b": ping\n\n"
# Bytes queued per client before the next message: bounds the memory of a slow client.
MAX_QUEUED_BYTES: Final = 1024 * 1024
# States and keep-alive comments that a client may leave unread.
MAX_UNREAD: Final = 64


def encode_event(event: str, content: object, identity: str | None = None) -> bytes:
    """Encode an event as SSE; JSON contains no newlines, so one data line is enough."""
    head = f"id: {identity}\nevent: {event}\ndata: " if identity else f"event: {event}\ndata: "
    return head.encode() + msgspec.json.encode(content) + b"\n\n"


class StreamSubscription:
    """The queue of one client: events in order, and after them the latest state."""

    def __init__(self) -> None:
        self.on_dropped: Callable[[], object] = noop
        self.has_ended = False
        self._events: deque[tuple[float, bytes]] = deque()
        self._size = 0
        self._unread = 0
        self._state = b""
        self._after = 0
        self._ready = asyncio.Event()

    def start(self, after: int) -> None:
        """Discard events up to this sequence number: the client has them."""
        self._after = after
        self._events = deque(entry for entry in self._events if entry[0] > after)
        self._size = sum(len(chunk) for _, chunk in self._events)

    def put(self, sequence: float, chunk: bytes) -> bool:
        """Queue an event, or drop the client and return False if its queue is full."""
        if sequence <= self._after or self.has_ended:
            return True
        if self._size >= MAX_QUEUED_BYTES:
            return self._drop()
        self._events.append((sequence, chunk))
        self._size += len(chunk)
        self._ready.set()
        return True

    def put_state(self, chunk: bytes) -> bool:
        """Queue a state instead of an unread one, or drop the client and return False."""
        if self.has_ended:
            return True
        self._unread += 1
        if self._unread > MAX_UNREAD:
            return self._drop()
        self._state = chunk
        self._ready.set()
        return True

    def ping(self) -> bool:
        """Queue a keep-alive comment, or drop the client and return False."""
        self._unread += 1
        return self._drop() if self._unread > MAX_UNREAD else self.put(math.inf, PING)

    def _drop(self) -> bool:
        self._events.clear()
        self._state = b""
        self.has_ended = True
        self._ready.set()
        self.on_dropped()
        return False

    def end(self, final_chunk: bytes) -> None:
        """End the stream after the queued messages and `final_chunk`."""
        self._state += final_chunk
        self.has_ended = True
        self._ready.set()

    def end_or_abort(self, final_chunk: bytes) -> None:
        """End the stream; the second call aborts the connection of a client that does not read."""
        if self.has_ended:
            self.on_dropped()
        else:
            self.end(final_chunk)

    async def next(self) -> bytes:
        """Return all queued messages as one chunk; empty at the end of the stream."""
        while not self._events and not self._state and not self.has_ended:
            self._ready.clear()
            await self._ready.wait()
        chunk = b"".join([*(chunk for _, chunk in self._events), self._state])
        self._events.clear()
        self._size = self._unread = 0
        self._state = b""
        return chunk


def noop() -> None:
    pass


class Topic:
    """The subscribers of a topic, and the last state that was published."""

    __slots__ = ("state", "subscriptions")

    def __init__(self) -> None:
        self.subscriptions: set[StreamSubscription] = set()
        self.state = b""


class Hub:
    """The topics of a process. A topic exists while it has subscribers."""

    def __init__(
        self,
        clock: Clock,
        metrics: Metrics,
        *,
        ping_seconds: float = 15,
        reconnect_ms: tuple[int, int] = (500, 3000),
        rng: random.Random | None = None,
    ) -> None:
        self._clock = clock
        self._metrics = metrics
        self._ping_seconds = ping_seconds
        self._reconnect_ms = reconnect_ms
        self._rng = rng or random.Random()  # noqa: S311  (spreads reconnections; not a secret)
        self._topics: dict[str, Topic] = {}
        self._is_closed = False

    def publish(self, topic: str, sequence: int, chunk: bytes) -> None:
        """Send an encoded event to the subscribers of `topic` that do not have it yet.

        Sequence numbers increase within a topic.
        """
        state = self._topics.get(topic)
        if state is None or not chunk:
            return
        self._metrics.stream_messages.inc()
        self._deliver(topic, lambda subscription: subscription.put(sequence, chunk))

    def publish_state(self, topic: str, event: str, content: object) -> None:
        """Send a state to the subscribers of `topic`, unless it is the same as the last one.

        Without subscribers, this costs one dictionary look-up.
        """
        state = self._topics.get(topic)
        if state is None:
            return
        chunk = encode_event(event, content)
        if chunk == state.state:
            return
        state.state = chunk
        self._metrics.stream_messages.inc()
        self._deliver(topic, lambda subscription: subscription.put_state(chunk))

    def is_active(self, topic: str) -> bool:
        """Whether the topic has subscribers."""
        return topic in self._topics

    def active_topics(self, prefix: str) -> list[str]:
        """Return the topics with subscribers that start with `prefix`."""
        return [topic for topic in self._topics if topic.startswith(prefix)]

    def subscriber_count(self, topic: str) -> int:
        state = self._topics.get(topic)
        return 0 if state is None else len(state.subscriptions)

    def subscribe(self, topic: str) -> StreamSubscription:
        """Add a subscriber; raise Unavailable during shutdown."""
        if self._is_closed:
            raise Unavailable("The server is shutting down", retry_after=1)
        subscription = StreamSubscription()
        self._topics.setdefault(topic, Topic()).subscriptions.add(subscription)
        self._metrics.stream_clients.inc()
        return subscription

    def unsubscribe(self, topic: str, subscription: StreamSubscription) -> None:
        state = self._topics.get(topic)
        if state is None or subscription not in state.subscriptions:
            return
        state.subscriptions.discard(subscription)
        self._metrics.stream_clients.dec()
        if not state.subscriptions:
            del self._topics[topic]

    def end(self, topic: str, event: str, content: object) -> None:
        """End all streams of a topic with an event; a second call aborts those that do not read."""
        state = self._topics.get(topic)
        final_chunk = encode_event(event, content)
        for subscription in () if state is None else tuple(state.subscriptions):
            subscription.end_or_abort(final_chunk)

    def reconnect(self, subscription: StreamSubscription) -> None:
        """Send a client its own random reconnection delay, and end its stream."""
        wait = self._rng.randint(*self._reconnect_ms)
        subscription.end(f"retry: {wait}\n".encode() + encode_event("reconnect", {"retryMs": wait}))

    def close(self) -> None:
        """End all streams; every client receives its own reconnection delay."""
        self._is_closed = True
        for topic in self._topics.values():
            for subscription in topic.subscriptions:
                self.reconnect(subscription)

    async def run(self) -> None:
        """Send keep-alive comments, until cancelled."""
        while True:
            await self._clock.sleep(self._ping_seconds)
            for topic in tuple(self._topics):
                self._deliver(topic, StreamSubscription.ping)

    def _deliver(self, topic: str, put: Callable[[StreamSubscription], bool]) -> None:
        for subscription in tuple(self._topics[topic].subscriptions):
            if not put(subscription):
                self.unsubscribe(topic, subscription)
                self._metrics.stream_dropped.inc()
