"""A client that costs little: it shares two cores with the server that it measures, and a full one took a quarter of a request.

Plain HTTP/1.1 on connections that are kept, a request at a time on each.
"""

import asyncio
import re
from typing import Final, cast
from urllib.parse import urlsplit

_END_OF_HEAD: Final = b"\r\n\r\n"
_length = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)


class _Connection(asyncio.Protocol):
    """One connection, and the answer that is waited for on it."""

    def __init__(self) -> None:
        self._received = b""
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def ask(self, request: bytes) -> "asyncio.Future[tuple[int, bytes]]":
        if self._transport is None:
            raise ConnectionError("the connection is gone")
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(_END_OF_HEAD)
        told = _length.search(head + b"\r\n")
        if not end or self._answer is None:
            return
        if told is None:
            self._answer.set_exception(
                ConnectionError(f"an answer without a length: {head[:200]!r}")
            )
        elif len(body) == int(told[1]):
            self._received = b""
            self._answer.set_result((int(head[9:12]), body))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(
                exc or ConnectionError("the server has closed the connection")
            )

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class Poster:
    """Posts to one URL, with the same headers each time."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        where = urlsplit(url)
        self._host, self._port = where.hostname or "127.0.0.1", where.port or 80
        lines = [
            f"POST {where.path} HTTP/1.1",
            f"Host: {where.netloc}",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        self._head = "\r\n".join(lines).encode() + b"\r\nContent-Length: "
        self._idle: list[_Connection] = []

    async def post(self, body: bytes) -> tuple[int, bytes]:
        """The status and the body of the answer."""
        connection = self._idle.pop() if self._idle else await self._connected()
        answer = await connection.ask(self._head + str(len(body)).encode() + _END_OF_HEAD + body)
        self._idle.append(connection)
        return answer

    def close(self) -> None:
        for connection in self._idle:
            connection.close()

    async def _connected(self) -> _Connection:
        _, connection = await asyncio.get_running_loop().create_connection(
            _Connection, self._host, self._port
        )
        return connection
