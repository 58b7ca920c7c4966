"""One client connection: parses requests with httptools and runs them in order.

The heads and bodies of requests are bounded, and so is the time that a client may take. While a
request runs, the connection does not read, so a client cannot fill the memory with requests.
"""

import asyncio
import zlib
from collections import deque
from collections.abc import Coroutine, Generator
from typing import Any, Final, NamedTuple

import httptools
import msgspec

from tally.errors import TallyError
from tally.kit.connection_table import ConnectionTable
from tally.kit.hosts import AllowedHosts
from tally.store.wire.compression import compress_payload, decompress_payload
from tally.store.wire.request_ids import RequestIds
from tally.store.wire.service import ServedStore
from tally.store.wire.service_errors import ServiceError, coral_error
from tally.store.wire.signing import SignatureCheck, check_authorization

MAX_BODY_BYTES: Final = 16 * 1024 * 1024
_STATUS: Final = {
    200: b"200 OK",
    400: b"400 Bad Request",
    404: b"404 Not Found",
    408: b"408 Request Timeout",
    413: b"413 Request Entity Too Large",
    421: b"421 Misdirected Request",
    431: b"431 Request Header Fields Too Large",
    500: b"500 Internal Server Error",
    503: b"503 Service Unavailable",
}
_JSON: Final = b"application/x-amz-json-1.0"
_JSON_LINE: Final = b"content-type: application/x-amz-json-1.0\r\n"
_NOT_ROUTED: Final = b"<UnknownOperationException/>\n"  # the service's response to any other path
_TOO_LARGE: Final = "The request body must be at most 16777216 bytes"


class WireRequest(NamedTuple):
    """A complete request."""

    method: bytes
    url: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes
    keep_alive: bool
    values: dict[bytes, bytes]  # the headers by name, of which the last one counts


class WireServer(NamedTuple):
    """What all connections of one server share; `signatures` is None on loopback."""

    store: ServedStore
    table: ConnectionTable
    hosts: AllowedHosts
    signatures: SignatureCheck | None
    tasks: set["asyncio.Task[None]"]
    request_ids: RequestIds


