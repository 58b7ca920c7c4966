"""Fan-out of server-sent events: publishes messages to the subscribers of a topic.

A message is serialised once for all subscribers. Each subscriber has a bounded
queue, and a subscriber that falls behind is dropped. A client that reconnects with `Last-Event-ID`
gets the missed messages from the topic's buffer of recent messages. If the buffer does not reach
back far enough, or the client was connected to another process, it gets a snapshot. At shutdown,
each client receives a reconnection delay. `tally.kit.event_stream` is the HTTP side.

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
# Bytes queued per client before the next chunk: bounds the memory of a slow client.
MAX_QUEUED_BYTES: Final = 1024 * 1024


class TopicMessage:
    """An event of a topic; encoded on first use and shared by all clients."""

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
    """Encode an event as SSE; JSON contains no newlines, so one data line is enough."""
    head = f"id: {identity}\nevent: {event}\ndata: " if identity else f"event: {event}\ndata: "
    return head.encode() + msgspec.json.encode(content) + b"\n\n"


class StreamSubscription:
    """The queue of one client.

    `needs_snapshot` is true if the client has missed events that cannot be replayed.
    """

    def __init__(self, capacity: int, replay: bytes | None, position: str) -> None:
        self.needs_snapshot = replay is None
        self.position = position
        self.on_dropped: Callable[[], object] = noop
        self._capacity = capacity
        self._chunks: deque[bytes] = deque([replay] if replay else [])
        self._size = 0
        self._ready = asyncio.Event()
        self.has_ended = False

    def put(self, chunk: bytes) -> bool:
        """Queue `chunk`, or drop the client and return False if its queue is full."""
        if len(self._chunks) >= self._capacity or self._size >= MAX_QUEUED_BYTES:
            self._chunks.clear()
            self.has_ended = True
            self._ready.set()
            self.on_dropped()
            return False
        self._chunks.append(chunk)
        self._size += len(chunk)
        self._ready.set()
        return True

    def end(self, final_chunk: bytes) -> None:
        """End the stream after the queued chunks and `final_chunk`."""
        self._chunks.append(final_chunk)
        self.has_ended = True
        self._ready.set()

    def end_or_abort(self, final_chunk: bytes) -> None:
        """End the stream; the second call aborts the connection of a client that does not read."""
        if self.has_ended:
            self.on_dropped()
        else:
            self.end(final_chunk)

    async def next(self) -> bytes:
        """Return all queued chunks as one; empty at the end of the stream."""
        while not self._chunks and not self.has_ended:
            self._ready.clear()
            await self._ready.wait()
        chunk = b"".join(self._chunks)
        self._chunks.clear()
        self._size = 0
        return chunk


def noop() -> None:
    pass


class Topic:
    """The subscribers of a topic and its recent messages."""

    def __init__(self, number: int, history: int) -> None:
        self.subscriptions: set[StreamSubscription] = set()
        self.expires_at: float | None = None
        self._recent: deque[TopicMessage] = deque(maxlen=history)
        # Messages up to this number may be missing from `_recent`.
        self._evicted = number

    def append(self, message: TopicMessage) -> None:
        if len(self._recent) == self._recent.maxlen:
            self._evicted = self._recent[0].number
        self._recent.append(message)

    def since(self, number: int) -> bytes | None:
        """Return the messages after `number`, or None if some may be missing."""
        if number < self._evicted:
            return None
        return b"".join(message.encoded() for message in self._recent if message.number > number)


class Hub:
    """The topics of a process.

    A topic exists while it has subscribers and for `linger_seconds` after the last one leaves.
    """

    def __init__(
        self,
        clock: Clock,
        metrics: Metrics,
        *,
        queue_size: int = 64,
        history_size: int = 64,
        ping_seconds: float = 15,
        linger_seconds: float = 30,
        reconnect_ms: tuple[int, int] = (500, 3000),
        rng: random.Random | None = None,
    ) -> None:
        self._clock = clock
        self._metrics = metrics
        self._queue_size = queue_size
        self._history_size = history_size
        self._ping_seconds = ping_seconds
        self._linger_seconds = linger_seconds
        self._reconnect_ms = reconnect_ms
        self._rng = rng or random.Random()  # noqa: S311  (spreads reconnections; not a secret)
        # Distinguishes event IDs of this process from those of others and of earlier runs.
        self._origin = f"{self._rng.getrandbits(48):012x}"
        self._number = 0
        self._topics: dict[str, Topic] = {}
        self._is_closed = False

    def publish(self, topic: str, event: str, content: object) -> None:
        """Send an event to the subscribers of `topic`; `content` must not change afterwards.

        Without subscribers, this costs one dictionary look-up.
        """
        self.publish_all(topic, event, (content,))

    def publish_all(self, topic: str, event: str, contents: Iterable[object]) -> None:
        """Send several events as one chunk, so that a large batch does not fill the queues.

        `contents` may be lazy: it is not consumed without subscribers.
        """
        state = self._topics.get(topic)
        if state is None:
            return
        messages = [self._message(state, event, content) for content in contents]
        if state.subscriptions:
            self._deliver(state, b"".join(message.encoded() for message in messages))

    def _message(self, topic: Topic, event: str, content: object) -> TopicMessage:
        self._number += 1
        message = TopicMessage(self._origin, self._number, event, content)
        topic.append(message)
        self._metrics.stream_messages.inc()
        return message

    def is_active(self, topic: str) -> bool:
        """Return whether the topic has subscribers or recently had some that may reconnect."""
        return topic in self._topics

    def subscriber_count(self, topic: str) -> int:
        state = self._topics.get(topic)
        return 0 if state is None else len(state.subscriptions)

    def subscribe(self, topic: str, last_event_id: str | None = None) -> StreamSubscription:
        """Subscribe, and queue the messages after `last_event_id` if they are available."""
        if self._is_closed:
            raise Unavailable("The server is shutting down", retry_after=1)
        state = self._topics.get(topic)
        if state is None or self._is_expired(state):
            # Earlier messages had no number, so no earlier event ID can be replayed.
            self._number += 1
            state = self._topics[topic] = Topic(self._number, self._history_size)
        state.expires_at = None
        replay = self._replay(state, last_event_id or "")
        subscription = StreamSubscription(
            self._queue_size, replay, f"{self._origin}-{self._number}"
        )
        state.subscriptions.add(subscription)
        self._metrics.stream_clients.inc()
        return subscription

    def unsubscribe(self, topic: str, subscription: StreamSubscription) -> None:
        state = self._topics.get(topic)
        if state is not None and subscription in state.subscriptions:
            self._remove(state, subscription)

    def end(self, topic: str, event: str, content: object) -> None:
        """End all streams of a topic with an event; a second call aborts those that do not read."""
        state = self._topics.get(topic)
        final_chunk = encode_event(event, content)
        for subscription in () if state is None else tuple(state.subscriptions):
            subscription.end_or_abort(final_chunk)

    def close(self) -> None:
        """Send every client its own random reconnection delay, and end its stream."""
        self._is_closed = True
        for topic in self._topics.values():
            for subscription in topic.subscriptions:
                wait = self._rng.randint(*self._reconnect_ms)
                subscription.end(
                    f"retry: {wait}\n".encode() + encode_event("reconnect", {"retryMs": wait})
                )

    async def run(self) -> None:
        """Send keep-alive comments and remove expired topics, until cancelled."""
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
            self._remove(topic, subscription)
            self._metrics.stream_dropped.inc()

    def _remove(self, topic: Topic, subscription: StreamSubscription) -> None:
        topic.subscriptions.discard(subscription)
        self._metrics.stream_clients.dec()
        if not topic.subscriptions:
            topic.expires_at = self._clock.monotonic() + self._linger_seconds

    def _is_expired(self, topic: Topic) -> bool:
        return topic.expires_at is not None and topic.expires_at <= self._clock.monotonic()
