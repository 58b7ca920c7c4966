"""What the endpoint decides before an operation runs: routes, signatures, compression, limits."""

import base64
import gzip
import json
import socket
import urllib.request
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tally.kit.connection_table import HttpLimits, Timeouts
from tally.store.wire.connection import MAX_BODY_BYTES
from tests.store.served import AUTHORIZATION, call, served_store
from tests.store.wire_requests import table

TAB = {"TableName": "tab"}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served_store(tmp_path_factory.mktemp("front-end")) as served:
        assert call(served, *table("tab", "pk:S", "pk"))[0] == 200
        yield served


def exchange(url: str, data: bytes) -> bytes:
    """Send bytes and return all that the server sends until it closes the connection."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=60.0) as connection:
        connection.sendall(data)
        received = b""
        while part := connection.recv(65_536):
            received += part
    return received


def raw(target: str, body: bytes, *headers: str) -> bytes:
    lines = [
        "POST / HTTP/1.1",
        f"X-Amz-Target: DynamoDB_20120810.{target}",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


SIGNED = f"Authorization: {AUTHORIZATION}\r\nX-Amz-Date: 20260101T000000Z"
LOCAL = "Host: localhost"
GZIP = "Content-Encoding: gzip"


def test_pipelined_requests_are_answered_in_order_with_a_checksum(url: str) -> None:
    put = json.dumps({**TAB, "Item": {"pk": {"S": "pipe"}}}).encode()
    get = json.dumps({**TAB, "Key": {"pk": {"S": "pipe"}}}).encode()
    last = raw("GetItem", get, LOCAL, SIGNED, "Connection: close")
    received = exchange(url, raw("PutItem", put, LOCAL, SIGNED) + last)
    first, second = received.split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert first.endswith(b"\r\n\r\n{}")
    head, _, body = second.partition(b"\r\n\r\n")
    assert json.loads(body) == {"Item": {"pk": {"S": "pipe"}}}
    headers = dict(line.split(b": ", 1) for line in head.split(b"\r\n"))
    assert int(headers[b"x-amz-crc32"]) == zlib.crc32(body)
    assert len(headers[b"x-amzn-requestid"]) == 52


@pytest.mark.parametrize(
    ("request_bytes", "expected"),
    [
        (raw("GetItem", b"{}", LOCAL), b"MissingAuthenticationTokenException"),
        (raw("Nothing", b"{}", LOCAL, SIGNED), b"UnknownOperationException"),
        (raw("GetItem", b"{", LOCAL, SIGNED), b"SerializationException"),
        (raw("GetItem", b"[" * 5000, LOCAL, SIGNED), b"SerializationException"),
        (raw("GetItem", b"{}", SIGNED), b"one valid Host header"),
        (raw("GetItem", b"{}", "Host: evil.example", SIGNED), b"does not serve evil.example"),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"UnknownOperationException"),
        (b"PUT / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"404 Not Found"),
        (raw("GetItem", b"{}", LOCAL, SIGNED, "Content-Type: text/plain"), b"404 Not Found"),
        (raw("GetItem", b"{}", LOCAL, SIGNED, "Content-Encoding: br"), b"SerializationException"),
        (raw("GetItem", b"{}", LOCAL, SIGNED, GZIP), b"SerializationException"),
        (
            raw("GetItem", gzip.compress(b"{}")[:-4], LOCAL, SIGNED, GZIP),
            b"it ends too early",
        ),
        (
            raw("GetItem", gzip.compress(bytes(MAX_BODY_BYTES + 1)), LOCAL, SIGNED, GZIP),
            b"413 Request Entity",
        ),
        (
            raw("GetItem", gzip.compress(b"{}") + b"x", LOCAL, SIGNED, GZIP),
            b"The body is not valid gzip",
        ),
        (
            raw("GetItem", gzip.compress(b" ") * 16 + gzip.compress(b"{}"), LOCAL, SIGNED, GZIP),
            b"at most 16 members",
        ),
        (raw("GetItem", b"{}", LOCAL, "Authorization: Basic eA=="), b"MissingAuthentication"),
        (
            raw("GetItem", b"{}", LOCAL, f"Authorization: {AUTHORIZATION}"),
            b"a 'X-Amz-Date' or a 'Date' header. Authorization=AWS4-HMAC-SHA256 Credential=",
        ),
        (
            raw("GetItem", b"{}", LOCAL, "Authorization: AWS4-HMAC-SHA256 x", "Date: today"),
            (
                b'"message":"Authorization header requires \'Credential\' parameter. Authorization'
                b" header requires 'Signature' parameter. Authorization header requires"
                b" 'SignedHeaders' parameter. Authorization=AWS4-HMAC-SHA256 x\""
            ),
        ),
        (
            raw("GetItem", b"{}", LOCAL, SIGNED).replace(b"POST / ", b"POST /?X-Amz-Algorithm=x "),
            b"Found both 'X-Amz-Algorithm' as a query-string param",
        ),
        (
            raw("GetItem", b"{}", LOCAL, SIGNED).replace(b"POST / ", b"POST /tables "),
            b"\r\n\r\n<UnknownOperationException/>\n",
        ),
        (b"nonsense\r\n\r\n", b"MalformedHttpRequest"),
        (raw("GetItem", b"", LOCAL, "X-Pad: " + "x" * 20_000), b"431 Request Header"),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", b"413 Request Entity"),
    ],
)
def test_a_bad_request_is_refused_by_the_front_end(
    url: str, request_bytes: bytes, expected: bytes
) -> None:
    head, _, rest = request_bytes.partition(b"\r\n")
    closing = head + b"\r\nConnection: close\r\n" + rest if b"HTTP" in head else request_bytes
    assert expected in exchange(url, closing)


@pytest.mark.parametrize(
    ("accepted", "is_compressed"),
    [("gzip", True), ("br, GZIP;q=0.5", True), ("identity", False), ("gzip;q=0.0", False)],
)
def test_bodies_are_compressed_for_clients_that_do_so(
    url: str, accepted: str, *, is_compressed: bool
) -> None:
    item = {"pk": {"S": "zip"}, "text": {"S": "x" * 5000}}
    text = json.dumps({**TAB, "Item": item}).encode()
    put = gzip.compress(text[:9]) + gzip.compress(text[9:])  # two members are one content
    get = json.dumps({**TAB, "Key": {"pk": {"S": "zip"}}}).encode()
    last = raw("GetItem", get, LOCAL, SIGNED, f"Accept-Encoding: {accepted}", "Connection: close")
    received = exchange(url, raw("PutItem", put, LOCAL, SIGNED, GZIP) + last)
    head, _, body = received.split(b"HTTP/1.1 200 OK\r\n")[2].partition(b"\r\n\r\n")
    assert (b"content-encoding: gzip" in head, len(body) < 500) == (is_compressed, is_compressed)
    assert f"x-amz-crc32: {zlib.crc32(body)}".encode() in head
    content = gzip.decompress(body) if is_compressed else body
    assert json.loads(content) == {"Item": item}


def test_a_client_that_stops_sending_is_disconnected(tmp_path: Path) -> None:
    limits = HttpLimits(timeouts=Timeouts(head=0.1, body=0.1, idle=0.1, write=0.1))
    with served_store(tmp_path, limits=limits) as served:
        assert exchange(served, b"") == b""
        assert b"408 Request Timeout" in exchange(served, b"POST / HTTP/1.1\r\nHost: a\r\n")


def test_the_root_reports_that_the_server_is_healthy(url: str) -> None:
    with urllib.request.urlopen(url, timeout=60.0) as response:  # noqa: S310 - our own server
        assert response.read().startswith(b"healthy: ")
    assert base64.b32decode(response.headers["x-amzn-RequestId"] + "====")
