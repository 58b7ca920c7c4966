"""Clients of the stream that speak just enough HTTP to watch the board, many of them at once if need be."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from tests.scoreboard.api.harness import API, Json


class Watcher:
    """One connection to the stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._text = ""

    async def piece(self) -> str:
        """The next piece of the stream: an event, or a comment, which is a ping."""
        while "\n\n" not in self._text:
            size = int(await self.reader.readline(), 16)
            assert size, "the stream has ended"
            self._text += (await self.reader.readexactly(size + 2))[:-2].decode()
        piece, _, self._text = self._text.partition("\n\n")
        return piece

    async def event(self) -> dict[str, str]:
        """The next event: its lines by their names."""
        while (piece := await self.piece()).startswith(":"):
            pass
        return dict(line.split(": ", 1) for line in piece.split("\n"))

    async def update(self) -> Json:
        """The next state of the board."""
        event = await self.event()
        assert event["event"] == "leaderboard"
        told: Json = json.loads(event["data"])
        return told

    async def until_score(self, user_id: str, score: int) -> Json:
        """The first state in which the player has that score."""
        while True:
            update = await self.update()
            if any(
                (place["user_id"], place["score"]) == (user_id, score)
                for place in update["leaderboard"]
            ):
                return update


async def connect(
    url: str, token: str | None = None, last_event_id: str | None = None
) -> tuple[int, Watcher]:
    """A client of the stream at `url`, and the status of the answer."""
    parts = urlsplit(url)
    connection = socket.create_connection((parts.hostname, parts.port))
    connection.setsockopt(
        socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536
    )  # so that who does not read is full soon
    reader, writer = await asyncio.open_connection(sock=connection, limit=2**24)
    head = [f"GET {API}/leaderboard/stream HTTP/1.1", "Host: x"]
    head += [f"Authorization: Bearer {token}"] * (token is not None) + [
        f"Last-Event-ID: {last_event_id}"
    ] * bool(last_event_id)
    writer.write("\r\n".join([*head, "", ""]).encode())
    answered = (await reader.readuntil(b"\r\n\r\n")).decode()
    status = int(answered.split(" ", 2)[1])
    assert status != 200 or "content-type: text/event-stream" in answered
    return status, Watcher(reader, writer)


@asynccontextmanager
async def watching(
    url: str, token: str | None = None, last_event_id: str | None = None
) -> AsyncIterator[Watcher]:
    status, watcher = await connect(url, token, last_event_id)
    assert status == 200
    try:
        yield watcher
    finally:
        watcher.writer.transport.abort()
