"""SSE subscriptions to readings, and slow clients."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from tally.kit.operators import Role
from tests.devices.harness import ADMIN, Board, DevicesServer, Json, make_settings, open_server


class Subscriber:
    """A minimal HTTP client for SSE."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._text = ""
        self.first: dict[str, str] = {}

    async def event(self) -> dict[str, str]:
        """Read the next event; return its fields."""
        while "\n\n" not in self._text:
            size = int(await self.reader.readline(), 16)
            assert size, "the stream has ended"
            self._text += (await self.reader.readexactly(size + 2))[:-2].decode()
        lines, _, self._text = self._text.partition("\n\n")
        return dict(line.split(": ", 1) for line in lines.split("\n"))

    async def readings(self, count: int) -> list[Json]:
        events = [await self.event() for _ in range(count)]
        assert {event["event"] for event in events} == {"reading"}
        return [json.loads(event["data"]) for event in events]


def subscribe(
    server: DevicesServer, board: Board, last_event_id: str = "", token: str = ADMIN
) -> AbstractAsyncContextManager[Subscriber]:
    path = f"/devices/devices/{board.hardware_id}/stream"
    return open_stream(server, path, last_event_id, token)


@asynccontextmanager
async def open_stream(
    server: DevicesServer, path: str, last_event_id: str = "", token: str = ADMIN
) -> AsyncIterator[Subscriber]:
    address = urlsplit(server.url)
    connection = socket.create_connection((address.hostname, address.port))
    # A small buffer, so that a stalled client falls behind soon.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    reader, writer = await asyncio.open_connection(sock=connection, limit=2**24)
    last = f"Last-Event-ID: {last_event_id}\r\n" if last_event_id else ""
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n{last}\r\n"
    writer.write(head.encode())
    response = (await reader.readuntil(b"\r\n\r\n")).decode()
    assert "HTTP/1.1 200 OK" in response
    assert "content-type: text/event-stream" in response
    subscriber = Subscriber(reader, writer)
    try:
        if not last_event_id:
            subscriber.first = await subscriber.event()
            assert subscriber.first["event"] == "snapshot"
        yield subscriber
    finally:
        writer.transport.abort()


def batch_ids(readings: list[Json]) -> list[str]:
    """The batch ids; on DynamoDB, readings of one request are stored in any order."""
    return sorted(str(reading["batch_id"]) for reading in readings)


async def test_subscribers_receive_stored_readings(server: DevicesServer, key: str) -> None:
    """Only of their device, each once, without duplicates and rejections."""
    board, other = Board(), Board()
    await server.store_readings(board, [board.reading(0)], key)
    async with subscribe(server, board) as one, subscribe(server, board) as two:
        await server.store_readings(other, [other.reading(0)], key)
        await server.post(
            "/data",
            board.data(board.reading(0), board.reading(1), "bad", board.reading(2)),
            key=key,
        )
        await server.store_readings(board, [board.reading(3)], key)
        expected = batch_ids((await server.readings(board))[1:])
        received = await one.readings(3)
        assert batch_ids(received) == expected
        assert await two.readings(3) == received


async def test_a_full_batch_reaches_a_reading_client(server: DevicesServer, key: str) -> None:
    """A hundred readings exceed the client queue, but a batch is sent in one piece."""
    board = Board()
    await server.post("/register", board.registration(), key=key)
    async with subscribe(server, board) as subscriber:
        for round_index in range(3):
            readings = [board.reading(round_index * 100 + number) for number in range(100)]
            await server.store_readings(board, readings, key)
            arrived = await subscriber.readings(100)
            assert batch_ids(arrived) == batch_ids(readings)


async def test_a_reconnecting_client_gets_missed_readings(server: DevicesServer, key: str) -> None:
    board = Board()
    await server.post("/register", board.registration(), key=key)
    async with subscribe(server, board) as subscriber:
        await server.store_readings(board, [board.reading(0)], key)
        seen = await subscriber.event()
    await server.store_readings(board, [board.reading(1), board.reading(2)], key)
    async with subscribe(server, board, seen["id"]) as again:
        assert batch_ids(await again.readings(2)) == batch_ids([board.reading(1), board.reading(2)])


async def test_a_snapshot_contains_the_latest_reading(server: DevicesServer, key: str) -> None:
    """A client may continue after it, and gets another one if it cannot continue."""
    board = Board()
    await server.post("/register", board.registration(), key=key)
    async with subscribe(server, board) as subscriber:
        body = json.loads(subscriber.first["data"])
        assert body == {"hardware_id": board.hardware_id, "latest": None}
    await server.store_readings(board, [board.reading(0), board.reading(1)], key)
    async with subscribe(server, board, subscriber.first["id"]) as again:
        assert batch_ids(await again.readings(2)) == batch_ids(await server.readings(board))
    for number, unknown in enumerate(("nothing", "0" * 12 + ".1.1.0"), start=2):
        async with subscribe(server, board, unknown) as lost:
            snapshot = await lost.event()
            assert snapshot["event"] == "snapshot"
            assert json.loads(snapshot["data"])["latest"] == (await server.readings(board))[-1]
            await server.store_readings(board, [board.reading(number)], key)
            assert await lost.readings(1) == (await server.readings(board))[-1:]


async def test_a_stalled_client_is_dropped_without_affecting_others(tmp_path: Path) -> None:
    """Boards and other subscribers are unaffected, and the server buffers little."""
    async with open_server(make_settings(data_dir=tmp_path)) as server:
        board, key = Board(), await server.new_key()
        await server.post("/register", board.registration(), key=key)
        metric = server.application.metrics.registry.get_sample_value
        full = {f"{'x' * 60}{number:03}": 1e-100 for number in range(64)}
        async with subscribe(server, board) as stalled, subscribe(server, board) as reading:
            stalled.writer.transport.pause_reading()  # type: ignore[attr-defined]
            number = 0
            while metric("tally_stream_clients") == 2:
                batch = [board.reading(number + offset, sensors=full) for offset in range(100)]
                await server.store_readings(board, batch, key)
                assert batch_ids(await reading.readings(100)) == batch_ids(batch)
                number += 100
            assert metric("tally_stream_clients_dropped_total") == 1
            stalled.writer.transport.resume_reading()  # type: ignore[attr-defined]
            with suppress(ConnectionResetError):
                await stalled.reader.read()  # until the server closes the connection
        assert len(await server.readings(board)) == number


async def test_a_stream_ends_when_its_operator_is_removed(fresh_server: DevicesServer) -> None:
    """Those of others stay open."""
    board = Board()
    key = await fresh_server.new_key()
    await fresh_server.store_readings(board, [board.reading(0)], key)
    operators = fresh_server.application.operators
    token = await operators.add("ana", Role.VIEWER, None)
    async with (
        subscribe(fresh_server, board, token=token) as removed,
        subscribe(fresh_server, board) as other,
    ):
        await fresh_server.application.streams.maintain()
        await operators.remove("ana")
        await fresh_server.application.streams.maintain()
        assert (await removed.event())["event"] == "session_ended"
        await fresh_server.store_readings(board, [board.reading(1)], key)
        assert len(await other.readings(1)) == 1
