"""A service on a real socket that answers as it is told, and remembers what it was sent.

    async with misbehaving() as service:
        service.replies += [throttled(), closed, answer({"Item": {}})]

One reply is used up by each request, in order; a request without one is answered with an empty
object.
"""

import asyncio
import contextlib
import json
import zlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tally.kit.clock import Clock

Reply: TypeAlias = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Sent:
    """One request as it arrived."""

    operation: str
    body: dict[str, Any]


@dataclass(slots=True)
class Service:
    """Where the service is, what it was sent, and what it will answer."""

    url: str = ""
    sent: list[Sent] = field(default_factory=list)
    replies: deque[Reply] = field(default_factory=deque)

    def forget(self) -> None:
        """Start anew."""
        self.sent.clear()
        self.replies.clear()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection, which is kept open between them."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                self.sent.append(await _read(reader))
                reply = self.replies.popleft() if self.replies else answer({})
                await reply(writer)
        writer.close()


@contextlib.asynccontextmanager
async def misbehaving(port: int = 0) -> AsyncIterator[Service]:
    """A service on a free port of the loopback."""
    service = Service()
    server = await asyncio.start_server(service.serve, "127.0.0.1", port)
    service.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield service
    finally:
        server.close()


async def _read(reader: asyncio.StreamReader) -> Sent:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    headers = {
        name.lower(): value
        for name, _, value in (line.partition(": ") for line in head.split("\r\n"))
    }
    body = await reader.readexactly(int(headers["content-length"]))
    return Sent(headers["x-amz-target"].rpartition(".")[2], json.loads(body))


def answer(body: dict[str, Any], status: int = 200) -> Reply:
    """A whole answer."""
    return _whole(json.dumps(body).encode(), status)


def refusal(code: str, message: str = "", status: int = 400, **fields: Any) -> Reply:
    """An error as DynamoDB words it."""
    name = f"com.amazonaws.dynamodb.v20120810#{code}"
    return answer({"__type": name, "message": message, **fields}, status)


def throttled() -> Reply:
    """The request to slow down."""
    return refusal(
        "ProvisionedThroughputExceededException", "The level of configured throughput was exceeded"
    )


def cancelled(*codes: str, **fields: Any) -> Reply:
    """A transaction that was not applied, with one reason for each item."""
    reasons = [
        {"Code": code} if code == "None" else {"Code": code, "Message": code.lower(), **fields}
        for code in codes
    ]
    return refusal(
        "TransactionCanceledException",
        "cancelled",
        CancellationReasons=reasons,
        Message="cancelled",
    )


async def closed(writer: asyncio.StreamWriter) -> None:
    """No answer: the connection ends."""
    writer.close()


async def reset(writer: asyncio.StreamWriter) -> None:
    """No answer: the connection is reset."""
    writer.transport.abort()


async def cut_off(writer: asyncio.StreamWriter) -> None:
    """The first half of an answer."""
    whole = _bytes(b'{"Attributes": {"count": {"N": "1"}}}', 200)
    writer.write(whole[: len(whole) - 10])
    await writer.drain()
    writer.close()


async def damaged(writer: asyncio.StreamWriter) -> None:
    """A whole answer that is not what was sent."""
    writer.write(_bytes(b'{"Item": {"id": {"S": "another"}}}', 200, checksum=1))


async def silence(writer: asyncio.StreamWriter) -> None:
    """No answer, and the connection stays."""


async def broken(writer: asyncio.StreamWriter) -> None:
    """A failure in the middle of the service."""
    await refusal("InternalServerError", "The request could not be completed", 500)(writer)


async def gateway(writer: asyncio.StreamWriter) -> None:
    """A failure in front of the service, in no words of its own."""
    writer.write(_bytes(b"<html>Bad Gateway</html>", 502))


async def impostor(writer: asyncio.StreamWriter) -> None:
    """The page of a proxy that thinks all is well."""
    page = b"<html>Welcome</html>"
    writer.write(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s"
        % (len(page), page)
    )


def _whole(body: bytes, status: int) -> Reply:
    async def reply(writer: asyncio.StreamWriter) -> None:
        writer.write(_bytes(body, status))

    return reply


def _bytes(body: bytes, status: int, checksum: int | None = None) -> bytes:
    crc = zlib.crc32(body) if checksum is None else checksum
    head = f"HTTP/1.1 {status} Told\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: {len(body)}\r\nx-amz-crc32: {crc}"
    return head.encode() + b"\r\n\r\n" + body


class HurriedClock(Clock):
    """A clock on which every pause is over at once, and is remembered.

    `at_pause` is called before each one.
    """

    def __init__(self, at_pause: Callable[[], Awaitable[None]] | None = None) -> None:
        self.pauses: list[float] = []
        self.at_pause = at_pause

    def time_ns(self) -> int:
        return round(self.monotonic() * 1_000_000_000)

    def monotonic(self) -> float:
        return sum(self.pauses)

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if self.at_pause is not None:
            await self.at_pause()
