"""A minimal SSE client for the leaderboard stream, cheap enough to run many of them."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from tests.scoreboard.api.harness import API, Json


class StreamClient:
    """One connection to the stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._text = ""

    async def block(self) -> str:
        """Return the next block of the stream: an event, or a comment such as a ping."""
        while "\n\n" not in self._text:
            size = int(await self.reader.readline(), 16)
            assert size, "the stream has ended"
            self._text += (await self.reader.readexactly(size + 2))[:-2].decode()
        block, _, self._text = self._text.partition("\n\n")
        return block

    async def event(self) -> dict[str, str]:
        """Return the fields of the next event."""
        while (block := await self.block()).startswith(":"):
            pass
        return dict(line.split(": ", 1) for line in block.split("\n"))

    async def update(self) -> Json:
        """Return the next leaderboard update."""
        event = await self.event()
        assert event["event"] == "leaderboard"
        update: Json = json.loads(event["data"])
        return update

    async def board(self) -> Json:
        """Return the next update of a named board."""
        event = await self.event()
        assert event["event"] == "board"
        update: Json = json.loads(event["data"])
        return update

    async def update_with_score(self, user_id: str, score: int) -> Json:
        """Return the first update in which the player has this score."""
        while True:
            update = await self.update()
            if any(
                (entry["user_id"], entry["score"]) == (user_id, score)
                for entry in update["leaderboard"]
            ):
                return update


async def connect(
    url: str, token: str | None = None, last_event_id: str | None = None, board: str | None = None
) -> tuple[int, StreamClient]:
    """Connect to a stream of the server at `url`; return the status and the client."""
    path = "/leaderboard/stream" if board is None else f"/boards/{board}/stream"
    parts = urlsplit(url)
    connection = socket.create_connection((parts.hostname, parts.port))
    # A small buffer, so that the server soon notices a client that does not read.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    reader, writer = await asyncio.open_connection(sock=connection, limit=2**24)
    lines = [f"GET {API}{path} HTTP/1.1", "Host: localhost"]
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    if last_event_id:
        lines.append(f"Last-Event-ID: {last_event_id}")
    writer.write("\r\n".join([*lines, "", ""]).encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    status = int(head.split(" ", 2)[1])
    assert status != 200 or "content-type: text/event-stream" in head
    return status, StreamClient(reader, writer)


@asynccontextmanager
async def open_stream(
    url: str, token: str | None = None, last_event_id: str | None = None, board: str | None = None
) -> AsyncIterator[StreamClient]:
    status, stream = await connect(url, token, last_event_id, board)
    assert status == 200
    try:
        yield stream
    finally:
        stream.writer.transport.abort()
