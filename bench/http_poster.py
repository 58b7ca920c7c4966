"""A minimal HTTP/1.1 client with keep-alive, one request at a time per connection.

It shares two cores with the measured server. A full client took a quarter of the CPU of a request.
"""

import asyncio
import re
from typing import Final, cast
from urllib.parse import urlsplit

_END_OF_HEAD: Final = b"\r\n\r\n"
_length = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)


class _Connection(asyncio.Protocol):
    """A connection and its pending response."""

    def __init__(self) -> None:
        self._received = b""
        self._response: asyncio.Future[tuple[int, bytes]] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self, request: bytes) -> "asyncio.Future[tuple[int, bytes]]":
        if self._transport is None:
            raise ConnectionError("the connection is closed")
        self._response = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._response

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(_END_OF_HEAD)
        length = _length.search(head + b"\r\n")
        if not end or self._response is None:
            return
        if length is None:
            self._response.set_exception(
                ConnectionError(f"the response has no Content-Length: {head[:200]!r}")
            )
        elif len(body) == int(length[1]):
            self._received = b""
            self._response.set_result((int(head[9:12]), body))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._response is not None and not self._response.done():
            self._response.set_exception(exc or ConnectionError("the server closed the connection"))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class Poster:
    """Posts bodies to one URL with fixed headers."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        address = urlsplit(url)
        self._host, self._port = address.hostname or "127.0.0.1", address.port or 80
        lines = [
            f"POST {address.path} HTTP/1.1",
            f"Host: {address.netloc}",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        self._head = "\r\n".join(lines).encode() + b"\r\nContent-Length: "
        self._idle: list[_Connection] = []

    async def post(self, body: bytes) -> tuple[int, bytes]:
        """Send a body; return status and body of the response."""
        connection = self._idle.pop() if self._idle else await self._connect()
        response = await connection.send(self._head + str(len(body)).encode() + _END_OF_HEAD + body)
        self._idle.append(connection)
        return response

    def close(self) -> None:
        for connection in self._idle:
            connection.close()

    async def _connect(self) -> _Connection:
        _, connection = await asyncio.get_running_loop().create_connection(
            _Connection, self._host, self._port
        )
        return connection
