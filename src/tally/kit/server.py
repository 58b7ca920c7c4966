"""Serves an app on a real socket: uvicorn, with a stop that is clean.

The socket is bound and listening before anything else starts, so that a port in use is known at
once. A stop first tells the app, so that streams end; then requests under way have their grace to
finish; then the app's lifespan closes what it opened. A second Ctrl-C does not wait.
"""

import asyncio
import errno
import gc
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

import uvicorn
import uvloop
from starlette.applications import Starlette
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tally.kit.event_stream import ABORT

YOUNG_OBJECTS = 50_000
TURN_SECONDS = 0.001
TIDY_TICKS = 600  # of the server's clock, ten to the second: a minute
KEEP_ALIVE_SECONDS = 75  # longer than the idle time-out of the usual load balancers


class ListenError(Exception):
    """There is no listening on that address; the message says why, for a person."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on the address, or ListenError."""
    try:
        # A name such as localhost may stand for several addresses: of these, the one most clients
        # try.
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
        listening = socket.create_server(address[:2], family=family, backlog=2048)
    except socket.gaierror as error:
        raise ListenError(
            f"{host} is no address that this machine knows: {error.strerror}"
        ) from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ListenError(f"Port {port} on {host} is in use by another program") from error
        raise ListenError(f"Cannot listen on port {port} of {host}: {error.strerror}") from error
    # Connections inherit it. An answer goes out in two pieces, and the second would wait 40 ms for
    # the receipt of the first.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def socket_url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Gathering:
    """A transport that sends what was written in one turn of the loop in one piece.

    The head of an answer and its body are written one after the other. Each would be a system call
    of its own that wakes the client, which was a tenth of the processor time of a small request.
    """

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._waiting: list[bytes] = []

    def write(self, piece: bytes) -> None:
        if not self._waiting:
            self._loop.call_soon(self._send)
        self._waiting.append(piece)

    def writelines(self, pieces: Iterable[bytes]) -> None:
        self.write(b"".join(pieces))

    def write_eof(self) -> None:
        self._send()
        self._transport.write_eof()

    def close(self) -> None:
        self._send()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _send(self) -> None:
        pieces, self._waiting = self._waiting, []
        if pieces and not self._transport.is_closing():
            self._transport.write(b"".join(pieces))


class _Protocol(HttpToolsProtocol):
    """Sends an answer in one piece, and lets a response cut its own connection, which ASGI has no word for."""

    def connection_made(self, transport: Any) -> None:
        self._plain = transport
        super().connection_made(cast(asyncio.Transport, _Gathering(transport, self.loop)))

    def handle_websocket_upgrade(self) -> None:
        self.transport = self._plain
        super().handle_websocket_upgrade()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {ABORT: {"call": self.transport.abort}}


class Server(uvicorn.Server):
    """Serves `app` until it is told to stop.

    One that `owns_process` to itself may do with the interpreter as it likes.
    """

    def __init__(
        self,
        app: Starlette,
        *,
        grace: int = 10,
        trusted_proxies: str = "127.0.0.1",
        owns_process: bool = False,
        on_listening: Callable[[], object] = lambda: None,
        on_stopping: Callable[[], object] = lambda: None,
    ) -> None:
        config = uvicorn.Config(
            app,
            http=_Protocol,
            lifespan="off",  # run here, so that what goes wrong in it is raised here
            log_config=None,
            access_log=False,
            server_header=False,
            forwarded_allow_ips=trusted_proxies,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=grace,
        )
        super().__init__(config)
        self._app = app
        self._has_process = owns_process
        self._on_listening = on_listening
        self._on_stopping = on_stopping

    async def serve_on(self, listening: socket.socket, stop: asyncio.Event) -> None:
        """Start the app, serve on the socket until `stop` is set, and stop the app."""
        watcher = asyncio.create_task(self._exit_when(stop))
        # What starts with the app may look at the server that it is in.
        self.config.load()
        try:
            async with self._app.router.lifespan_context(self._app):
                await self.serve([listening])
        finally:
            watcher.cancel()
            listening.close()

    async def _exit_when(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._has_process:
            # What was made for the start stays to the end. To look for garbage in it too took 60 ms
            # and more each time, in which nobody was answered.
            gc.collect()
            gc.freeze()
        self._on_listening()

    async def on_tick(self, counter: int) -> bool:
        if self._has_process and counter % TIDY_TICKS == 0:
            # By itself Python would look through what has become old after millions of new objects,
            # in a quiet program after hours, and all the pages that people closed meanwhile would
            # be kept.
            gc.collect()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_stopping()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `run_until_stopped`: uvicorn would raise them again, and so end with their exit code."""
        yield


def run_until_stopped(main: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """Run `main` in a loop of its own.

    SIGINT or SIGTERM set the event it is given; a second one cancels it.
    """

    async def watched() -> None:
        stop = asyncio.Event()
        task = asyncio.current_task()

        def on_signal() -> None:
            if stop.is_set() and task is not None:
                task.cancel()
            stop.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, on_signal)
        await main(stop)

    _prepare_interpreter()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(watched())


def _prepare_interpreter() -> None:
    """Set Python up for a program that serves: it has the process to itself."""
    # Thousands of objects live for one request and die with it, hundreds of requests may be under
    # way, and hardly anything is ever in a cycle. With 10,000 the search for cycles took 6 % of the
    # loop's time under full load.
    gc.set_threshold(YOUNG_OBJECTS, 20, 20)
    # A thread that comes back from the disk waits for its turn at most so long, while the loop is
    # busy.
    sys.setswitchinterval(TURN_SECONDS)


@asynccontextmanager
async def serving(
    app: Starlette,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    grace: int = 10,
    on_stopping: Callable[[], object] = lambda: None,
) -> AsyncIterator[str]:
    """Serve `app` beside whatever this loop does, at the URL that is yielded; simulators and tests run this way."""
    listening = listen(host, port)
    is_listening, stop = asyncio.Event(), asyncio.Event()
    server = Server(app, grace=grace, on_listening=is_listening.set, on_stopping=on_stopping)
    running = asyncio.create_task(server.serve_on(listening, stop), name="server")
    started = asyncio.create_task(is_listening.wait())
    try:
        await asyncio.wait({running, started}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        yield socket_url(listening)
    finally:
        started.cancel()
        stop.set()
        await asyncio.wait({running})
    running.result()
