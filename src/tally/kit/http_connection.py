"""One client connection: parses requests with httptools, runs them in order, enforces limits.

The server reads a few kilobytes at a time and stops reading while a pipelined request waits, the
app has not read the body, or the client does not read its responses. A connection therefore holds
a bounded amount of memory, whatever its client sends.

An error that the parser finds ends the connection: the response is sent in order, and what the
client still sends is read and discarded for a moment. Otherwise the close would become a reset,
and the client might not see the response.
"""

import asyncio
from array import array
from collections import deque
from contextlib import suppress
from fcntl import ioctl
from termios import TIOCOUTQ
from typing import Any, Final, Literal

import httptools
import msgspec
from uvicorn import Config

from tally.kit.connection_table import ConnectionTable
from tally.kit.event_stream import ABORT
from tally.kit.http import PROBLEM_JSON, UNEXPECTED, Problem
from tally.kit.http_exchange import STATUS_LINES, HttpExchange
from tally.kit.http_parser import MALFORMED, READ_BYTES, RequestParser, RequestRefused
from tally.kit.ids import new_uuid

# Bytes per read of a body. All connections share the buffer: it is parsed before the next read.
BODY_READ_BYTES: Final = 65_536
# How much a closing connection reads and discards, and for how long.
LINGER_BYTES: Final = 1024 * 1024
LINGER_SECONDS: Final = 2.0
# How long a connection without a request stays open at shutdown and after its idle time.
ARRIVAL_SECONDS: Final = 0.25
# What a client must read of a response within the write time-out.
MIN_READ_BYTES: Final = 16_384

_buffer = memoryview(bytearray(BODY_READ_BYTES))
_head_buffer = _buffer[:READ_BYTES]

Phase = Literal["head", "body", "idle", "write", "close"]


