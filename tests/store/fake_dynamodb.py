"""A fake DynamoDB service on a real socket that sends given replies and records requests.

    async with fake_dynamodb() as service:
        service.replies += [throttled(), closed, response({"Item": {}})]

Each request consumes one reply, in order; without one, it gets an empty object.
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
from tally.store.dynamodb.engine import DynamoDBEngine

Reply: TypeAlias = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """One request as it arrived."""

    operation: str
    body: dict[str, Any]

    @property
    def is_probe(self) -> bool:
        """Whether the instance's readiness probe sent it."""
        return self.operation == "ListTables" or self.body.get("TableName", "") == "tally-probe"

    @property
    def is_of_consumer(self) -> bool:
        """Whether a stream consumer sent it, to get its lock."""
        return bool(self.body.get("TableName", "") == "tally-stream-consumers")


@dataclass(slots=True)
class Service:
    """The service: its address, the requests it received, and its next replies."""

    url: str = ""
    sent: list[ReceivedRequest] = field(default_factory=list)
    replies: deque[Reply] = field(default_factory=deque)
    # Every reply to requests for a table, instead of the replies in order.
    table_replies: dict[str, Reply] = field(default_factory=dict)
    # Answer the readiness probe and the stream consumers of an instance apart, and do not record
    # them: another instance holds the locks of all consumers.
    serves_instance: bool = False

    def reset_state(self) -> None:
        """Clear requests and replies."""
        self.sent.clear()
        self.replies.clear()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Reply to the requests of one keep-alive connection."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                request = await _read(reader)
                if self.serves_instance and request.is_probe:
                    await response({})(writer)
                    continue
                if self.serves_instance and request.is_of_consumer:
                    await refusal("ConditionalCheckFailedException")(writer)
                    continue
                self.sent.append(request)
                await self._next_reply(request)(writer)
        writer.close()

    def _next_reply(self, request: ReceivedRequest) -> Reply:
        reply = self.table_replies.get(request.body.get("TableName", ""))
        return reply or (self.replies.popleft() if self.replies else response({}))


@contextlib.asynccontextmanager
async def fake_dynamodb(port: int = 0) -> AsyncIterator[Service]:
    """Run the service on a free port."""
    service = Service()
    server = await asyncio.start_server(service.serve, "127.0.0.1", port)
    service.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield service
    finally:
        server.close()


async def _read(reader: asyncio.StreamReader) -> ReceivedRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    headers = {
        name.lower(): value
        for name, _, value in (line.partition(": ") for line in head.split("\r\n"))
    }
    body = await reader.readexactly(int(headers["content-length"]))
    return ReceivedRequest(headers["x-amz-target"].rpartition(".")[2], json.loads(body))


def response(body: dict[str, Any], status: int = 200) -> Reply:
    """A complete response."""
    return _whole(json.dumps(body).encode(), status)


def refusal(code: str, message: str = "", status: int = 400, **fields: Any) -> Reply:
    """An error response in DynamoDB's format."""
    name = f"com.amazonaws.dynamodb.v20120810#{code}"
    return response({"__type": name, "message": message, **fields}, status)


def throttled() -> Reply:
    """A throttling error."""
    return refusal(
        "ProvisionedThroughputExceededException", "The level of configured throughput was exceeded"
    )


def cancelled(*codes: str, **fields: Any) -> Reply:
    """A cancelled transaction with one reason per item."""
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
    """No response: the connection closes."""
    writer.close()


async def reset(writer: asyncio.StreamWriter) -> None:
    """No response: the connection is reset."""
    writer.transport.abort()


async def cut_off(writer: asyncio.StreamWriter) -> None:
    """The first half of a response."""
    whole = _bytes(b'{"Attributes": {"count": {"N": "1"}}}', 200)
    writer.write(whole[: len(whole) - 10])
    await writer.drain()
    writer.close()


async def damaged(writer: asyncio.StreamWriter) -> None:
    """A complete response with a wrong checksum."""
    writer.write(_bytes(b'{"Item": {"id": {"S": "another"}}}', 200, checksum=1))


async def silence(writer: asyncio.StreamWriter) -> None:
    """No response, and the connection stays open."""


async def broken(writer: asyncio.StreamWriter) -> None:
    """An internal error of the service."""
    await refusal("InternalServerError", "The request could not be completed", 500)(writer)


async def gateway(writer: asyncio.StreamWriter) -> None:
    """An error of a gateway, not in DynamoDB's format."""
    writer.write(_bytes(b"<html>Bad Gateway</html>", 502))


async def impostor(writer: asyncio.StreamWriter) -> None:
    """A proxy's page with status 200."""
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
    head = (
        f"HTTP/1.1 {status} Fake\r\nContent-Type: application/x-amz-json-1.0\r\n"
        f"Content-Length: {len(body)}\r\nx-amz-crc32: {crc}"
    )
    return head.encode() + b"\r\n\r\n" + body


class InstantClock(Clock):
    """A clock whose sleeps return immediately and are recorded.

    `at_pause` is called before each.
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


@dataclass(frozen=True, slots=True)
class FakeDynamoDB:
    """A service, a clock and an engine, shared by many tests because creating a client is slow."""

    service: Service
    clock: InstantClock
    engine: DynamoDBEngine

    def reset_state(self) -> None:
        """Forget requests, replies and pauses."""
        self.service.reset_state()
        self.clock.pauses.clear()
