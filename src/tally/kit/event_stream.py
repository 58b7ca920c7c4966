"""The HTTP response for server-sent events: streams a hub topic to a client.

    return EventStream(hub, f"match:{match_id}", request, snapshot=current_display)

The stream ends with the session of its client (`end`). A disconnected client is detected
immediately. The hub drops a connected client that does not read, and its connection is aborted to
free its buffers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final, TypeAlias

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from tally.kit.hub import Hub, StreamSubscription, encode_event, noop

Snapshot: TypeAlias = Callable[[], Awaitable[tuple[str, object]]]

# The scope extension of `tally.kit.server` that aborts the connection.
ABORT: Final = "tally.abort"
# The last event of a stream whose session has ended: the client must sign in again.
SESSION_ENDED: Final = encode_event("session_ended", {})
HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class EventStream:
    """The response of an SSE route: a snapshot if the client needs one, then live events."""

    def __init__(
        self,
        hub: Hub,
        topic: str,
        request: Request,
        snapshot: Snapshot | None = None,
        while_open: AbstractContextManager[object] | None = None,
    ) -> None:
        """Enter `while_open` for as long as the client is connected."""
        self._while_open = nullcontext() if while_open is None else while_open
        self._hub = hub
        self._topic = topic
        self._last_event_id = request.headers.get("last-event-id")
        self._snapshot = snapshot
        self._subscription: StreamSubscription | None = None

    def end(self) -> None:
        """End the stream with `SESSION_ENDED`; a second call aborts a client that does not read."""
        if self._subscription is not None:
            self._subscription.end_or_abort(SESSION_ENDED)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._while_open:
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Subscribing before taking the snapshot leaves no gap between the two.
        subscription = self._hub.subscribe(self._topic, self._last_event_id)
        self._subscription = subscription
        try:
            initial = await self._initial(subscription)
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            if scope["method"] == "HEAD":
                await send({"type": "http.response.body"})
            else:
                await self._stream(initial, subscription, scope, receive, send)
        finally:
            self._hub.unsubscribe(self._topic, subscription)

    async def _initial(self, subscription: StreamSubscription) -> bytes:
        if self._snapshot is None or not subscription.needs_snapshot:
            return b""
        event, content = await self._snapshot()
        return encode_event(event, content, subscription.position)

    async def _stream(
        self,
        initial: bytes,
        subscription: StreamSubscription,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        writer = asyncio.create_task(_write(initial, subscription, send))
        disconnection = asyncio.create_task(_wait_for_disconnect(receive))
        disconnection.add_done_callback(lambda _: writer.cancel())
        is_dropped = False

        def drop() -> None:
            nonlocal is_dropped
            is_dropped = True
            writer.cancel()

        subscription.on_dropped = drop
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


async def _write(initial: bytes, subscription: StreamSubscription, send: Send) -> None:
    if initial:
        await send({"type": "http.response.body", "body": initial, "more_body": True})
    while chunk := await subscription.next():
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body"})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
