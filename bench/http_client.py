"""A minimal HTTP/1.1 client with keep-alive, one request at a time per connection.

It shares two cores with the measured server. A full client took a quarter of the CPU of a request.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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

    @property
    def is_open(self) -> bool:
        return self._transport is not None

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
        if head[9:12] == b"204":
            self._received = b""
            self._response.set_result((204, b""))
        elif length is None:
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


class KeepAliveClient:
    """Sends requests with fixed headers to one server."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        address = urlsplit(url)
        self._host, self._port = address.hostname or "127.0.0.1", address.port or 80
        lines = [
            f"Host: {address.netloc}",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        self._headers = "\r\n".join(lines)
        self._idle: list[_Connection] = []

    async def request(
        self, method: str, path: str, body: bytes | None = None, bearer: str | None = None
    ) -> bytes:
        """Return the body of a successful response; any other response is an AssertionError."""
        head = f"{method} {path} HTTP/1.1\r\n{self._headers}"
        if bearer is not None:
            head += f"\r\nAuthorization: Bearer {bearer}"
        if body is not None:
            head += f"\r\nContent-Length: {len(body)}"
        # A server may close a connection that was idle between two loads; no request is lost then.
        while self._idle and not self._idle[-1].is_open:
            self._idle.pop()
        connection = self._idle.pop() if self._idle else await self._connect()
        status, content = await connection.send(head.encode() + _END_OF_HEAD + (body or b""))
        self._idle.append(connection)
        if status not in (200, 204):
            raise AssertionError(f"{method} {path} returned {status} {content[:300]!r}")
        return content

    def close(self) -> None:
        for connection in self._idle:
            connection.close()

    async def _connect(self) -> _Connection:
        _, connection = await asyncio.get_running_loop().create_connection(
            _Connection, self._host, self._port
        )
        return connection


@contextmanager
def open_client(url: str, headers: Mapping[str, str]) -> Iterator[KeepAliveClient]:
    """Yield a client and close its connections."""
    client = KeepAliveClient(url, headers)
    try:
        yield client
    finally:
        client.close()