class WireConnection(asyncio.Protocol):
    """The protocol of a connection; also the callbacks of its parser."""

    def __init__(self, server: WireServer) -> None:
        self._server = server
        self._limits = server.table.limits
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self.transport: asyncio.Transport
        self.address = ""
        self.deadline = float("inf")
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._values: dict[bytes, bytes] = {}
        self._header_bytes = 0
        self._head_bytes = 0
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._queue: deque[WireRequest] = deque()
        self._is_running = False
        self._is_closing = False
        self._is_paused = False
        self._writable = True

    # The transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # a TCP transport
        peer = transport.get_extra_info("peername")
        if self._server.table.admit(self, str(peer[0]) if peer else ""):
            self._wait(self._limits.timeouts.head)
        else:
            self._refuse(coral_error("ServiceUnavailable", "Too many connections", 503))

    def connection_lost(self, _: Exception | None) -> None:
        self._server.table.remove(self)
        self._is_closing = True
        self._queue.clear()

    def pause_writing(self) -> None:
        self._writable = False
        self._wait(self._limits.timeouts.write)

    def resume_writing(self) -> None:
        self._writable = True
        self._next()

    def data_received(self, data: bytes) -> None:
        if self._is_closing:
            return
        self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(coral_error("UnknownOperationException", None, 404))
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(
                cause if isinstance(cause, ServiceError) else coral_error("MalformedHttpRequest")
            )
        else:
            if self._body_bytes == 0 and self._head_bytes > self._limits.header_bytes + len(data):
                self._refuse(_headers_too_large())
        if not self._is_running:
            self._next()

    def time_out(self) -> None:
        """End a connection whose client takes too long; the table calls it."""
        if self._writable and (self._head_bytes or self._headers or self._body):
            self._refuse(coral_error("RequestTimeout", "The request took too long", 408))
        else:
            self.transport.abort()

    # The parser

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = []
        self._header_bytes = 0
        self._body = []
        self._body_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value) + 4
        self._headers.append((name.lower(), value))
        if len(self._headers) > self._limits.header_count:
            raise _headers_too_large()

    def on_headers_complete(self) -> None:
        if self._header_bytes + len(self._url) > self._limits.header_bytes:
            raise _headers_too_large()
        values = self._values = dict(self._headers)
        if int(values.get(b"content-length", b"0")) > MAX_BODY_BYTES:
            raise coral_error("RequestEntityTooLargeException", _TOO_LARGE, 413)
        if values.get(b"expect", b"").lower() == b"100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        self._body_bytes += len(body)
        if self._body_bytes > MAX_BODY_BYTES:
            raise coral_error("RequestEntityTooLargeException", _TOO_LARGE, 413)
        self._body.append(body)

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        method, keep_alive = self._parser.get_method(), self._parser.should_keep_alive()
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._queue.append(
            WireRequest(method, self._url, self._headers, body, keep_alive, self._values)
        )
        self._headers, self._body = [], []

    # Requests

    def _next(self) -> None:
        """Run the queued requests until one has to wait, or none is left."""
        while self._queue and not self._is_running and self._writable and not self._is_closing:
            self._server.table.waiting.pop(self, None)
            self.deadline = float("inf")
            self._serve(self._queue.popleft())
        if self._is_closing:
            return
        if self._is_running:
            self._is_paused = True
            self.transport.pause_reading()
        elif self._writable:
            is_idle = not (self._head_bytes or self._headers or self._body)
            timeouts = self._limits.timeouts
            self._wait(timeouts.idle if is_idle else timeouts.body)
            if self._is_paused:
                self._is_paused = False
                self.transport.resume_reading()

    def _serve(self, request: WireRequest) -> None:
        """Respond at once to a refused request and to a simple read; run the others."""
        keep_alive = request.keep_alive
        try:
            self._check(request)
            payload = decompress_payload(request.values, request.body, MAX_BODY_BYTES)
        except ServiceError as error:
            self._write(error.status, _error_body(error), keep_alive=keep_alive)
            return
        except TallyError as error:
            failed = coral_error("AccessDeniedException", error.message)
            self._write(421, msgspec.json.encode(failed.body), keep_alive=keep_alive)
            return
        values = request.values
        if request.method == b"GET":
            self._write(200, b"healthy: " + values[b"host"], keep_alive=keep_alive)
            return
        target = values[b"x-amz-target"].decode("latin-1")
        accepted = values.get(b"accept-encoding", b"")
        body = self._server.store.respond_now(target, payload)
        if body is not None:
            self._write(200, body, keep_alive=keep_alive, accepted=accepted)
            return
        self._is_running = True
        self._start(self._run(target, payload, keep_alive=keep_alive, accepted=accepted))

    def _start(self, running: Coroutine[Any, Any, None]) -> None:
        """Run a request without a task if it does not wait, as most reads do not."""
        try:
            waited_for = running.send(None)
        except StopIteration:
            return
        task = self._loop.create_task(_resume(running, waited_for))
        self._server.tasks.add(task)
        task.add_done_callback(self._server.tasks.discard)
        task.add_done_callback(lambda _: self._next())

    async def _run(self, target: str, body: bytes, *, keep_alive: bool, accepted: bytes) -> None:
        try:
            status, response = await self._server.store.respond(target, body)
            self._write(status, response, keep_alive=keep_alive, accepted=accepted)
        finally:
            self._is_running = False

    def _check(self, request: WireRequest) -> None:
        """Check the front end's rules, before the operation."""
        values = request.values
        is_repeated = len(values) < len(request.headers) and (
            sum(name == b"host" for name, _ in request.headers) > 1
        )
        self._server.hosts.check(b"" if is_repeated else values.get(b"host", b""))
        if request.method == b"GET" and request.url == b"/":
            return
        is_routed = request.method == b"POST" and request.url.partition(b"?")[0] == b"/"
        if not is_routed or not _is_json(values.get(b"content-type", _JSON)):
            raise coral_error("UnknownOperationException", None, 404)
        if b"x-amz-target" not in values:
            raise coral_error("UnknownOperationException", None, 400)
        check_authorization(request.url, values)
        if self._server.signatures is not None:
            self._server.signatures.check(request.url, request.headers, request.body)

    # Responses

    def _write(self, status: int, body: bytes, *, keep_alive: bool, accepted: bytes = b"") -> None:
        """Send a response; `accepted` are the encodings that the client accepts."""
        if self._is_closing or self.transport.is_closing():
            return
        body, encoding = compress_payload(accepted, body) if accepted else (body, b"")
        self.transport.write(
            b"HTTP/1.1 %b\r\n%b%bcontent-length: %d\r\n"
            b"x-amzn-requestid: %b\r\nx-amz-crc32: %d\r\n%b%b\r\n%b"
            % (
                _STATUS[status],
                self._server.table.date_line,
                b"" if status == 404 else _JSON_LINE,
                len(body),
                self._server.request_ids.next(),
                zlib.crc32(body),
                encoding,
                b"" if keep_alive else b"connection: close\r\n",
                body,
            )
        )
        if not keep_alive or self._server.table.is_draining:
            self._is_closing = True
            self.transport.close()

    def _refuse(self, error: ServiceError) -> None:
        """Send an error and end the connection; what follows cannot be understood."""
        self._write(error.status, _error_body(error), keep_alive=False)
        self._is_closing = True

    def _wait(self, seconds: float) -> None:
        """Set the time by which the client has to act."""
        if not self._is_closing:
            self.deadline = self._loop.time() + seconds
            self._server.table.waiting.setdefault(self, None)

    def shutdown(self) -> None:
        """Close the connection now, or after the response that is on its way."""
        if not self._is_running:
            self._is_closing = True
            self.transport.close()


def _is_json(content_type: bytes) -> bool:
    """Whether the operations read bodies of this type; a request without a type is read, too."""
    return content_type == _JSON or (
        content_type.partition(b";")[0].strip().lower() in (_JSON, b"application/json")
    )


def _error_body(error: ServiceError) -> bytes:
    return _NOT_ROUTED if error.status == 404 else msgspec.json.encode(error.body)


def _headers_too_large() -> ServiceError:
    return coral_error("RequestHeaderFieldsTooLarge", "The headers are too large", 431)


class _Resumed:
    """The rest of a coroutine that has run up to its first wait."""

    def __init__(self, running: Coroutine[Any, Any, None], waited_for: Any) -> None:
        self._running = running
        self._waited_for = waited_for

    def __await__(self) -> Generator[Any, Any, None]:
        waited_for = self._waited_for
        while True:
            try:
                try:
                    yield waited_for
                except BaseException as error:  # noqa: BLE001 - for the coroutine to handle
                    waited_for = self._running.throw(error)
                else:
                    waited_for = self._running.send(None)
            except StopIteration:
                return


async def _resume(running: Coroutine[Any, Any, None], waited_for: Any) -> None:
    await _Resumed(running, waited_for)
