"""A connection parses HTTP strictly, answers in order, and holds a bounded amount of memory."""

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import cast

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from tally.kit.connection_table import HttpLimits, Timeouts
from tally.kit.http_connection import ARRIVAL_SECONDS
from tally.kit.http_parser import READ_BYTES
from tally.kit.server import Server, listen, serving, socket_url
from tests.embedded.harness import wait_until
from tests.kit.raw_client import RawClient, connected

LIMITS = HttpLimits(header_bytes=2_000, header_count=20, url_bytes=500)
SHORT = replace(LIMITS, timeouts=Timeouts(head=1, body=1, idle=1, write=1))
LARGE = b"x" * 1_000_000


async def echo(request: Request) -> Response:
    body = await request.body()
    headers = {"x-path": request.url.path, "x-query": request.url.query}
    return PlainTextResponse(b"%b:%b" % (request.method.encode(), body), headers=headers)


async def refuse(_: Request) -> Response:
    """Respond without reading the body."""
    return PlainTextResponse("too large", 413)


async def stream(request: Request) -> Response:
    await request.body()

    async def parts() -> AsyncIterator[str]:
        yield "one"
        yield "two"

    return StreamingResponse(parts())


async def large(_: Request) -> Response:
    return Response(LARGE)


async def split(_: Request) -> Response:
    return Response(headers={"x-name": "a\r\nset-cookie: b=c"})


async def empty(_: Request) -> Response:
    return Response(status_code=204)


ROUTES = {"/": echo, "/a": echo, "/refuse": refuse, "/stream": stream, "/large": large}
APP = Starlette(
    routes=[
        *(Route(path, handler, methods=["GET", "POST"]) for path, handler in ROUTES.items()),
        Route("/split", split),
        Route("/empty", empty),
    ]
)


@pytest.fixture(scope="module")
async def url() -> AsyncIterator[str]:
    async with serving(APP, limits=LIMITS) as url:
        yield url


@pytest.fixture
async def client(url: str) -> AsyncIterator[RawClient]:
    async with connected(url) as client:
        yield client


def head(*lines: str, start: str = "POST / HTTP/1.1") -> bytes:
    return "".join(f"{line}\r\n" for line in (start, "Host: localhost", *lines, "")).encode()


# Requests and responses


async def test_pipelined_requests_are_answered_in_order(client: RawClient) -> None:
    for number in range(50):
        body = str(number)
        client.send(head(f"Content-Length: {len(body)}") + body.encode())
        client.send(head(start=f"GET /a?{number} HTTP/1.1"))
    for number in range(50):
        assert (await client.response()).body == f"POST:{number}".encode()
        assert (await client.response()).headers["x-query"] == str(number)


async def test_a_request_may_arrive_byte_by_byte(client: RawClient) -> None:
    for byte in head("Content-Length: 2", start="POST /a?b=c HTTP/1.1") + b"ok":
        client.send(bytes([byte]))
        await asyncio.sleep(0)
    response = await client.response()
    assert (response.body, response.headers["x-query"]) == (b"POST:ok", "b=c")


async def test_chunked_bodies_are_joined_and_trailers_ignored(client: RawClient) -> None:
    client.send(head("Transfer-Encoding: chunked"))
    client.send(b"3\r\nabc\r\n2;name=value\r\nde\r\n0\r\nX-Trailer: 1\r\n\r\n")
    assert (await client.response()).body == b"POST:abcde"
    assert (await client.get()).status == 200


async def test_a_large_body_is_received_whole(client: RawClient) -> None:
    client.send(head(f"Content-Length: {len(LARGE)}") + LARGE)
    assert (await client.response()).body == b"POST:" + LARGE


async def test_streams_are_chunked_and_flushed(client: RawClient) -> None:
    assert (await client.get("/stream")).body == b"onetwo"
    assert (await client.get()).status == 200


async def test_responses_without_a_body(client: RawClient) -> None:
    client.send(head(start="HEAD / HTTP/1.1"))
    response = await client.response(has_body=False)
    assert response.headers["content-length"] == str(len(b"HEAD:"))
    assert "transfer-encoding" not in (await client.get("/empty")).headers
    assert (await client.get()).status == 200


@pytest.mark.parametrize(
    "request_head",
    [head("Connection: close", start="GET / HTTP/1.1"), head(start="GET / HTTP/1.0")],
)
async def test_a_client_can_end_the_connection(client: RawClient, request_head: bytes) -> None:
    """What follows such a request is ignored."""
    client.send(request_head + head())
    response = await client.response()
    assert (response.status, response.headers["connection"]) == (200, "close")
    assert await client.is_closed()


