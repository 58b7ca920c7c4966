"""A client that sends raw bytes, and reads responses one by one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

TIMEOUT_SECONDS = 30


@dataclass(frozen=True, slots=True)
class RawResponse:
    """A response as it was received."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def problem(self) -> dict[str, Any]:
        """Return the problem document of an error that closes the connection."""
        assert self.headers["content-type"] == "application/problem+json"
        assert self.headers["connection"] == "close"
        problem: dict[str, Any] = msgspec.json.decode(self.body)
        assert problem["status"] == self.status
        assert problem["type"] == f"/docs/errors#{problem['code']}"
        return problem


class RawClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def response(self, *, has_body: bool = True) -> RawResponse:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            status, *lines = head.strip().split("\r\n")
            pairs = (line.split(": ", 1) for line in lines)
            headers = {name.lower(): value for name, value in pairs}
            body = await self._body(headers) if has_body else b""
        return RawResponse(int(status.split()[1]), headers, body)

    async def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding") != "chunked":
            return await self._reader.readexactly(int(headers.get("content-length", "0")))
        body = b""
        while size := int(await self._reader.readline(), 16):
            body += await self._reader.readexactly(size)
            await self._reader.readexactly(2)
        await self._reader.readexactly(2)
        return body

    async def get(self, path: str = "/") -> RawResponse:
        self.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return await self.response()

    async def read_to_end(self) -> bytes:
        """Return what the server still sends before it closes the connection."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await self._reader.read()

    async def is_closed(self) -> bool:
        try:
            return await self.read_to_end() == b""
        except ConnectionResetError:
            return True


@asynccontextmanager
async def connected(url: str, source: str = "127.0.0.1") -> AsyncIterator[RawClient]:
    """Connect to the server at `url` from the loopback address `source`."""
    port = int(url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    try:
        yield RawClient(reader, writer)
    finally:
        writer.transport.abort()
