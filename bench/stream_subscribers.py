"""Many subscribers of the leaderboard stream in one process, which record when updates arrive."""

import asyncio
import re
import time
from urllib.parse import urlsplit

from bench.scoreboard_harness import API

# The score of the first rank identifies an update, since each update raises it by one.
_TOP_SCORE = re.compile(rb'"leaderboard":\[\{"rank":1,[^}]*?"score":(\d+)[,}]')


class StreamSubscriber(asyncio.Protocol):
    """One connection; `received_at` is the arrival time by top score."""

    def __init__(self) -> None:
        self.received_at: dict[int, float] = {}
        self.is_open = asyncio.get_running_loop().create_future()
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        request = f"GET {API}/leaderboard/stream HTTP/1.1\r\nHost: localhost\r\n\r\n"
        transport.write(request.encode())  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        text = self._tail + data
        for match in _TOP_SCORE.finditer(text):
            self.received_at.setdefault(int(match[1]), now)
        self._tail = text[text.rfind(b"\n\n") + 2 :]
        if self.received_at and not self.is_open.done():
            self.is_open.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.is_open.done():
            self.is_open.set_exception(
                exc or ConnectionResetError("the stream ended before the first event")
            )


async def subscribe(url: str, count: int) -> list[StreamSubscriber]:
    """Open `count` streams on one server and wait for the first event of each."""
    parts, loop = urlsplit(url), asyncio.get_running_loop()
    host, port = parts.hostname or "", parts.port or 80
    subscribers = []
    for _ in range(count):
        _, subscriber = await loop.create_connection(StreamSubscriber, host, port)
        subscribers.append(subscriber)
    await asyncio.gather(*(subscriber.is_open for subscriber in subscribers))
    return subscribers
