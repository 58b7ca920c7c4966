"""Attacks a server with connections that send too much, or wait for ever.

    python -m tests.e2e.attack_program pipeline http://127.0.0.1:8080 10 20000

It sends until everything is sent or the server has not read for a second, prints a line, and holds
the connections until its input ends.
"""

import select
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle, islice, repeat
from urllib.parse import urlsplit

STALL_SECONDS = 1.0
MEGABYTE = 1_000_000
GET = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
HALVES = (
    b"",
    b"GET /health HTTP/1.1\r\nHos",
    b"POST /collect/webhooks/strava/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
)


def pipeline(count: int, requests: int) -> list[Iterator[bytes]]:
    return [repeat(GET * 100, requests // 100) for _ in range(count)]


def headers(count: int, megabytes: int) -> list[Iterator[bytes]]:
    line = b"X-Padding: " + b"a" * 989
    return [_after(GET[:-2], repeat(line, megabytes * 1000)) for _ in range(count)]


def one_header(count: int, megabytes: int) -> list[Iterator[bytes]]:
    return [_after(GET[:-2] + b"X: ", repeat(b"a" * 1000, megabytes * 1000)) for _ in range(count)]


def url(count: int, megabytes: int) -> list[Iterator[bytes]]:
    return [_after(b"GET /", repeat(b"a" * 1000, megabytes * 1000)) for _ in range(count)]


def hold(count: int, _: int) -> list[Iterator[bytes]]:
    """Open connections that send nothing, half a head or half a body."""
    return [iter((half,)) for half in islice(cycle(HALVES), count)]


ATTACKS = {attack.__name__: attack for attack in (pipeline, headers, one_header, url, hold)}


def _after(start: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield start
    yield from rest


def send_all(address: tuple[str, int], streams: list[Iterator[bytes]]) -> list[socket.socket]:
    """Send each stream on its own connection; return the connections, still open."""
    pending: dict[socket.socket, tuple[bytes, Iterator[bytes]]] = {}
    connections = []
    for stream in streams:
        connection = socket.create_connection(address)
        connection.setblocking(False)
        connections.append(connection)
        pending[connection] = (b"", stream)
    progress = time.monotonic()
    while pending and time.monotonic() - progress < STALL_SECONDS:
        _, writable, _ = select.select([], list(pending), [], 0.1)
        for connection in writable:
            rest, stream = pending.pop(connection)
            data = rest or b"".join(islice(stream, 64))
            if not data:
                continue
            with suppress(ConnectionError):  # the server closed the connection
                sent = connection.send(data)
                progress = time.monotonic()
                pending[connection] = (data[sent:], stream)
    return connections


if __name__ == "__main__":
    name, target, *numbers = sys.argv[1:]
    parts = urlsplit(target)
    host, port = str(parts.hostname), int(parts.port or 80)
    held = send_all((host, port), ATTACKS[name](*map(int, numbers)))
    print("sent", flush=True)  # noqa: T201  (the test waits for it)
    sys.stdin.read()