async def test_a_url_may_be_absolute(client: RawClient) -> None:
    """Proxies send this form."""
    client.send(head(start="GET http://localhost/a?b HTTP/1.1"))
    response = await client.response()
    assert (response.headers["x-path"], response.headers["x-query"]) == ("/a", "b")


async def test_a_header_cannot_split_the_response(client: RawClient) -> None:
    client.send(head(start="GET /split HTTP/1.1"))
    assert (await client.response()).problem["code"] == "internal_error"


# Expectations and unread bodies


async def test_a_client_that_expects_it_gets_100_continue(client: RawClient) -> None:
    client.send(head("Expect: 100-continue", "Content-Length: 2"))
    assert (await client.response()).status == 100
    client.send(b"ok")
    assert (await client.response()).body == b"POST:ok"


async def test_http_1_0_knows_neither_chunks_nor_100_continue(client: RawClient) -> None:
    """The end of the connection is the end of the body."""
    client.send(
        head("Expect: 100-continue", "Content-Length: 2", start="POST /stream HTTP/1.0") + b"ok"
    )
    response = await client.response()
    assert (response.status, response.headers["connection"]) == (200, "close")
    assert "transfer-encoding" not in response.headers
    assert await client.read_to_end() == b"onetwo"


async def test_a_refused_body_is_not_requested(client: RawClient) -> None:
    """The connection ends, because the client might send the body anyway."""
    start = "POST /refuse HTTP/1.1"
    client.send(head("Expect: 100-continue", f"Content-Length: {len(LARGE)}", start=start))
    response = await client.response()
    assert (response.status, response.headers["connection"]) == (413, "close")
    client.send(head(start="GET / HTTP/1.1"))
    assert await client.is_closed()


async def test_the_response_to_an_unread_body_arrives(client: RawClient) -> None:
    """A reset would discard it."""
    client.send(head(f"Content-Length: {len(LARGE)}", start="POST /refuse HTTP/1.1"))
    client.send(LARGE[:-1])
    assert (await client.response()).status == 413
    assert await client.is_closed()


# Invalid requests


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nHost: localhost\n\n", 400),
        (head("X: a\nY: b", start="GET / HTTP/1.1"), 400),
        (head("X: a\x00b", start="GET / HTTP/1.1"), 400),
        (head("X : a", start="GET / HTTP/1.1"), 400),
        (head("Content-Length: 5", "Transfer-Encoding: chunked") + b"0\r\n\r\n", 400),
        (head("Transfer-Encoding: chunked", "Content-Length: 5") + b"0\r\n\r\n", 400),
        (head("Content-Length: 5", "Content-Length: 6") + b"hello", 400),
        (head("Content-Length: -5"), 400),
        (head("Content-Length: 5, 5") + b"hello", 400),
        (head("Transfer-Encoding: chunked", "Transfer-Encoding: identity"), 400),
        (head("Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n", 501),
        (head("Transfer-Encoding: chunked") + b"g\r\n", 400),
        (head("Transfer-Encoding: chunked") + b"1\r\nab\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (head(start="CONNECT x:443 HTTP/1.1"), 400),
        (head(start="GET x HTTP/1.1"), 400),
        (head(start="GET /\xff HTTP/1.1"), 400),
    ],
)
async def test_an_ambiguous_or_malformed_request_is_refused(
    client: RawClient, request_bytes: bytes, status: int
) -> None:
    client.send(request_bytes)
    response = await client.response()
    assert response.status == status
    assert response.problem["code"] in ("malformed_request", "unknown_transfer_coding")
    assert await client.is_closed()


async def test_an_upgrade_to_http_2_is_ignored(client: RawClient) -> None:
    """The request is answered, and nothing else on the connection is interpreted."""
    client.send(
        head("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", start="GET / HTTP/1.1")
        + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + head(start="GET /a HTTP/1.1")
    )
    response = await client.response()
    assert (response.status, response.headers["connection"]) == (200, "close")
    assert await client.is_closed()


@pytest.mark.parametrize(
    "lines",
    [["Content-Length: 5"], ["Transfer-Encoding: chunked"], [f"X: {'a' * 9_000}"]],
    ids=["length", "chunked", "long header"],
)
async def test_a_web_socket_that_the_library_refuses_does_not_stay_open(lines: list[str]) -> None:
    """No time-out applies to WebSockets: such connections would lock everyone out."""
    async with serving(APP, limits=HttpLimits()) as url, connected(url) as client:
        client.send(
            head(
                "Connection: Upgrade",
                "Upgrade: websocket",
                "Sec-WebSocket-Version: 13",
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
                *lines,
                start="GET / HTTP/1.1",
            )
            + b"5\r\nhello\r\n0\r\n\r\n"
        )
        assert (await client.response()).problem["code"] == "malformed_request"
        assert await client.is_closed()


