"""One HTTP request and its response: the ASGI side of a connection."""

import asyncio
from http import HTTPStatus
from typing import Any, Final, Protocol

from starlette.types import ASGIApp, Message

from tally.kit import logs

STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
# Bytes of a body that wait for the app before the server stops reading.
MAX_BUFFERED_BODY: Final = 65_536
DISCONNECT: Final = {"type": "http.disconnect"}

_log = logs.logger()


class ExchangeConnection(Protocol):
    """What an exchange needs of its connection."""

    transport: asyncio.Transport

    @property
    def date_line(self) -> bytes: ...

    @property
    def is_draining(self) -> bool: ...

    @property
    def is_write_paused(self) -> bool: ...

    async def wait_until_writable(self) -> None: ...

    def resume_reading(self) -> None: ...

    def finish(self, exchange: "HttpExchange") -> None: ...

    def fail(self, exchange: "HttpExchange", *, was_cancelled: bool = False) -> None: ...


class HttpExchange:
    """Receives the body of a request and sends its response."""

    __slots__ = (
        "_body",
        "_body_size",
        "_connection",
        "_head",
        "_is_body_delivered",
        "_is_chunked",
        "_news",
        "_remaining",
        "expects_continue",
        "has_body_ended",
        "has_started",
        "is_complete",
        "is_disconnected",
        "keep_alive",
        "scope",
    )

    def __init__(
        self,
        connection: ExchangeConnection,
        scope: dict[str, Any],
        *,
        keep_alive: bool,
        expects_continue: bool,
    ) -> None:
        self._connection = connection
        self.scope = scope
        self.keep_alive = keep_alive
        self.expects_continue = expects_continue
        self._body: list[bytes] = []
        self._body_size = 0
        self.has_body_ended = False
        self._is_body_delivered = False
        self._news: asyncio.Event | None = None
        # The head waits for the first part of the body, so that both leave in one packet.
        self._head = b""
        self._is_chunked = False
        # None: the end of the connection is the end of the body.
        self._remaining: int | None = 0
        self.has_started = False
        self.is_complete = False
        self.is_disconnected = False

    def add_body(self, data: bytes) -> bool:
        """Add a part of the body; return whether the app should read before more is received."""
        self._body.append(data)
        self._body_size += len(data)
        self._notify()
        return self._body_size > MAX_BUFFERED_BODY

    def end_body(self) -> None:
        self.has_body_ended = True
        self._notify()

    def disconnect(self) -> None:
        self.is_disconnected = True
        self._notify()

    def _notify(self) -> None:
        if self._news is not None:
            self._news.set()

    async def run(self, app: ASGIApp) -> None:
        """Call the app; a response that it did not complete becomes an error.

        That is a 503 at the end of the grace period of a shutdown, which cancels this task, and
        otherwise a 500. If the response has begun, the connection is lost.
        """
        try:
            await app(self.scope, self.receive, self.send)
        except asyncio.CancelledError:
            self._connection.fail(self, was_cancelled=True)
            raise
        except Exception:  # noqa: BLE001  (the connection must not wait for a response)
            self._connection.fail(self)
            _log.exception("Request failed", action="request_failed")
        else:
            if not self.is_complete and not self.is_disconnected:
                self._connection.fail(self)
                _log.error("The app did not complete its response", action="response_incomplete")

    async def receive(self) -> Message:
        if self.expects_continue and not self.has_started:
            self.expects_continue = False
            self._connection.transport.write(CONTINUE)
        while not self._has_news():
            self._connection.resume_reading()
            self._news = self._news or asyncio.Event()
            self._news.clear()
            await self._news.wait()
        if self.is_disconnected or self.is_complete:
            return dict(DISCONNECT)
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body, self._body_size = [], 0
        self._is_body_delivered = self.has_body_ended
        return {"type": "http.request", "body": body, "more_body": not self.has_body_ended}

    def _has_news(self) -> bool:
        return bool(
            self._body
            or (self.has_body_ended and not self._is_body_delivered)
            or self.is_complete
            or self.is_disconnected
        )

    async def send(self, message: Message) -> None:
        if self._connection.is_write_paused:
            await self._connection.wait_until_writable()
        if self.is_disconnected:
            # An endless stream must not keep the event loop from cancelling it.
            await asyncio.sleep(0)
            return
        if not self.has_started:
            self._start(message)
        elif self.is_complete:
            raise RuntimeError(f"Message {message['type']} after the end of the response")
        else:
            self._continue(message)

    def _start(self, message: Message) -> None:
        """Build the head: `_continue` sends it with the first part of the body."""
        if message["type"] != "http.response.start":
            raise RuntimeError(f"Message {message['type']} before http.response.start")
        status, headers = message["status"], message.get("headers", ())
        lines = [STATUS_LINES[status], self._connection.date_line]
        has_length = has_close = False
        for name, value in headers:
            lines += (name, b": ", value, b"\r\n")
            if name == b"content-length":
                has_length = True
                self._remaining = int(value)
            elif name == b"connection" and value.lower() == b"close":
                has_close = True
                self.keep_alive = False
        if not self.has_body_ended or self._connection.is_draining:
            # The rest of an unread body would be taken for the next request.
            self.keep_alive = False
        if not self.keep_alive and not has_close:
            lines.append(b"connection: close\r\n")
        if self.scope["method"] == "HEAD" or status in (204, 304):
            self._remaining = 0
        elif not has_length and self.scope["http_version"] == "1.0":
            self._remaining = None
        elif not has_length:
            self._is_chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        head = b"".join(lines)
        _reject_line_breaks(head, len(lines), len(headers))
        self.has_started = True
        if self._is_chunked or self._remaining is None:
            # A stream may not send an event for a long time.
            self._connection.transport.write(head)
        else:
            self._head = head

    def _continue(self, message: Message) -> None:
        if message["type"] != "http.response.body":
            raise RuntimeError(f"Message {message['type']} instead of http.response.body")
        body, has_more = message.get("body", b""), message.get("more_body", False)
        if self.scope["method"] == "HEAD":
            body = b""
        elif self._is_chunked:
            body = _chunk(body, is_last=not has_more)
        elif self._remaining is not None:
            self._remaining -= len(body)
            if self._remaining < 0 or (self._remaining and not has_more):
                raise RuntimeError("The body's length differs from Content-Length")
        if self._head:
            body, self._head = self._head + body, b""
        if body:
            self._connection.transport.write(body)
        if not has_more:
            self.is_complete = True
            self._notify()
            self._connection.finish(self)


def _chunk(body: bytes, *, is_last: bool) -> bytes:
    end = b"0\r\n\r\n" if is_last else b""
    return b"%x\r\n%b\r\n%b" % (len(body), body, end) if body else end


def _reject_line_breaks(head: bytes, parts: int, headers: int) -> None:
    """Reject a header that would split the response, by counting the lines of the head."""
    lines = parts - 3 * headers
    if head.count(b"\n") != lines or head.count(b"\r") != lines or b"\0" in head:
        raise RuntimeError("A header of the response contains a line break")
