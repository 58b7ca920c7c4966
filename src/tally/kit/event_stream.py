"""The HTTP side of the hub: a response that sends a topic's events for as long as the client listens.

    return EventStream(hub, f"match:{match_id}", request, snapshot=current_display)

A client that left is noticed at once. One that is connected but does not read is dropped by the
hub, and its connection is cut, so that it holds nothing here.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final, TypeAlias

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from tally.kit.hub import Hub, StreamSubscription, encode_event, noop

Snapshot: TypeAlias = Callable[[], Awaitable[tuple[str, object]]]

# What `tally.kit.server` offers in a scope's extensions: a call that cuts the connection at once.
ABORT: Final = "tally.abort"
HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class EventStream:
    """The response of an SSE route: a snapshot where one is needed, then the topic as it happens."""

    def __init__(
        self,
        hub: Hub,
        topic: str,
        request: Request,
        snapshot: Snapshot | None = None,
        while_open: AbstractContextManager[object] | None = None,
    ) -> None:
        """`while_open` is entered when the client begins to listen, and left when it is gone."""
        self._while_open = nullcontext() if while_open is None else while_open
        self._hub = hub
        self._topic = topic
        self._last_event_id = request.headers.get("last-event-id")
        self._snapshot = snapshot

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._while_open:
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Before the snapshot is taken, so that nothing falls between the two.
        subscription = self._hub.subscribe(self._topic, self._last_event_id)
        try:
            first = await self._first(subscription)
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            if scope["method"] == "HEAD":
                await send({"type": "http.response.body"})
            else:
                await self._stream(first, subscription, scope, receive, send)
        finally:
            self._hub.unsubscribe(self._topic, subscription)

    async def _first(self, subscription: StreamSubscription) -> bytes:
        if self._snapshot is None or not subscription.needs_snapshot:
            return b""
        event, content = await self._snapshot()
        return encode_event(event, content, subscription.position)

    async def _stream(
        self,
        first: bytes,
        subscription: StreamSubscription,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        writer = asyncio.create_task(_write(first, subscription, send))
        departure = asyncio.create_task(_until_disconnected(receive))
        departure.add_done_callback(lambda _: writer.cancel())
        is_dropped = False

        def drop() -> None:
            nonlocal is_dropped
            is_dropped = True
            writer.cancel()

        subscription.on_dropped = drop
        try:
            await asyncio.wait({writer})
            if is_dropped:
                # It does not read, so it would not read the end either: the server hangs up.
                scope.get("extensions", {}).get(ABORT, {}).get("call", noop)()
                await departure
        finally:
            writer.cancel()
            departure.cancel()
            await asyncio.wait({writer, departure})
        if not writer.cancelled():
            writer.result()


async def _write(first: bytes, subscription: StreamSubscription, send: Send) -> None:
    if first:
        await send({"type": "http.response.body", "body": first, "more_body": True})
    while chunk := await subscription.next():
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body"})


async def _until_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
