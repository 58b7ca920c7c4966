"""The DynamoDB endpoint under attack: forged signatures, malformed HTTP and `kill -9`."""

import gzip
import itertools
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import BotoCoreError, ClientError
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tally.settings import Secret
from tally.testing import MovableClock
from tests.store.served import AUTHORIZATION, boto3_resource, call, dynamodb_command, served_store

SECRET = "right"
SCHEMA: dict[str, Any] = {
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
    "BillingMode": "PAY_PER_REQUEST",
}
GET = {"TableName": "secrets", "Key": {"pk": {"S": "a"}}}


@pytest.fixture(scope="module")
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, clock: MovableClock) -> Iterator[str]:
    """A server that verifies signatures, with a table; tests move its clock and move it back."""
    folder = tmp_path_factory.mktemp("guarded")
    with served_store(folder, secret=Secret(SECRET), clock=clock) as served:
        client = boto3_resource(served, SECRET).meta.client
        client.create_table(TableName="secrets", **SCHEMA)
        client.put_item(TableName="secrets", Item={"pk": "a"})
        yield served


def signed(url: str, body: Any, access_key: str = "tally", secret: str = SECRET) -> dict[str, str]:
    """Return the headers of a GetItem with its signature."""
    headers = {
        "Content-Type": "application/x-amz-json-1.0",
        "X-Amz-Target": "DynamoDB_20120810.GetItem",
    }
    request = AWSRequest("POST", f"{url}/", headers, json.dumps(body).encode())
    SigV4Auth(Credentials(access_key, secret), "dynamodb", "local").add_auth(request)
    return dict(request.headers.items())


def get(url: str, body: Any, headers: dict[str, str]) -> tuple[int, str]:
    status, response = call(url, "GetItem", body, **headers)
    return status, json.dumps(response)


def test_a_signature_is_valid_for_its_request_only(guarded: str) -> None:
    headers = signed(guarded, GET)
    assert get(guarded, GET, headers) == (200, '{"Item": {"pk": {"S": "a"}}}')
    other = {**GET, "Key": {"pk": {"S": "b"}}}
    for body, changed in (
        (other, headers),
        (GET, {**headers, "X-Amz-Target": "DynamoDB_20120810.DeleteItem"}),
        (GET, {**headers, "X-Amz-Date": "20260101T000000Z"}),
        (GET, signed(guarded, GET, secret="wrong")),
    ):
        status, response = get(guarded, body, changed)
        assert status == 400
        assert "InvalidSignatureException" in response
    status, response = get(guarded, GET, signed(guarded, GET, access_key="other"))
    assert status == 400
    assert "UnrecognizedClientException" in response


def test_a_signature_expires_after_15_minutes(guarded: str, clock: MovableClock) -> None:
    headers = signed(guarded, GET)
    try:
        for offset, expected in ((600, 200), (-600, 200), (1000, 400), (-1000, 400)):
            clock.offset_ns = offset * 10**9
            status, response = get(guarded, GET, headers)
            assert status == expected, (offset, response)
            assert ("Signature expired" in response) == (expected == 400)
    finally:
        clock.offset_ns = 0


def test_an_unsigned_read_returns_nothing(guarded: str) -> None:
    """The short way of simple reads checks signatures too."""
    status, response = get(guarded, GET, {})
    assert status == 400
    assert "IncompleteSignatureException" in response


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served_store(tmp_path_factory.mktemp("raw")) as served:
        boto3_resource(served).meta.client.create_table(TableName="secrets", **SCHEMA)
        yield served


BODY = json.dumps(GET).encode()
HEAD = [
    b"POST / HTTP/1.1",
    b"Host: localhost",
    b"X-Amz-Target: DynamoDB_20120810.GetItem",
    b"Authorization: " + AUTHORIZATION.encode(),
    b"X-Amz-Date: 20260101T000000Z",
]
LINES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [
            b"Content-Length: 5",
            b"Content-Length: -1",
            b"Content-Length: 99999999999999999999",
            b"Content-Length: 3, 3",
            b"Transfer-Encoding: chunked",
            b"Transfer-Encoding: gzip, chunked",
            b"Transfer-Encoding: identity",
            b"Content-Encoding: gzip",
            b"Expect: 100-continue",
            b"Connection: close",
            b"Connection: upgrade\r\nUpgrade: websocket",
            b"Host: evil.example",
            b"X-Amz-Target: \xff\xfe.\x80",
            b" folded",
            b"Authorization:",
        ]
    ),
)
BODIES = st.one_of(
    st.just(BODY),
    st.just(gzip.compress(BODY)),
    st.binary(max_size=60),
    st.binary(max_size=20).map(lambda noise: BODY[:30] + noise + BODY[30:]),
)


