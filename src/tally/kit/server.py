"""Serves an app with uvicorn's server and Tally's own HTTP connections; shuts down gracefully.

The socket listens before anything else starts, so that a port conflict is reported immediately.
Shutdown has four steps. First the app reports that it is not ready, while the server still accepts
connections for the delay, so that load balancers can take the instance out. Then the listener
closes and streams end. Then running requests get a grace period. Then the app's lifespan closes its
resources. A second Ctrl-C stops immediately.
"""

import asyncio
import errno
import gc
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

import uvicorn
import uvloop
from starlette.applications import Starlette

from tally.kit.connection_table import ConnectionTable, HttpLimits
from tally.kit.hosts import HostCheck
from tally.kit.http_connection import HttpConnection

GC_THRESHOLD = 50_000
SWITCH_INTERVAL_SECONDS = 0.001
GC_TICKS = 600  # one minute: the server ticks ten times a second
SWEEP_TICKS = 10  # one second
MAX_WEB_SOCKET_MESSAGE = 1024 * 1024  # also the limit of the console's framework


class ListenError(Exception):
    """The server cannot listen on an address; the message gives the reason."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on the address, or raise ListenError."""
    try:
        # A name such as localhost may have several addresses; clients usually try IPv4.
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
        listening = socket.create_server(address[:2], family=family, backlog=2048)
    except socket.gaierror as error:
        raise ListenError(f"Cannot resolve {host}: {error.strerror}") from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ListenError(f"Port {port} on {host} is already in use") from error
        raise ListenError(f"Cannot listen on {host}:{port}: {error.strerror}") from error
    # Connections inherit this. Without it, the second part of a response can wait 40 ms for the
    # acknowledgement of the first.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def socket_url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """Serves `app` until it is stopped.

    `on_draining` is called when the stop is requested, `on_stopping` after `delay` seconds. With
    `owns_process`, it also tunes garbage collection for the whole process.
    """

    def __init__(
        self,
        app: Starlette,
        *,
        grace: int = 10,
        delay: float = 0,
        limits: HttpLimits | None = None,
        trusted_proxies: tuple[str, ...] = ("127.0.0.1",),
        allowed_hosts: Collection[str] = (),
        owns_process: bool = False,
        on_listening: Callable[[], object] = lambda: None,
        on_draining: Callable[[], object] = lambda: None,
        on_stopping: Callable[[], object] = lambda: None,
    ) -> None:
        config = uvicorn.Config(
            HostCheck(app, allowed_hosts),
            interface="asgi3",
            http=cast(type[asyncio.Protocol], HttpConnection),
            lifespan="off",  # `serve_on` runs it, so that its errors are raised there
            log_config=None,
            access_log=False,
            server_header=False,
            forwarded_allow_ips=list(trusted_proxies),
            date_header=False,
            ws_max_size=MAX_WEB_SOCKET_MESSAGE,
            timeout_graceful_shutdown=grace,
        )
        super().__init__(config)
        self.server_state: ConnectionTable = ConnectionTable(
            limits or HttpLimits(), trusted_proxies
        )
        self._delay = delay
        self._app = app
        self._has_process = owns_process
        self._on_listening = on_listening
        self._on_draining = on_draining
        self._on_stopping = on_stopping

    async def serve_on(self, listening: socket.socket, stop: asyncio.Event) -> None:
        """Start the app, serve on the socket until `stop` is set, and shut down."""
        watcher = asyncio.create_task(self._exit_when(stop))
        # The app may inspect the server's configuration during start-up.
        self.config.load()
        try:
            async with self._app.router.lifespan_context(self._app):
                await self.serve([listening])
        finally:
            watcher.cancel()
            listening.close()

    async def _exit_when(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._on_draining()
        self.server_state.is_draining = True
        await asyncio.sleep(self._delay)
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._has_process:
            # Objects created at start-up live as long as the process. Scanning them in every full
            # collection paused the server for 60 ms and more.
            gc.collect()
            gc.freeze()
        self._on_listening()

    async def on_tick(self, counter: int) -> bool:
        if counter % SWEEP_TICKS == 0:
            self.server_state.sweep(asyncio.get_running_loop().time())
        if self._has_process and counter % GC_TICKS == 0:
            # Python runs a full collection only after millions of allocations. An idle server would
            # keep the memory of closed console pages for hours.
            gc.collect()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_stopping()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `run_until_stopped`; uvicorn would change the exit code."""
        yield


def run_until_stopped(main: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """Run `main` in a new event loop.

    The first SIGINT or SIGTERM sets the event passed to `main`. The second cancels `main` and exits
    with the status of a program that the signal ended.
    """
    second_signals: list[signal.Signals] = []

    async def run_main() -> None:
        stop = asyncio.Event()
        task = asyncio.current_task()

        def on_signal(number: signal.Signals) -> None:
            if stop.is_set() and task is not None:
                second_signals.append(number)
                task.cancel()
            stop.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, on_signal, number)
        await main(stop)

    tune_interpreter()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(run_main())
        except asyncio.CancelledError:
            if not second_signals:
                raise
            sys.exit(128 + second_signals[0])


def tune_interpreter() -> None:
    """Tune garbage collection and thread switching for a server process."""
    # Most objects live for one request, and few are part of a cycle. With a threshold of 10,000,
    # cycle detection took 6 % of the event loop's time under full load.
    gc.set_threshold(GC_THRESHOLD, 20, 20)
    # Limits how long a thread that returns from disk I/O waits for the GIL of a busy event loop.
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)


@asynccontextmanager
async def serving(
    app: Starlette,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    grace: int = 10,
    limits: HttpLimits | None = None,
    trusted_proxies: tuple[str, ...] = ("127.0.0.1",),
    on_stopping: Callable[[], object] = lambda: None,
) -> AsyncIterator[str]:
    """Serve `app` in the current event loop and yield its URL; for simulators and tests."""
    listening = listen(host, port)
    is_listening, stop = asyncio.Event(), asyncio.Event()
    server = Server(
        app,
        grace=grace,
        limits=limits,
        trusted_proxies=trusted_proxies,
        on_listening=is_listening.set,
        on_stopping=on_stopping,
    )
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
