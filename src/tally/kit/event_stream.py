"""The HTTP response for server-sent events: streams a hub topic to a client.

    return EventStream(hub, StateSource("leaderboard", current_leaderboard), request)

A source names the topic and sends the first messages of a connection. A *state stream* begins with
the current state on every connect (`StateSource`). An *event stream* continues after the client's
`Last-Event-ID`, or begins with a snapshot (`tally.instance.change_feed`).

The stream ends with the session of its client (`end`). A disconnected client is detected
immediately. The hub drops a connected client that does not read, and its connection is aborted to
free its buffers.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from tally.kit.hub import Hub, StreamSubscription, encode_event, noop

# Returns the name of a state's event and its content.
ReadState: TypeAlias = Callable[[], Awaitable[tuple[str, object]]]

# The scope extension of `tally.kit.server` that aborts the connection.
ABORT: Final = "tally.abort"
# The last event of a stream whose session has ended: the client must sign in again.
SESSION_ENDED: Final = encode_event("session_ended", {})
HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class StreamSource(Protocol):
    """Where a stream comes from."""

    @property
    def topic(self) -> str:
        """The hub topic of the stream."""

    def following(self, subscription: StreamSubscription) -> AbstractAsyncContextManager[object]:
        """Publish to the topic inside the block."""

    def opening(
        self, subscription: StreamSubscription, last_event_id: str | None
    ) -> AsyncGenerator[bytes, None]:
        """Yield the messages that precede those of the subscription, which is already active."""


@dataclass(frozen=True, slots=True)
class StateSource:
    """A state stream: the current state on every connect, then the states of the topic."""

    topic: str
    read: ReadState

    def following(self, subscription: StreamSubscription) -> AbstractAsyncContextManager[object]:
        del subscription
        return nullcontext()

    async def opening(
        self, subscription: StreamSubscription, last_event_id: str | None
    ) -> AsyncGenerator[bytes, None]:
        del subscription, last_event_id
        yield encode_event(*await self.read())


class EventStream:
    """The response of an SSE route: the opening messages of its source, then live messages."""

    def __init__(self, hub: Hub, source: StreamSource, request: Request) -> None:
        self._hub = hub
        self._source = source
        self._last_event_id = request.headers.get("last-event-id")
        self._subscription: StreamSubscription | None = None

    def end(self) -> None:
        """End the stream with `SESSION_ENDED`; a second call aborts a client that does not read."""
        if self._subscription is not None:
            self._subscription.end_or_abort(SESSION_ENDED)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Subscribing before the opening leaves no gap between the two.
        topic = self._source.topic
        subscription = self._subscription = self._hub.subscribe(topic)
        try:
            async with (
                self._source.following(subscription),
                aclosing(self._source.opening(subscription, self._last_event_id)) as opening,
            ):
                first = await anext(opening, b"")  # an error is an ordinary response
                await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
                if scope["method"] == "HEAD":
                    await send({"type": "http.response.body"})
                else:
                    await self._stream(_chunks(first, opening, subscription), scope, receive, send)
        finally:
            self._hub.unsubscribe(topic, subscription)

    async def _stream(
        self, chunks: AsyncGenerator[bytes, None], scope: Scope, receive: Receive, send: Send
    ) -> None:
        writer = asyncio.create_task(_write(chunks, send))
        disconnection = asyncio.create_task(_wait_for_disconnect(receive))
        disconnection.add_done_callback(lambda _: writer.cancel())
        is_dropped = False

        def drop() -> None:
            nonlocal is_dropped
            is_dropped = True
            writer.cancel()

        if self._subscription is not None:
            self._subscription.on_dropped = drop
        try:
            await asyncio.wait({writer})
            if is_dropped:
                # The client does not read, so a normal end would not reach it.
                scope.get("extensions", {}).get(ABORT, {}).get("call", noop)()
                await disconnection
        finally:
            writer.cancel()
            disconnection.cancel()
            await asyncio.wait({writer, disconnection})
        if not writer.cancelled():
            writer.result()


async def _chunks(
    first: bytes, opening: AsyncGenerator[bytes, None], subscription: StreamSubscription
) -> AsyncGenerator[bytes, None]:
    yield first
    async for chunk in opening:
        yield chunk
    while chunk := await subscription.next():
        yield chunk


async def _write(chunks: AsyncGenerator[bytes, None], send: Send) -> None:
    async with aclosing(chunks):
        async for chunk in chunks:
            if chunk:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body"})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