def chunked(body: bytes, sizes: list[int]) -> bytes:
    """Encode a body in chunks of these sizes, and one of what remains."""
    parts, start = [], 0
    for size in [*sizes, len(body)]:
        part = body[start : start + size]
        start += size
        if part:
            parts.append(b"%x\r\n%b\r\n" % (len(part), part))
    return b"".join(parts) + b"0\r\n\r\n"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@example([b"Transfer-Encoding: chunked"], BODY, [1, 2], (0, []))
@example([b"Content-Encoding: gzip"], gzip.compress(BODY), None, (0, []))
@example([b"Content-Length: 5", b"Transfer-Encoding: chunked"], BODY, [3], (0, []))
@given(
    st.lists(LINES, max_size=3),
    BODIES,
    st.none() | st.lists(st.integers(1, 40), max_size=5),
    st.tuples(st.integers(0, 30), st.lists(st.integers(1, 400), max_size=3)),
)
def test_no_bytes_cause_a_server_error_or_a_hang(
    url: str,
    lines: list[bytes],
    body: bytes,
    sizes: list[int] | None,
    packets: tuple[int, list[int]],
) -> None:
    """Heads and bodies of every form, whole or cut off, in any number of packets."""
    if sizes is None:
        lines, content = [*lines, b"Content-Length: %d" % len(body)], body
    else:
        content = chunked(body, sizes)
    data = b"\r\n".join([*HEAD, *lines]) + b"\r\n\r\n" + content
    cut, splits = packets
    response = send(url, data[: len(data) - cut], splits)
    for status in statuses(response):
        assert status < 500, response


def send(url: str, data: bytes, splits: list[int]) -> bytes:
    """Send data in parts, then end; return what the server sends until it closes."""
    address = urlsplit(url)
    with socket.create_connection((address.hostname or "", address.port or 0), 60.0) as connection:
        received = b""
        try:
            for start, stop in itertools.pairwise([0, *sorted(set(splits)), max(len(data), 401)]):
                connection.sendall(data[start:stop])
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65_536):
                received += part
        except TimeoutError:
            raise
        except OSError:
            pass  # the server refused the request before it had read all of it
        return received


def statuses(response: bytes) -> list[int]:
    return [int(head[:3]) for head in response.split(b"HTTP/1.1 ")[1:]]


def test_a_half_closed_connection_gets_its_response(url: str) -> None:
    """A client that sends a write and ends its side still reads the response."""
    put = json.dumps({"TableName": "secrets", "Item": {"pk": {"S": "half"}}}).encode()
    head = b"\r\n".join([*HEAD, b"Content-Length: %d" % len(put)]).replace(b"GetItem", b"PutItem")
    assert statuses(send(url, head + b"\r\n\r\n" + put, [])) == [200]


def test_acknowledged_writes_of_many_clients_survive_a_kill(tmp_path: Path) -> None:
    """Four boto3 clients write until the process is killed; then every acknowledged item exists."""
    acknowledged: list[str] = []
    with dynamodb_command(tmp_path) as (url, process):
        boto3_resource(url).meta.client.create_table(TableName="durable", **SCHEMA)

        def write(writer: int) -> None:
            client = boto3_resource(url).meta.client
            for number in itertools.count():
                try:
                    client.put_item(TableName="durable", Item={"pk": f"{writer}-{number}"})
                except (BotoCoreError, ClientError):
                    return  # the server is gone
                acknowledged.append(f"{writer}-{number}")

        writers = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
        for writer in writers:
            writer.start()
        deadline = time.monotonic() + 60.0
        while len(acknowledged) < 100:
            assert time.monotonic() < deadline
            time.sleep(0.01)  # polls; the writers do the work
        process.kill()
        process.wait(60.0)
        for writer in writers:
            writer.join(60.0)
    with dynamodb_command(tmp_path) as (url, _):
        pages = boto3_resource(url).meta.client.get_paginator("scan").paginate(TableName="durable")
        found = {item["pk"] for page in pages for item in page["Items"]}
    assert set(acknowledged) <= found
