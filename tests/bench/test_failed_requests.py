"""Benchmarks count every failed request and fail: figures of a run with failures mean nothing."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from io import StringIO
from typing import TypeAlias

import pytest
from rich.console import Console

from bench.__main__ import run_parts
from bench.http_client import KeepAliveClient, open_client
from bench.load import Load, RequestsFailed, at_full_speed, at_rate
from bench.rounds import Line

RunLoad: TypeAlias = Callable[[KeepAliveClient], Awaitable[Load]]

_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
_ERROR = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno"


@asynccontextmanager
async def _unreliable_server(*failures: bytes) -> AsyncIterator[KeepAliveClient]:
    """Serve the given failures first, then successes; an empty failure closes the connection."""
    remaining = list(failures)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            response = remaining.pop(0) if remaining else _OK
            writer.write(response)
            if not response:
                break
        writer.close()

    async def serve_until_closed(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            await serve(reader, writer)
        except asyncio.IncompleteReadError:
            writer.close()

    server = await asyncio.start_server(serve_until_closed, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with open_client(f"http://127.0.0.1:{port}", {}) as client:
            yield client


async def _load_at_rate(client: KeepAliveClient) -> Load:
    return await at_rate(partial(client.request, "GET"), ["/"] * 50, 1_000)


async def _load_at_full_speed(client: KeepAliveClient) -> Load:
    return await at_full_speed(partial(client.request, "GET"), ["/"] * 50, 4)


_both_loads = pytest.mark.parametrize("load", [_load_at_rate, _load_at_full_speed])


@_both_loads
async def test_lost_connections_and_error_responses_fail_the_load(load: RunLoad) -> None:
    async with _unreliable_server(b"", _ERROR, b"") as client:
        with pytest.raises(RequestsFailed, match="3 of 50 requests failed"):
            await load(client)


@_both_loads
async def test_a_load_without_failures_reports_every_request(load: RunLoad) -> None:
    async with _unreliable_server() as client:
        assert (await load(client)).count == 50


async def test_a_part_with_failed_requests_is_reported_and_the_others_run() -> None:
    line = Line("section", "what", 1, "peer", 1, 1)

    async def failing() -> AsyncIterator[Line]:
        yield line
        raise RequestsFailed("2 of 9 requests failed")

    async def passing() -> AsyncIterator[Line]:
        yield line

    console = Console(file=StringIO(), width=200)
    lines, failed = await run_parts(console, {"one": failing(), "two": passing()})

    assert (len(lines), failed) == (2, ["one"])
    assert isinstance(console.file, StringIO)
    assert "one: 2 of 9 requests failed" in console.file.getvalue()