async def test_valid_requests_before_a_malformed_one_are_answered_first(client: RawClient) -> None:
    client.send(head("Content-Length: 2") + b"ok" + b"nonsense\r\n\r\n")
    assert (await client.response()).body == b"POST:ok"
    assert (await client.response()).problem["code"] == "malformed_request"


# Sizes


async def test_the_limits_do_not_depend_on_packets(url: str) -> None:
    """A URL and headers that are as long as permitted may also arrive in pieces."""
    start = f"GET /{'a' * (LIMITS.url_bytes - 1)} HTTP/1.1"
    for size, status in ((LIMITS.header_bytes, 404), (LIMITS.header_bytes + 1, 431)):
        request = head(f"X: {'a' * (size - len('Host: localhost') - 2 - 5)}", start=start)
        for length in (100, len(request)):
            async with connected(url) as client:
                for position in range(0, len(request), length):
                    client.send(request[position : position + length])
                    await asyncio.sleep(0.002)
                assert (await client.response()).status == status, (size, length)


async def test_headers_up_to_the_limit_are_accepted(client: RawClient) -> None:
    padding = "a" * (LIMITS.header_bytes - len("Host: localhost\r\nX: \r\n"))
    client.send(head(f"X: {padding}", start="GET / HTTP/1.1"))
    assert (await client.response()).status == 200
    client.send(head(f"X: {padding}a", start="GET / HTTP/1.1"))
    assert (await client.response()).problem["code"] == "headers_too_large"


@pytest.mark.parametrize(
    "lines",
    [
        b"X: " + b"a" * 4 * READ_BYTES,
        b"X: aaaaaaaa\r\n" * READ_BYTES,
        b"a" * 4 * READ_BYTES,
    ],
    ids=["value", "lines", "name"],
)
async def test_headers_that_do_not_end_are_refused(client: RawClient, lines: bytes) -> None:
    client.send(b"GET / HTTP/1.1\r\n" + lines)
    response = await client.response()
    assert (response.status, response.problem["code"]) == (431, "headers_too_large")
    assert await client.is_closed()


async def test_trailers_that_do_not_end_are_refused(client: RawClient) -> None:
    client.send(head("Transfer-Encoding: chunked") + b"0\r\nX: " + b"a" * 4 * READ_BYTES)
    assert (await client.response()).problem["code"] == "headers_too_large"


async def test_chunk_extensions_that_do_not_end_are_refused(client: RawClient) -> None:
    client.send(head("Transfer-Encoding: chunked") + b"1;" + b"a" * 4 * READ_BYTES)
    assert (await client.response()).problem["code"] == "headers_too_large"


async def test_too_many_headers_are_refused(client: RawClient) -> None:
    headers = [f"X-{number}: a" for number in range(LIMITS.header_count)]
    client.send(head(*headers[1:], start="GET / HTTP/1.1"))
    assert (await client.response()).status == 200
    client.send(head(*headers, start="GET / HTTP/1.1"))
    response = await client.response()
    assert (response.status, response.problem["code"]) == (431, "too_many_headers")


@pytest.mark.parametrize("rest", [" HTTP/1.1\r\n\r\n", ""], ids=["complete", "without end"])
async def test_a_long_url_is_refused(client: RawClient, rest: str) -> None:
    path = "/a?" + "b" * (LIMITS.url_bytes - 3)
    assert (await client.get(path)).status == 200
    client.send(f"GET {path}b{rest}".encode())
    response = await client.response()
    assert (response.status, response.problem["code"]) == (414, "url_too_long")
    assert await client.is_closed()


# Back-pressure


async def test_the_server_stops_reading_while_responses_wait() -> None:
    """A client that pipelines requests and reads nothing starts only a few of them."""
    started = 0

    async def count(_: Request) -> Response:
        nonlocal started
        started += 1
        return Response(b"x" * 20_000)

    app = Starlette(routes=[Route("/", count)])
    async with serving(app) as url, connected(url) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.send(head(start="GET / HTTP/1.1") * 2_000)
        seen = -1
        while started != seen:
            seen = started
            await asyncio.sleep(0.5)
        assert 0 < started < 1_000
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(2_000):
            assert (await client.response()).status == 200


# Time-outs


