"""A server listens before it reports so, reports a port conflict, and shuts down gracefully."""

import asyncio
import gc
import socket
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from pyreqwest.client import Client
from pyreqwest.exceptions import ConnectError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket
from websockets.asyncio.client import connect

from tally.kit.clock import SystemClock
from tally.kit.event_stream import EventStream, StateSource
from tally.kit.http import Json
from tally.kit.hub import Hub
from tally.kit.metrics import Metrics
from tally.kit.server import (
    GC_THRESHOLD,
    GC_TICKS,
    SWITCH_INTERVAL_SECONDS,
    ListenError,
    Server,
    listen,
    serving,
    socket_url,
)
from tests.kit.raw_client import connected
from tests.kit.serving import serve_handler


def test_port_0_selects_a_free_port() -> None:
    with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        assert port > 0
        assert socket_url(listening) == f"http://127.0.0.1:{port}"
        with socket.create_connection(("127.0.0.1", port)) as connection:
            assert connection.getpeername()[1] == port


def test_connections_have_tcp_nodelay() -> None:
    """Nagle's algorithm is disabled on every event loop."""
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def test_a_host_name_is_resolved() -> None:
    with listen("localhost", 0) as listening:
        assert socket_url(listening).startswith("http://127.0.0.1:")


def test_an_ipv6_address_is_in_brackets() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 on this machine")
    with listen("::1", 0) as listening:
        assert socket_url(listening).startswith("http://[::1]:")


def test_a_port_in_use_is_reported() -> None:
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(ListenError, match=f"Port {port} on 127.0.0.1 is already in use"):
            listen("127.0.0.1", port)


def test_an_address_of_another_machine_is_rejected() -> None:
    with pytest.raises(ListenError, match=r"Cannot listen on 192\.0\.2\.1:0"):
        listen("192.0.2.1", 0)


def test_an_unknown_host_name_is_rejected() -> None:
    with pytest.raises(ListenError, match="Cannot resolve"):
        listen("no such host", 0)


async def test_shutdown_lets_requests_in_flight_finish(client: Client) -> None:
    """New connections are refused meanwhile, and the lifespan ends last."""
    order: list[str] = []
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_: Request) -> Response:
        arrived.set()
        await go_on.wait()
        order.append("answered")
        return PlainTextResponse("done")

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        order.append("started")
        yield
        order.append("closed")

    app = Starlette(routes=[Route("/", slow)], lifespan=lifespan)
    listening, stop, stopping = listen("127.0.0.1", 0), asyncio.Event(), asyncio.Event()
    url = socket_url(listening)
    server = Server(app, on_stopping=stopping.set)
    running = asyncio.create_task(server.serve_on(listening, stop))
    in_flight = asyncio.create_task(client.get(url).build().send())
    await arrived.wait()
    stop.set()
    await stopping.wait()
    await asyncio.sleep(0)
    with pytest.raises(ConnectError):
        await client.get(url).build().send()
    go_on.set()
    assert await (await in_flight).text() == "done"
    await running
    assert order == ["started", "answered", "closed"]


@pytest.mark.parametrize("first", [b"", b"GET / HTTP/1.1\r\nHost: loc"], ids=["nothing", "half"])
async def test_a_request_on_its_way_at_shutdown_is_answered(first: bytes) -> None:
    """The server has accepted its connection, and reads the rest only after the stop."""
    request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"

    async def answer(_: Request) -> Response:
        return PlainTextResponse("done")

    app, stopping = Starlette(routes=[Route("/", answer)]), asyncio.Event()

    def send_rest() -> None:
        client.send(request.removeprefix(first))
        stopping.set()

    context = serving(app, on_stopping=send_rest)
    url = await context.__aenter__()
    async with connected(url) as client, connected(url) as other:
        client.send(first)
        await other.get()  # by then the server has read the first part
        stopped = asyncio.create_task(context.__aexit__(None, None, None))
        await stopping.wait()
        response = await client.response()
        assert (response.status, response.headers["connection"]) == (200, "close")
        assert await client.is_closed()
        await stopped


