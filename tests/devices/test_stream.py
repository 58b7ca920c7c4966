"""Readings as they arrive: server-sent events to whoever watches a device, and an end for who does not read."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from tests.devices.harness import ADMIN, Board, DevicesServer, Json, make_settings, open_server


class Watcher:
    """A client that speaks just enough HTTP to read a stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._text = ""

    async def event(self) -> dict[str, str]:
        """The next event: its lines by their names."""
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


@asynccontextmanager
async def watching(
    server: DevicesServer, board: Board, last_event_id: str = ""
) -> AsyncIterator[Watcher]:
    application = urlsplit(server.url)
    connection = socket.create_connection((application.hostname, application.port))
    connection.setsockopt(
        socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536
    )  # so that who does not read is full soon
    reader, writer = await asyncio.open_connection(sock=connection, limit=2**24)
    last = f"Last-Event-ID: {last_event_id}\r\n" if last_event_id else ""
    head = f"GET /devices/devices/{board.hardware_id}/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN}\r\n{last}\r\n"
    writer.write(head.encode())
    answered = (await reader.readuntil(b"\r\n\r\n")).decode()
    assert "HTTP/1.1 200 OK" in answered
    assert "content-type: text/event-stream" in answered
    try:
        yield Watcher(reader, writer)
    finally:
        writer.transport.abort()


async def test_readings_arrive_as_they_are_stored(server: DevicesServer, key: str) -> None:
    """Those of the device alone, each once: what was a duplicate or rejected is no news."""
    board, other = Board(), Board()
    await server.store_readings(board, [board.reading(0)], key)
    async with watching(server, board) as one, watching(server, board) as two:
        await server.store_readings(other, [other.reading(0)], key)
        await server.post(
            "/data",
            board.data(board.reading(0), board.reading(1), "bad", board.reading(2)),
            key=key,
        )
        await server.store_readings(board, [board.reading(3)], key)
        shown = (await server.readings(board))[1:]
        assert await one.readings(3) == shown
        assert await two.readings(3) == shown


async def test_a_whole_batch_reaches_who_reads_it(server: DevicesServer, key: str) -> None:
    """A hundred readings in one request are more than a client may be behind, and nobody is dropped for them."""
    board = Board()
    await server.post("/register", board.registration(), key=key)
    async with watching(server, board) as watcher:
        for round_number in range(3):
            readings = [board.reading(round_number * 100 + number) for number in range(100)]
            await server.store_readings(board, readings, key)
            arrived = await watcher.readings(100)
            assert [each["batch_id"] for each in arrived] == [each["batch_id"] for each in readings]


async def test_who_comes_back_gets_what_it_missed(server: DevicesServer, key: str) -> None:
    board = Board()
    await server.post("/register", board.registration(), key=key)
    async with watching(server, board) as watcher:
        await server.store_readings(board, [board.reading(0)], key)
        seen = await watcher.event()
    await server.store_readings(board, [board.reading(1), board.reading(2)], key)
    async with watching(server, board, seen["id"]) as again:
        assert [each["batch_id"] for each in await again.readings(2)] == [
            board.reading(n)["batch_id"] for n in (1, 2)
        ]


async def test_who_does_not_read_is_dropped_and_costs_nobody_anything(tmp_path: Path) -> None:
    """Neither the boards, nor who watches the same device, nor the server, which keeps little for a client."""
    async with open_server(make_settings(data_dir=tmp_path)) as server:
        board, key = Board(), await server.new_key()
        await server.post("/register", board.registration(), key=key)
        figure = server.application.metrics.registry.get_sample_value
        full = {f"{'x' * 60}{number:03}": 1e-100 for number in range(64)}
        async with watching(server, board) as stalled, watching(server, board) as reading:
            stalled.writer.transport.pause_reading()  # type: ignore[attr-defined]
            number = 0
            while figure("tally_stream_clients") == 2:
                batch = [board.reading(number + more, sensors=full) for more in range(100)]
                await server.store_readings(board, batch, key)
                assert [each["batch_id"] for each in await reading.readings(100)] == [
                    each["batch_id"] for each in batch
                ]
                number += 100
            assert figure("tally_stream_clients_dropped_total") == 1
            stalled.writer.transport.resume_reading()  # type: ignore[attr-defined]
            with suppress(ConnectionResetError):
                await stalled.reader.read()  # until the end, which the server made
        assert len(await server.readings(board)) == number
