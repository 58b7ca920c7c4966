"""Connections are limited in total and per address, and silent ones give way to new ones."""

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket
from websockets.asyncio.client import connect

from tally.kit.connection_table import (
    RESERVED_DESCRIPTORS,
    HttpLimits,
    TrustedProxies,
    max_connections,
)
from tally.kit.server import serving
from tests.kit.raw_client import RawClient, connected

LOCAL, OTHER = "127.0.0.2", "127.0.0.3"
GET = b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n"


@dataclass
class Slow:
    """An app with a handler that waits."""

    running: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    def app(self) -> Starlette:
        routes = [Route("/", self.fast), Route("/slow", self.slow), WebSocketRoute("/ws", self.ws)]
        return Starlette(routes=routes)

    async def fast(self, _: Request) -> Response:
        return PlainTextResponse("ok")

    async def slow(self, _: Request) -> Response:
        self.running.release()
        await self.go_on.wait()
        return PlainTextResponse("ok")

    async def ws(self, socket: WebSocket) -> None:
        await socket.accept()
        await socket.receive()


@asynccontextmanager
async def busy(url: str, slow: Slow, count: int, source: str) -> AsyncIterator[list[RawClient]]:
    """Open connections whose requests are being processed."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(url, source)) for _ in range(count)]
        for client in clients:
            client.send(GET)
            await slow.running.acquire()
        yield clients


async def test_an_address_has_a_limit_of_its_own() -> None:
    """Beyond it, a connection is refused while all others of the address are busy."""
    slow, limits = Slow(), HttpLimits(connections_per_address=3)
    async with serving(slow.app(), limits=limits) as url, busy(url, slow, 3, LOCAL) as clients:
        async with connected(url, LOCAL) as excess:
            response = await excess.response()
            assert (response.status, response.problem["code"]) == (503, "too_many_connections")
            assert response.headers["retry-after"] == "1"
            assert await excess.is_closed()
        async with connected(url, OTHER) as other:
            assert (await other.get()).status == 200
        slow.go_on.set()
        for client in clients:
            assert (await client.response()).status == 200
        async with connected(url, LOCAL) as later:
            assert (await later.get()).status == 200


async def test_trusted_proxies_have_no_limit_of_their_own() -> None:
    """A proxy has the connections of many clients."""
    slow, limits = Slow(), HttpLimits(connections_per_address=3)
    async with (
        serving(slow.app(), limits=limits, trusted_proxies=("127.0.0.2", "10.0.0.0/8")) as url,
        busy(url, slow, 5, LOCAL),
        connected(url, LOCAL) as another,
    ):
        assert (await another.get()).status == 200
        slow.go_on.set()


@pytest.mark.parametrize(
    "limits", [HttpLimits(connections=3), HttpLimits(connections_per_address=3)]
)
async def test_a_new_connection_replaces_the_one_that_has_waited_longest(
    limits: HttpLimits,
) -> None:
    slow = Slow()
    async with (
        serving(slow.app(), limits=limits) as url,
        busy(url, slow, 1, LOCAL) as [working],
        connected(url, LOCAL) as first,
        connected(url, LOCAL) as second,
    ):
        assert (await first.get()).status == 200  # it begins to wait again
        async with connected(url, LOCAL) as new:
            assert (await new.get()).status == 200
            assert await second.is_closed()
            assert (await first.get()).status == 200
        slow.go_on.set()
        assert (await working.response()).status == 200


async def test_a_full_server_refuses_connections() -> None:
    slow, limits = Slow(), HttpLimits(connections=3)
    async with serving(slow.app(), limits=limits) as url, busy(url, slow, 3, LOCAL):
        async with connected(url, OTHER) as excess:
            assert (await excess.response()).status == 503
        slow.go_on.set()


async def test_web_sockets_are_counted_until_they_close() -> None:
    slow, limits = Slow(), HttpLimits(connections_per_address=2)
    async with serving(slow.app(), limits=limits, trusted_proxies=()) as url:
        path = f"{url.replace('http', 'ws')}/ws"
        async with connect(path), connect(path), connected(url) as excess:
            assert (await excess.response()).status == 503
        async with asyncio.timeout(30):
            while True:
                async with connected(url) as client:
                    if (await client.get()).status == 200:
                        break
                await asyncio.sleep(0.1)


def test_descriptors_limit_connections() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        assert max_connections(10_000) == 1024 - RESERVED_DESCRIPTORS
        assert max_connections(100) == 100
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_trusted_proxies_are_addresses_and_networks() -> None:
    proxies = TrustedProxies(("192.0.2.1", "10.0.0.0/8", "2001:db8::/32"))
    assert "192.0.2.1" in proxies
    assert "10.1.2.3" in proxies
    assert "2001:db8::1" in proxies
    assert "192.0.2.2" not in proxies
    assert "" not in proxies
    assert "198.51.100.1" in TrustedProxies(("*",))
    assert "127.0.0.1" not in TrustedProxies(())
