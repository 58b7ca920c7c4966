"""Server-sent events on real sockets, with clients that disconnect or stall."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from starlette.requests import Request
from starlette.types import ASGIApp

from tally.kit.clock import ManualClock
from tally.kit.event_stream import EventStream, ReadState, StateSource
from tally.kit.hub import Hub, StreamSubscription, encode_event
from tally.kit.metrics import Metrics
from tests.kit.conftest import LogLines
from tests.kit.serving import serve_handler
from tests.kit.test_hub import parse


@asynccontextmanager
async def streaming(hub: Hub, read: ReadState | None = None) -> AsyncIterator[str]:
    """A server with one stream, whose first event is a state."""

    async def handler(request: Request) -> ASGIApp:
        return EventStream(hub, StateSource("board", read or initial_state), request)

    async with serve_handler(handler, method="GET", on_stopping=hub.close) as url:
        yield url


async def initial_state() -> tuple[str, object]:
    return "state", 0


class SSEClient:
    """A minimal HTTP client that reads a stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.head = ""

    @classmethod
    async def connect(
        cls, url: str, last_event_id: str | None = None, method: str = "GET"
    ) -> "SSEClient":
        parts = urlsplit(url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=2**24)
        last = f"Last-Event-ID: {last_event_id}\r\n" if last_event_id else ""
        writer.write(f"{method} {parts.path} HTTP/1.1\r\nHost: localhost\r\n{last}\r\n".encode())
        listener = cls(reader, writer)
        listener.head = (await reader.readuntil(b"\r\n\r\n")).decode()
        return listener

    async def chunk(self) -> str:
        """The next piece of the body; empty at its end."""
        size = int(await self.reader.readline(), 16)
        return (await self.reader.readexactly(size + 2))[:-2].decode()

    async def everything(self) -> str:
        """All of the body, to its end."""
        text = ""
        while chunk := await self.chunk():
            text += chunk
        return text

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


def clients(metrics: Metrics) -> float | None:
    return metrics.registry.get_sample_value("tally_stream_clients")


class TrackingHub(Hub):
    """Sets an event when a client has disconnected."""

    def __init__(self, metrics: Metrics) -> None:
        super().__init__(ManualClock(), metrics)
        self.left = asyncio.Event()

    def unsubscribe(self, topic: str, subscription: StreamSubscription) -> None:
        super().unsubscribe(topic, subscription)
        self.left.set()


@pytest.fixture
def hub(metrics: Metrics) -> TrackingHub:
    return TrackingHub(metrics)


async def test_published_messages_follow_the_current_state(hub: Hub) -> None:
    async with streaming(hub) as url:
        listener = await SSEClient.connect(url)
        assert "HTTP/1.1 200 OK" in listener.head
        assert "content-type: text/event-stream" in listener.head
        assert "cache-control: no-store" in listener.head
        assert "x-request-id: " in listener.head
        assert parse(await listener.chunk()) == [{"event": "state", "data": "0"}]
        hub.publish_state("board", "update", {"rank": 1})
        assert parse(await listener.chunk()) == [{"event": "update", "data": '{"rank":1}'}]
        await listener.close()


async def test_messages_during_the_opening_follow_it(hub: Hub) -> None:
    async def read() -> tuple[str, object]:
        hub.publish("board", 1, encode_event("update", 2))
        return "state", 1

    async with streaming(hub, read) as url:
        listener = await SSEClient.connect(url)
        text = await listener.chunk()
        while "update" not in text:
            text += await listener.chunk()
        assert [event["event"] for event in parse(text)] == ["state", "update"]
        await listener.close()


async def test_a_disconnect_is_detected(
    hub: TrackingHub, metrics: Metrics, log_lines: LogLines
) -> None:
    async with streaming(hub) as url:
        listener = await SSEClient.connect(url)
        assert clients(metrics) == 1
        await listener.close()
        await hub.left.wait()
        assert clients(metrics) == 0
    assert [line for line in log_lines() if line["level"] in {"warning", "error"}] == []


async def test_a_client_that_does_not_read_is_disconnected(
    hub: Hub, metrics: Metrics, log_lines: LogLines
) -> None:
    """Its connection is aborted; clients that read are not affected."""
    async with streaming(hub) as url:
        stalled, reading = await SSEClient.connect(url), await SSEClient.connect(url)
        await reading.chunk()
        stalled.writer.transport.pause_reading()  # type: ignore[attr-defined]
        received: list[dict[str, str]] = []
        while clients(metrics) == 2:
            number = len(received)
            hub.publish("board", number + 1, encode_event(str(number), "x" * 100_000))
            received += parse(await reading.chunk())
        assert [event["event"] for event in received] == [
            str(number) for number in range(len(received))
        ]
        assert metrics.registry.get_sample_value("tally_stream_clients_dropped_total") == 1
        stalled.writer.transport.resume_reading()  # type: ignore[attr-defined]
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await stalled.everything()
        stalled.writer.close()
        await reading.close()
    assert [line for line in log_lines() if line["level"] == "error"] == []


async def test_shutdown_sends_a_reconnection_delay_and_does_not_wait(hub: Hub) -> None:
    async with streaming(hub) as url:
        listener = await SSEClient.connect(url)
    *_, farewell = parse(await listener.everything())
    assert farewell["event"] == "reconnect"
    assert int(farewell["retry"]) > 0
    assert await listener.reader.read() == b""
    await listener.close()


async def test_new_clients_are_rejected_during_shutdown(hub: Hub) -> None:
    async with streaming(hub) as url:
        hub.close()
        listener = await SSEClient.connect(url)
        assert "HTTP/1.1 503" in listener.head
        assert "retry-after: 1" in listener.head
        await listener.close()


async def test_a_head_request_returns_immediately(hub: TrackingHub, metrics: Metrics) -> None:
    async with streaming(hub) as url:
        listener = await SSEClient.connect(url, method="HEAD")
        assert "HTTP/1.1 200 OK" in listener.head
        await hub.left.wait()
        assert clients(metrics) == 0
        await listener.close()


async def test_a_failed_opening_is_an_ordinary_error(hub: Hub, metrics: Metrics) -> None:
    async def read() -> tuple[str, object]:
        raise RuntimeError("no display state")

    async with streaming(hub, read) as url:
        listener = await SSEClient.connect(url)
        assert "HTTP/1.1 500" in listener.head
        assert clients(metrics) == 0
        await listener.close()


async def test_many_clients_get_the_same_bytes(hub: Hub) -> None:
    async with streaming(hub) as url:
        listeners = await asyncio.gather(*(SSEClient.connect(url) for _ in range(200)))
        await asyncio.gather(*(listener.chunk() for listener in listeners))
        hub.publish_state("board", "update", {"rank": 1})
        chunks = await asyncio.gather(*(listener.chunk() for listener in listeners))
        assert len(set(chunks)) == 1
        await asyncio.gather(*(listener.close() for listener in listeners))