async def test_a_connection_that_waits_too_long_is_closed() -> None:
    """A response is sent if a request has begun."""
    body = head("Content-Length: 10") + b"12345"
    async with (
        serving(APP, limits=SHORT) as url,
        connected(url) as silent,
        connected(url) as half_head,
        connected(url) as half_body,
        connected(url) as idle,
    ):
        half_head.send(b"GET / HTTP/1.1\r\nHos")
        half_body.send(body)
        assert (await idle.get()).status == 200
        for client in (half_head, half_body):
            response = await client.response()
            assert (response.status, response.problem["code"]) == (408, "request_timeout")
        for client in (silent, half_head, half_body, idle):
            assert await client.is_closed()


async def test_a_request_that_arrives_with_the_end_of_the_idle_time_is_answered() -> None:
    """After a stall, the server may compare deadlines before it reads what has arrived."""
    listening, stop = listen("127.0.0.1", 0), asyncio.Event()
    server = Server(APP, limits=LIMITS)
    running = asyncio.create_task(server.serve_on(listening, stop))
    async with connected(socket_url(listening)) as client:
        assert (await client.get()).status == 200
        client.send(head(start="GET / HTTP/1.1"))
        server.server_state.sweep(asyncio.get_running_loop().time() + LIMITS.timeouts.idle + 1)
        assert (await client.response()).status == 200
        await asyncio.sleep(ARRIVAL_SECONDS * 2)  # the close that the sweep requested is due
        assert (await client.get()).status == 200
    stop.set()
    await running


@pytest.mark.parametrize(
    "start", [b"GET / HTTP/1.1\r\nX: ", head("Content-Length: 1000")], ids=["head", "body"]
)
async def test_a_request_that_trickles_is_refused(start: bytes) -> None:
    async with serving(APP, limits=SHORT) as url, connected(url) as client:
        client.send(start)
        response = asyncio.create_task(client.response())
        while not response.done():
            client.send(b"a")
            await asyncio.wait({response}, timeout=0.1)
        assert response.result().problem["code"] == "request_timeout"


async def test_a_client_that_does_not_read_is_disconnected() -> None:
    """The app learns of it."""
    ended = asyncio.Event()

    async def parts() -> AsyncIterator[bytes]:
        while True:
            yield LARGE

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        await StreamingResponse(parts())(scope, receive, send)
        ended.set()

    app = Starlette(routes=[Mount("/", endless)])
    async with serving(app, limits=SHORT) as url, connected(url) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.send(head(start="GET / HTTP/1.1"))
        async with asyncio.timeout(30):
            await ended.wait()


async def test_a_client_that_reads_slowly_gets_the_whole_response() -> None:
    """It takes several write time-outs, also after the server has closed its side."""
    total = 16 * len(LARGE)

    async def huge(_: Request) -> Response:
        return Response(bytes(total))

    app = Starlette(routes=[Route("/", huge)])
    async with serving(app, limits=SHORT) as url, connected(url) as client:
        client.send(head("Connection: close", start="GET / HTTP/1.1"))
        transport = cast(asyncio.ReadTransport, client.writer.transport)
        response = asyncio.create_task(client.response())
        while not response.done():
            transport.resume_reading()
            await asyncio.sleep(0.001)
            transport.pause_reading()
            await asyncio.wait({response}, timeout=0.3)
        assert len(response.result().body) == total


async def test_what_the_kernel_has_sent_counts_as_read() -> None:
    """The kernel accepts more data only once a third of its buffer, up to a megabyte, is free."""
    total = 16 * len(LARGE)

    async def huge(_: Request) -> Response:
        return Response(bytes(total))

    app = Starlette(routes=[Route("/", huge)])
    # Longer than a pause of a busy machine, and shorter than the slow part of the reading.
    limits = replace(LIMITS, timeouts=Timeouts(head=2, body=2, idle=2, write=2))
    async with serving(app, limits=limits) as url:
        port = int(url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(client, head("Connection: close", start="GET / HTTP/1.1"))
            # Straight from the kernel: a stream reader would read 256 KiB, then nothing for 1.3 s.
            received = 0
            for _ in range(40):
                received += len(await loop.sock_recv(client, 20_000))
                await asyncio.sleep(0.1)
            while chunk := await loop.sock_recv(client, READ_BYTES):
                received += len(chunk)
    assert received > total


async def test_a_slow_handler_is_not_a_time_out() -> None:
    go_on = asyncio.Event()
    is_waiting = False

    async def slow(_: Request) -> Response:
        nonlocal is_waiting
        is_waiting = True
        await go_on.wait()
        return PlainTextResponse("done")

    app = Starlette(routes=[Route("/", slow)])
    async with serving(app, limits=SHORT) as url, connected(url) as client, connected(url) as idle:
        client.send(head(start="GET / HTTP/1.1"))
        await wait_until(lambda: is_waiting)
        assert await idle.is_closed()
        go_on.set()
        assert (await client.response()).body == b"done"
