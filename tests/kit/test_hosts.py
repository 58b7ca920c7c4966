"""A request reaches the app only if its Host header names an allowed host."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.websockets import WebSocket

from tally.kit.hosts import MAX_ACCEPTED_HOSTS, AllowedHosts
from tally.kit.server import Server, listen, socket_url

ALLOWED = ("tally.example.com", "*.games.example.com", "my_service")


async def hello(_: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


async def echo(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_text("hello")
    await websocket.close()


APP = Starlette(
    routes=[
        Route("/", hello, methods=["GET", "POST", "OPTIONS"]),
        WebSocketRoute("/ws", echo),
        Mount("/mounted", Starlette(routes=[Route("/", hello)])),
    ]
)


@dataclass(frozen=True, slots=True)
class RawServer:
    """A server that tests talk to with raw bytes."""

    port: int

    async def exchange(self, lines: Sequence[str | bytes]) -> bytes:
        """Send a request without a body and return the response."""
        encoded = [line if isinstance(line, bytes) else line.encode() for line in lines]
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(b"\r\n".join([*encoded, b"Connection: close", b"", b""]))
            return await asyncio.wait_for(reader.read(), 30)
        finally:
            writer.close()
            await writer.wait_closed()

    async def status(self, *lines: str | bytes, target: str = "GET / HTTP/1.1") -> int:
        response = await self.exchange((target, *lines))
        return int(response.split(b" ", 2)[1])

    async def problem(self, *lines: str | bytes) -> tuple[int, Any]:
        response = await self.exchange(("GET / HTTP/1.1", *lines))
        head, _, body = response.partition(b"\r\n\r\n")
        assert b"content-type: application/problem+json" in head.lower()
        return int(head.split(b" ", 2)[1]), json.loads(body)


@asynccontextmanager
async def serve(*allowed: str) -> AsyncIterator[RawServer]:
    listening, stop, is_listening = listen("127.0.0.1", 0), asyncio.Event(), asyncio.Event()
    server = Server(APP, allowed_hosts=allowed, on_listening=is_listening.set)
    running = asyncio.create_task(server.serve_on(listening, stop))
    port = urlsplit(socket_url(listening)).port
    await is_listening.wait()
    try:
        yield RawServer(port or 0)
    finally:
        stop.set()
        await running


@pytest.fixture
async def server() -> AsyncIterator[RawServer]:
    async with serve(*ALLOWED) as running:
        yield running


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:8080",
        "192.168.1.20:80",
        "203.0.113.9",
        "127.0.0.1.",
        "[::1]",
        "[::1]:8080",
        "[2001:DB8::1]",
        "[::ffff:127.0.0.1]:80",
        "localhost",
        "localhost:8080",
        "LocalHost",
        "localhost.",
        "localhost.:8080",
        "localhost:",
        "tally.example.com",
        "TALLY.Example.COM:443",
        "tally.example.com.",
        "a.games.example.com",
        "a.b.games.example.com:1",
        "my_service:8080",
    ],
)
async def test_ip_addresses_localhost_and_listed_names_pass(server: RawServer, host: str) -> None:
    assert await server.status(f"Host: {host}") == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "rebound.127.0.0.1.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "evil.localhost",
        "example.com",
        "games.example.com",
        "xgames.example.com",
        "notally.example.com",
        "tally.example.com.evil.example",
        "xn--lcalhost-55a",
        # Addresses in forms that no browser sends.
        "2130706433",
        "0x7f000001",
        "127.1",
        "127.0.0.01",
    ],
)
async def test_other_names_are_misdirected(server: RawServer, host: str) -> None:
    status, problem = await server.problem(f"Host: {host}")
    assert (status, problem["code"]) == (421, "misdirected_request")
    assert "TALLY_ALLOWED_HOSTS" in problem["detail"]
    assert problem["requestId"]


@pytest.mark.parametrize(
    "host",
    [
        b"",
        b" ",
        b".",
        b"localhost..",
        b".localhost",
        b"a..b",
        b"local host",
        b"localhost:80:80",
        b"localhost:-1",
        b"localhost:http",
        b"localhost:123456",
        b"localhost/evil",
        b"evil@localhost",
        b"localhost#evil",
        b"localhost,evil.example",
        b"http://localhost",
        b"::1",
        b"[::1",
        b"[]",
        b"[localhost]",
        b"[127.0.0.1]",
        b"[::1]evil",
        b"[fe80::1%25eth0]",
        b"[v1.a]",
        b"[:::1]",
        b"l\xc3\xb6calhost",
        b"%6cocalhost",
        b"*",
        b"a" * 300,
    ],
)
async def test_a_malformed_host_is_rejected(server: RawServer, host: bytes) -> None:
    status, problem = await server.problem(b"Host: " + host)
    assert (status, problem["code"]) == (400, "invalid_host")


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["Host: localhost", "Host: localhost"],
        ["Host: localhost", "Host: evil.example"],
        ["Host: evil.example", "HOST: localhost"],
    ],
    ids=["missing", "repeated", "foreign last", "foreign first"],
)
async def test_a_request_must_have_exactly_one_host(server: RawServer, lines: list[str]) -> None:
    assert await server.status(*lines) == 400


async def test_http_1_0_without_a_host_is_rejected(server: RawServer) -> None:
    assert await server.status(target="GET / HTTP/1.0") == 400


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "OPTIONS", "DELETE", "BREW"])
async def test_the_check_applies_to_every_method(server: RawServer, method: str) -> None:
    assert await server.status("Host: evil.example", target=f"{method} / HTTP/1.1") in {400, 421}


@pytest.mark.parametrize("path", ["/", "/mounted/", "/nothing", "//", "/mounted/../"])
async def test_the_check_applies_to_every_path(server: RawServer, path: str) -> None:
    assert await server.status("Host: evil.example", target=f"GET {path} HTTP/1.1") == 421


@pytest.mark.parametrize(
    ("url", "host", "expected"),
    [
        ("http://localhost/", "localhost", 200),
        ("http://[::1]:8080/", "localhost", 200),
        ("http://localhost/", "evil.example", 200),
        ("http://evil.example/", "localhost", 421),
        ("http://evil.example/", "evil.example", 421),
        ("http://localhost@evil.example/", "localhost", 421),
        ("//evil.example/", "localhost", 404),
    ],
)
async def test_the_host_of_an_absolute_url_takes_precedence(
    server: RawServer, url: str, host: str, expected: int
) -> None:
    assert await server.status(f"Host: {host}", target=f"GET {url} HTTP/1.1") == expected


@pytest.mark.parametrize(
    "header", ["X-Forwarded-Host: localhost", "Forwarded: host=localhost", "X-Host: localhost"]
)
async def test_forwarded_hosts_have_no_effect(server: RawServer, header: str) -> None:
    assert await server.status("Host: evil.example", header) == 421
    evil = header.replace("localhost", "evil.example")
    assert await server.status("Host: localhost", evil) == 200


async def test_a_request_that_was_accepted_does_not_open_the_connection_for_others(
    server: RawServer,
) -> None:
    """The check applies to each request of a connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    statuses = []
    for host in ("localhost", "evil.example", "localhost"):
        writer.write(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        statuses.append(int(head.split(b" ")[1]))
    writer.close()
    await writer.wait_closed()
    assert statuses == [200, 421, 200]


@pytest.mark.parametrize(
    ("host", "expected"), [("localhost", 101), ("evil.example", 421), ("a b", 400)]
)
async def test_websockets_are_checked(server: RawServer, host: str, expected: int) -> None:
    upgrade = (
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    request = "\r\n".join(["GET /ws HTTP/1.1", f"Host: {host}", *upgrade, "", ""])
    writer.write(request.encode())
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
    writer.close()
    await writer.wait_closed()
    assert int(head.split(b" ")[1]) == expected


async def test_an_asterisk_allows_every_name_but_no_malformed_one() -> None:
    async with serve("*") as server:
        assert await server.status("Host: anything.example") == 200
        assert await server.status("Host: a b") == 400
        assert await server.status() == 400


def test_the_memory_of_accepted_hosts_is_bounded() -> None:
    """A client that invents names cannot fill it."""
    allowed = AllowedHosts(("*",))
    for number in range(3 * MAX_ACCEPTED_HOSTS):
        allowed.check(b"h%d.example" % number)
    assert len(allowed._accepted) <= MAX_ACCEPTED_HOSTS
