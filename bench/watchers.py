"""Very many clients of the scoreboard's stream in one process, each a connection, and when each of them saw what."""

import asyncio
import re
import time
from urllib.parse import urlsplit

from bench.scoreboard_world import API

# The score of whoever leads: each update of the bench raises it by one, so it names the update.
_LEADER = re.compile(rb'"leaderboard":\[\{"rank":1,[^}]*?"score":(\d+)\}')


class Watcher(asyncio.Protocol):
    """One client: notes the moment at which each score of the leader arrived."""

    def __init__(self) -> None:
        self.seen: dict[int, float] = {}
        self.is_open = asyncio.get_running_loop().create_future()
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(f"GET {API}/leaderboard/stream HTTP/1.1\r\nHost: bench\r\n\r\n".encode())  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        text = self._tail + data
        for found in _LEADER.finditer(text):
            self.seen.setdefault(int(found[1]), now)
        self._tail = text[text.rfind(b"\n\n") + 2 :]
        if self.seen and not self.is_open.done():
            self.is_open.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.is_open.done():
            self.is_open.set_exception(
                exc or ConnectionResetError("the stream ended before it began")
            )


async def watch(url: str, count: int) -> list[Watcher]:
    """So many clients of one server, all of whom have seen the board."""
    parts, loop = urlsplit(url), asyncio.get_running_loop()
    host, port = parts.hostname or "", parts.port or 80
    watchers = []
    for _ in range(count):
        _, watcher = await loop.create_connection(Watcher, host, port)
        watchers.append(watcher)
    await asyncio.gather(*(watcher.is_open for watcher in watchers))
    return watchers