async def test_the_server_accepts_connections_during_the_shutdown_delay() -> None:
    """Responses then close their connections, and streams end with a reconnection delay last."""
    hub, order = Hub(SystemClock(), Metrics()), list[str]()
    hub_closed = asyncio.Event()

    async def current() -> tuple[str, object]:
        return "state", {}

    async def events(request: Request) -> EventStream:
        return EventStream(hub, StateSource("topic", current), request)

    async def fast(_: Request) -> Response:
        order.append("answered")
        return PlainTextResponse("done")

    def close() -> None:
        order.append("stopping")
        hub.close()
        hub_closed.set()

    app = Starlette(routes=[Route("/", fast), Route("/events", events)])
    listening, stop, draining = listen("127.0.0.1", 0), asyncio.Event(), asyncio.Event()
    url = socket_url(listening)
    server = Server(app, delay=0.5, on_draining=draining.set, on_stopping=close)
    running = asyncio.create_task(server.serve_on(listening, stop))
    async with connected(url) as kept, connected(url) as subscriber:
        assert "connection" not in (await kept.get()).headers
        subscriber.send(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await subscriber.response(has_body=False)
        stop.set()
        await draining.wait()
        assert (await kept.get()).headers["connection"] == "close"
        async with connected(url) as new:
            assert (await new.get()).headers["connection"] == "close"
        assert not hub_closed.is_set()
        assert b"retry: " in await subscriber.read_to_end()
    await running
    assert order == ["answered"] * 3 + ["stopping"]


async def test_head_and_body_arrive_together() -> None:
    """The first read returns both, also on a reused connection."""

    async def small(_: Request) -> Response:
        return PlainTextResponse("small")

    async with serving(Starlette(routes=[Route("/", small)])) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        for connection in ("keep-alive", "close"):
            head = f"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: {connection}"
            writer.write(f"{head}\r\n\r\n".encode())
            response = await reader.read(65_536)
            assert response.startswith(b"HTTP/1.1 200 OK\r\n")
            assert response.endswith(b"\r\n\r\nsmall")
        assert await reader.read() == b""
        writer.close()


async def test_web_sockets_are_served() -> None:
    async def echo(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text(await socket.receive_text() * 2)
        await socket.close()

    async with (
        serving(Starlette(routes=[WebSocketRoute("/", echo)])) as url,
        connect(url.replace("http", "ws")) as client,
    ):
        await client.send("ab")
        assert [message async for message in client] == ["abab"]


async def test_garbage_is_collected_once_a_minute() -> None:
    class Loop:
        def __init__(self) -> None:
            self.myself = self

    server = Server(Starlette(), owns_process=True)
    gc.disable()
    try:
        found = weakref.ref(Loop())
        await server.on_tick(1)
        assert found() is not None
        await server.on_tick(GC_TICKS)
        assert found() is None
    finally:
        gc.enable()


async def test_a_request_beyond_the_grace_period_is_aborted(client: Client) -> None:
    """It is no error of the server, and the client may retry it elsewhere."""
    arrived, cancelled = asyncio.Event(), asyncio.Event()

    async def stuck(_: Request) -> Response:
        arrived.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return Json({})

    async with serve_handler(stuck, grace=0) as url:
        in_flight = asyncio.create_task(client.post(url).build().send())
        await arrived.wait()
    assert cancelled.is_set()
    response = await in_flight
    assert (response.status, response.headers["retry-after"]) == (503, "1")
    assert (await response.json())["code"] == "shutting_down"


async def test_a_start_up_error_is_raised() -> None:
    """The socket is closed."""
    store: str | None = None

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        if not store:
            raise RuntimeError("no store today")
        yield

    with pytest.raises(RuntimeError, match="no store today"):
        async with serving(Starlette(lifespan=lifespan)):
            pass


async def test_a_stop_during_start_up_stops() -> None:
    listening, stop = listen("127.0.0.1", 0), asyncio.Event()
    stop.set()
    await Server(Starlette()).serve_on(listening, stop)
    assert listening.fileno() == -1


def test_a_server_process_tunes_thread_switching_and_garbage_collection() -> None:
    """Runs in a child process, because both settings are process-wide."""
    program = (
        "import gc, sys\n"
        "from tally.kit.server import run_until_stopped\n"
        "async def main(stop):\n"
        "    print(gc.get_threshold()[0], round(sys.getswitchinterval() * 1000, 3))\n"
        "run_until_stopped(main)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == [str(GC_THRESHOLD), str(SWITCH_INTERVAL_SECONDS * 1000)]
