"""A server listens before it says so, refuses a port in use, and stops without cutting anybody off."""

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

from tally.kit.http import Json
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
from tests.kit.serving import served


def test_a_free_port_is_found_and_told() -> None:
    with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        assert port > 0
        assert socket_url(listening) == f"http://127.0.0.1:{port}"
        with socket.create_connection(("127.0.0.1", port)) as connection:
            assert connection.getpeername()[1] == port


def test_no_answer_waits_for_the_receipt_of_its_first_half() -> None:
    """Every connection has Nagle's algorithm off, on whatever loop it is served."""
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def test_a_name_is_an_address_too() -> None:
    with listen("localhost", 0) as listening:
        assert socket_url(listening).startswith("http://127.0.0.1:")


def test_an_ipv6_address_stands_in_brackets() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 on this machine")
    with listen("::1", 0) as listening:
        assert socket_url(listening).startswith("http://[::1]:")


def test_a_port_in_use_is_said_to_be() -> None:
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(ListenError, match=f"Port {port} on 127.0.0.1 is already in use"):
            listen("127.0.0.1", port)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(ListenError, match=r"Cannot listen on 192\.0\.2\.1:0"):
        listen("192.0.2.1", 0)


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(ListenError, match="Cannot resolve"):
        listen("no such host", 0)


async def test_a_stop_lets_requests_in_flight_finish(client: Client) -> None:
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
    under_way = asyncio.create_task(client.get(url).build().send())
    await arrived.wait()
    stop.set()
    await stopping.wait()
    await asyncio.sleep(0)
    with pytest.raises(ConnectError):
        await client.get(url).build().send()
    go_on.set()
    assert await (await under_way).text() == "done"
    await running
    assert order == ["started", "answered", "closed"]


async def test_an_answer_arrives_in_one_piece() -> None:
    """Head and body: the first thing that a client reads has both, also on a connection that was used before."""

    async def small(_: Request) -> Response:
        return PlainTextResponse("small")

    async with serving(Starlette(routes=[Route("/", small)])) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        for connection in ("keep-alive", "close"):
            writer.write(f"GET / HTTP/1.1\r\nHost: x\r\nConnection: {connection}\r\n\r\n".encode())
            answer = await reader.read(65_536)
            assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
            assert answer.endswith(b"\r\n\r\nsmall")
        assert await reader.read() == b""
        writer.close()


async def test_a_web_socket_is_served_beside() -> None:
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


async def test_a_program_looks_for_garbage_once_a_minute_however_little_it_does() -> None:
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


async def test_a_request_that_outlasts_the_grace_is_cut(client: Client) -> None:
    arrived, cancelled = asyncio.Event(), asyncio.Event()

    async def stuck(_: Request) -> Response:
        arrived.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return Json({})

    async with served(stuck, grace=0) as url:
        under_way = asyncio.create_task(client.post(url).build().send())
        await arrived.wait()
    assert cancelled.is_set()
    under_way.cancel()
    await asyncio.wait({under_way})


async def test_what_goes_wrong_at_the_start_is_raised() -> None:
    """And nothing is left listening."""
    store: str | None = None

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        if not store:
            raise RuntimeError("no store today")
        yield

    with pytest.raises(RuntimeError, match="no store today"):
        async with serving(Starlette(lifespan=lifespan)):
            pass


async def test_a_stop_before_the_start_is_over_is_a_stop() -> None:
    listening, stop = listen("127.0.0.1", 0), asyncio.Event()
    stop.set()
    await Server(Starlette()).serve_on(listening, stop)
    assert listening.fileno() == -1


def test_a_program_that_serves_gives_its_threads_short_turns_and_seldom_looks_for_cycles() -> None:
    """In a process of its own, since both hold for the whole process."""
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