class HttpConnection(asyncio.BufferedProtocol):
    """The protocol of a connection; uvicorn's server creates it."""

    def __init__(
        self,
        config: Config,
        server_state: ConnectionTable,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._config = config
        self._table = server_state
        self._timeouts = server_state.limits.timeouts
        self._app_state = app_state
        self._loop = _loop or asyncio.get_running_loop()
        self._parser = RequestParser(self, server_state.limits)
        self.transport: asyncio.Transport
        self.address = ""
        self.deadline = float("inf")
        self._phase: Phase | None = None
        self._is_closing = False
        self._is_read_paused = False
        self._writable = asyncio.Event()
        self._writable.set()
        # The exchange whose response is being sent, those that wait for their turn, and the one
        # whose request is being received.
        self._current: HttpExchange | None = None
        self._queue: deque[HttpExchange | Problem] = deque()
        self._receiving: HttpExchange | None = None
        self._discarded_bytes = 0
        # Bytes that the client had not read when the connection began to wait.
        self._unread_bytes = 0

    # The transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        peer = _address(transport, "peername")
        self._scope = {
            "type": "http",
            "asgi": ASGI_VERSION,
            "scheme": "http",
            "root_path": "",
            "server": _address(transport, "sockname"),
            "client": peer,
            "extensions": {ABORT: {"call": transport.abort}},
        }
        if self._table.admit(self, peer[0] if peer else ""):
            self._wait_for("head")
        else:
            self._refuse(TOO_MANY_CONNECTIONS)

    def connection_lost(self, _: Exception | None) -> None:
        self._table.remove(self)
        self._is_closing = True
        for exchange in (self._current, *self._queue):
            if isinstance(exchange, HttpExchange):
                exchange.disconnect()
        self._queue.clear()
        self._writable.set()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writable.clear()
        self._update_phase()

    def resume_writing(self) -> None:
        self._writable.set()
        self._update_phase()

    def get_buffer(self, _: int) -> memoryview:
        return _buffer if self._receiving is not None else _head_buffer

    def buffer_updated(self, size: int) -> None:
        if self._is_closing:
            self._discarded_bytes += size
            if self._discarded_bytes > LINGER_BYTES:
                self.transport.abort()
            return
        try:
            self._parser.feed(_buffer[:size])
        except httptools.HttpParserUpgrade:
            self._on_upgrade()
        except RequestRefused as refused:
            self._on_invalid(refused.problem)
        if self._queue:
            self._pause_reading()
        self._update_phase()

    # The parser

    def on_request(
        self, scope: dict[str, Any], *, keep_alive: bool, expects_continue: bool
    ) -> None:
        scope |= self._scope
        scope["state"] = self._app_state.copy()
        exchange = HttpExchange(
            self, scope, keep_alive=keep_alive, expects_continue=expects_continue
        )
        self._receiving = exchange
        if self._current is None:
            self._start(exchange)
        else:
            self._queue.append(exchange)

    def on_request_body(self, body: bytes) -> None:
        if self._receiving is not None and self._receiving.add_body(body):
            self._pause_reading()

    def on_request_end(self) -> None:
        if self._receiving is not None:
            self._receiving.end_body()
            self._receiving = None

    def _on_upgrade(self) -> None:
        if self._receiving is None and self._current is None:
            self._become_web_socket()
        elif self._current is not None and not self._current.keep_alive:
            self._is_closing = True  # an upgrade that Tally does not support is ignored
        else:
            self._on_invalid(MALFORMED)

    def _become_web_socket(self) -> None:
        """Hand the connection over to uvicorn's WebSocket protocol."""
        protocol_class: Any = self._config.ws_protocol_class
        if protocol_class is None:
            self._refuse(MALFORMED)  # the extra with WebSockets is not installed
            return
        self._table.upgrade(self)
        protocol = protocol_class(
            config=self._config, server_state=self._table, app_state=self._app_state
        )
        # Pausing makes the event loop choose between buffered and other protocols again.
        self.transport.pause_reading()
        protocol.connection_made(self.transport)
        self.transport.set_protocol(protocol)
        protocol.data_received(self._parser.head())
        if not protocol.handshake_initiated:
            # The library refused the head. The protocol would wait for another, without a time-out.
            self.transport.write(_render(MALFORMED, self._table.date_line))
            self.transport.close()
            return
        self.transport.resume_reading()

    def _on_invalid(self, problem: Problem) -> None:
        """End the connection with an error: in order, and after valid requests before it."""
        last = self._queue[-1] if self._queue else self._current
        if self._receiving is not None and self._receiving is self._current:
            self._refuse_current(problem)
        elif isinstance(last, HttpExchange) and not last.keep_alive:
            self._is_closing = True  # data after a request that closes the connection
        elif self._current is None:
            self._refuse(problem)
        else:
            if self._receiving is not None:
                self._queue.pop()
            self._queue.append(problem)

    # Exchanges

    @property
    def is_write_paused(self) -> bool:
        return not self._writable.is_set()

    @property
    def is_draining(self) -> bool:
        return self._table.is_draining

    @property
    def date_line(self) -> bytes:
        return self._table.date_line

    async def wait_until_writable(self) -> None:
        await self._writable.wait()

    def resume_reading(self) -> None:
        if self._is_read_paused and not self._queue:
            self._is_read_paused = False
            self.transport.resume_reading()

    def _pause_reading(self) -> None:
        if not self._is_read_paused and not self.transport.is_closing():
            self._is_read_paused = True
            self.transport.pause_reading()

    def _start(self, exchange: HttpExchange) -> None:
        self._current = exchange
        task = self._loop.create_task(exchange.run(self._config.loaded_app))
        self._table.tasks.add(task)
        task.add_done_callback(self._table.tasks.discard)

    def finish(self, exchange: HttpExchange) -> None:
        """Continue after a complete response: close, or begin with the next request."""
        self._current = None
        if not exchange.keep_alive:
            self._close(has_unread_body=not exchange.has_body_ended)
        elif self._queue:
            following = self._queue.popleft()
            if isinstance(following, Problem):
                self._refuse(following)
            else:
                self._start(following)
        if not self._is_closing:
            self.resume_reading()
        self._update_phase()

    def fail(self, exchange: HttpExchange, *, was_cancelled: bool = False) -> None:
        """End an exchange that the app did not complete."""
        if not exchange.is_disconnected and exchange is self._current:
            self._refuse_current(SHUTTING_DOWN if was_cancelled else UNEXPECTED)

    def shutdown(self) -> None:
        """Close the connection after the response that is being sent, or to a request on its way.

        Closing at once would reset a connection whose request the server has not read yet.
        """
        if self._current is None:
            self._loop.call_later(ARRIVAL_SECONDS, self._close_unused)
        else:
            self._current.keep_alive = False

    def _close_unused(self) -> None:
        if self._current is None and not self._is_closing:
            self._close()

    def _close_idle(self, deadline: float) -> None:
        """Close the connection unless a request has arrived since the deadline was compared."""
        if self.deadline == deadline:
            self._close_unused()

    def _refuse_current(self, problem: Problem) -> None:
        exchange, self._current = self._current, None
        if exchange is None or exchange.has_started:
            self.transport.abort()
        else:
            exchange.disconnect()
            self._refuse(problem)

    def _refuse(self, problem: Problem) -> None:
        if self.transport.is_closing():
            return
        self.transport.write(_render(problem, self._table.date_line))
        self._close(has_unread_body=True)

    def _close(self, *, has_unread_body: bool = False) -> None:
        self._is_closing = True
        self._queue.clear()
        if has_unread_body and not self.transport.is_closing():
            self.transport.write_eof()
            self.resume_reading()
        else:
            self.transport.close()
        self._update_phase()

    # Time-outs

    def _update_phase(self) -> None:
        """Note what the connection waits for; the table's sweep compares the deadline."""
        if self._is_closing:
            self._wait_for("close" if self._current is None else None)
        elif not self._writable.is_set():
            self._wait_for("write")
        elif self._current is None:
            self._wait_for("head" if self._parser.is_in_head else "idle")
        else:
            self._wait_for("body" if self._receiving is self._current else None)

    def _wait_for(self, phase: Phase | None) -> None:
        if phase == self._phase:
            return
        self._phase = phase
        self._table.waiting.pop(self, None)
        if phase is None or self not in self._table.connections:
            self.deadline = float("inf")
            return
        if phase in ("write", "close"):
            self._unread_bytes = _unread_bytes(self.transport)
        if phase == "close":
            seconds = self._timeouts.write if self._unread_bytes else LINGER_SECONDS
        else:
            seconds = getattr(self._timeouts, phase)
        self.deadline = self._loop.time() + seconds
        self._table.waiting[self] = None

    def time_out(self) -> None:
        if self._phase == "body":
            self._refuse_current(TIMED_OUT)
        elif self._phase == "head" and self._parser.is_in_head:
            self._refuse(TIMED_OUT)
        elif self._phase in ("head", "idle"):
            # After a stall of the event loop, a request may wait in the socket behind this call.
            self._loop.call_later(ARRIVAL_SECONDS, self._close_idle, self.deadline)
        elif not self._is_read_slowly():
            self.transport.abort()

    def _is_read_slowly(self) -> bool:
        """Extend the deadline of a slow client that has read since it was set."""
        unread_bytes = _unread_bytes(self.transport)
        if unread_bytes > self._unread_bytes - MIN_READ_BYTES:
            return False
        self._unread_bytes = unread_bytes
        self.deadline = self._loop.time() + self._timeouts.write
        return True


def _unread_bytes(transport: asyncio.Transport) -> int:
    """Return what the client has not received: the buffers of the transport and of the kernel.

    The kernel takes more from the transport only once a third of its buffer is free.
    """
    in_kernel = array("i", [0])
    with suppress(OSError):  # the connection is lost, or the system cannot tell
        ioctl(transport.get_extra_info("socket").fileno(), TIOCOUTQ, in_kernel)
    return transport.get_write_buffer_size() + in_kernel[0]


def _address(transport: asyncio.Transport, name: str) -> tuple[str, int] | None:
    address = transport.get_extra_info(name)
    return (str(address[0]), int(address[1])) if isinstance(address, tuple | list) else None


def _render(problem: Problem, date_line: bytes) -> bytes:
    """Return a response like those of the app, which closes the connection."""
    request_id = new_uuid()
    body = msgspec.json.encode(problem.body(request_id))
    headers = {
        **problem.headers,
        "content-type": PROBLEM_JSON,
        "x-request-id": request_id,
        "content-length": str(len(body)),
        "connection": "close",
    }
    lines = "".join(f"{name.lower()}: {value}\r\n" for name, value in headers.items())
    return b"".join(
        (STATUS_LINES[problem.status], date_line, lines.encode("latin-1"), b"\r\n", body)
    )


ASGI_VERSION: Final = {"version": "3.0", "spec_version": "2.3"}
TIMED_OUT: Final = Problem(408, "request_timeout", "The request took too long to arrive")
SHUTTING_DOWN: Final = Problem(
    503,
    "shutting_down",
    "The server stopped before the request was complete",
    headers={"Retry-After": "1"},
)
TOO_MANY_CONNECTIONS: Final = Problem(
    503,
    "too_many_connections",
    "Too many connections are open; try again later",
    headers={"Retry-After": "1"},
)
