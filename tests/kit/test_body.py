"""Request bodies are parsed or rejected with a 4xx that names the field."""

import gzip
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyreqwest.client import Client
from starlette.requests import Request
from starlette.responses import Response

from tally.errors import Invalid
from tally.kit.body import StrictStruct, decode_json, read_json, read_query
from tally.kit.http import Json
from tests.kit.serving import serve_handler

LIMIT = 1000


class Reading(StrictStruct, frozen=True):
    timestamp_ms: int
    sensors: dict[str, float] = msgspec.field(default_factory=dict)


class Batch(StrictStruct, frozen=True):
    hardware_id: str
    readings: list[Reading]
    note: Any = None


class PageQuery(StrictStruct, frozen=True):
    limit: int = 10
    since: int | None = msgspec.field(default=None, name="from")
    newest_first: bool = False


# Without a timestamp, so that test IDs are the same in every process.
PACKED = gzip.compress(b"{}", mtime=0)
GOOD = {"hardware_id": "AA", "readings": [{"timestamp_ms": 1}]}


async def echo(request: Request) -> Response:
    return Json(await read_json(request, Batch, limit=LIMIT, gzip=True))


async def echo_query(request: Request) -> Response:
    return Json(read_query(request, PageQuery))


@pytest.fixture(scope="module")
async def url() -> AsyncIterator[str]:
    async with serve_handler(echo) as url:
        yield url


@pytest.fixture(scope="module")
async def query_url() -> AsyncIterator[str]:
    async with serve_handler(echo_query, method="GET") as url:
        yield url


async def post(client: Client, url: str, body: bytes, **headers: str) -> tuple[int, Any]:
    request_headers = {"content-type": "application/json"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    response = await client.post(url).headers(request_headers).body_bytes(body).build().send()
    return response.status, await response.json()


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "application/json; charset=utf-8",
        "Application/JSON;charset=UTF-8",
        "application/vnd.a+json",
    ],
)
async def test_json_is_read(client: Client, url: str, content_type: str) -> None:
    status, body = await post(client, url, msgspec.json.encode(GOOD), content_type=content_type)
    assert status == 200
    assert body["readings"] == [{"timestamp_ms": 1, "sensors": {}}]


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/xml", "application/json; charset=latin-1", "json"]
)
async def test_another_content_type_is_a_415(client: Client, url: str, content_type: str) -> None:
    status, body = await post(client, url, msgspec.json.encode(GOOD), content_type=content_type)
    assert status == 415
    assert (body["code"], body["field"]) == ("unsupported_media", "Content-Type")
    assert content_type in body["detail"]


async def test_no_content_type_is_a_415(client: Client, url: str) -> None:
    response = await client.post(url).body_bytes(b"{}").build().send()
    assert response.status == 415


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        (b'{"readings": []}', "missing_field", "hardware_id"),
        (b'{"hardware_id": "A", "readings": [{}]}', "missing_field", "readings[0].timestamp_ms"),
        (b'{"hardware_id": "A", "readings": [], "x": 1}', "unknown_field", "x"),
        (
            b'{"hardware_id": "A", "readings": [{"timestamp_ms": 1, "y": 1}]}',
            "unknown_field",
            "readings[0].y",
        ),
        (b'{"hardware_id": 1, "readings": []}', "invalid_field", "hardware_id"),
        (
            b'{"hardware_id": "A", "readings": [{"timestamp_ms": "2"}]}',
            "invalid_field",
            "readings[0].timestamp_ms",
        ),
        (
            b'{"hardware_id": "A", "readings": [{"timestamp_ms": 1.5}]}',
            "invalid_field",
            "readings[0].timestamp_ms",
        ),
        (
            b'{"hardware_id": "A", "readings": [{"timestamp_ms": 1e999}]}',
            "invalid_field",
            "readings[0].timestamp_ms",
        ),
        (
            b'{"hardware_id": "A", "readings": [{"timestamp_ms": 1, "sensors": {"t": "x"}}]}',
            "invalid_field",
            "readings[0].sensors[...]",
        ),
        (b"[]", "invalid_field", "body"),
        (b"null", "invalid_field", "body"),
    ],
)
async def test_an_invalid_field_is_named(
    client: Client, url: str, body: bytes, code: str, field: str
) -> None:
    status, response = await post(client, url, body)
    assert status == 400
    assert (response["code"], response["field"]) == (code, field)
    assert field in response["detail"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{'hardware_id': 1}",
        b'{"hardware_id": NaN}',
        b'{"hardware_id": "A", "readings": []} trailing',
        b'{"hardware_id": "\xff"}',
        b'{"hardware_id": "\\ud800"}',
        b'{"\xff": 1}',
        b"\xef\xbb\xbf{}",
        b'{"hardware_id": "A", "readings": [], "note": ' + b"[" * 400 + b"]" * 400,
    ],
)
async def test_malformed_json_is_a_400(client: Client, url: str, body: bytes) -> None:
    status, response = await post(client, url, body)
    assert status == 400
    assert response["code"] == "malformed_json"


def test_deeply_nested_json_is_rejected() -> None:
    nested = (
        b'{"hardware_id": "A", "readings": [], "note": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    )
    with pytest.raises(Invalid, match="nested too deeply"):
        decode_json(nested, Batch)


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_any_bytes_are_decoded_or_rejected(body: bytes) -> None:
    with pytest.raises(Invalid) as caught:
        decode_json(body, Batch)
    assert caught.value.code in {
        "malformed_json",
        "missing_field",
        "unknown_field",
        "invalid_field",
    }


async def test_a_body_at_the_limit_is_read_and_one_byte_more_is_a_413(
    client: Client, url: str
) -> None:
    start = b'{"hardware_id": "A", "readings": [], "note": "'
    fits = start + b"x" * (LIMIT - len(start) - 2) + b'"}'
    assert (await post(client, url, fits))[0] == 200
    status, response = await post(client, url, fits + b" ")
    assert status == 413
    assert (response["code"], response["limit"]) == ("too_large", LIMIT)
    assert "field" not in response


async def test_a_chunked_body_is_limited_too(client: Client, url: str) -> None:
    """Without a Content-Length, the bytes are counted while reading."""

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(1000):
            yield b" " * 100

    request = client.post(url).header("content-type", "application/json").body_stream(endless())
    response = await request.build().send()
    assert response.status == 413


async def test_gzip_is_decompressed(client: Client, url: str) -> None:
    status, body = await post(
        client, url, gzip.compress(msgspec.json.encode(GOOD)), content_encoding="GZIP"
    )
    assert status == 200
    assert body["hardware_id"] == "AA"


async def test_a_gzip_bomb_is_a_413(client: Client, url: str) -> None:
    bomb = gzip.compress(b" " * 100_000)
    assert len(bomb) < LIMIT
    assert (await post(client, url, bomb, content_encoding="gzip"))[0] == 413


@pytest.mark.parametrize("body", [b"not gzip", b"", PACKED[:-4], PACKED + b"more", PACKED * 2])
async def test_malformed_gzip_is_a_400(client: Client, url: str, body: bytes) -> None:
    status, response = await post(client, url, body, content_encoding="gzip")
    assert status == 400
    assert response["code"] == "malformed_gzip"


async def test_another_encoding_is_a_415(client: Client, url: str) -> None:
    status, response = await post(client, url, b"{}", content_encoding="br")
    assert status == 415
    assert (response["code"], response["field"]) == ("unsupported_media", "Content-Encoding")


async def test_query_parameters_are_converted(client: Client, query_url: str) -> None:
    response = await client.get(f"{query_url}?limit=5&from=-3&newest_first=true").build().send()
    assert await response.json() == {"limit": 5, "from": -3, "newest_first": True}
    assert (await (await client.get(query_url).build().send()).json())["limit"] == 10


@pytest.mark.parametrize(
    ("query", "code", "field"),
    [
        ("limit=many", "invalid_field", "limit"),
        ("limit=", "invalid_field", "limit"),
        ("limit=1&limit=2", "invalid_field", "limit"),
        ("from=1.5", "invalid_field", "from"),
        ("newest_first=perhaps", "invalid_field", "newest_first"),
        ("unknown=1", "unknown_field", "unknown"),
        ("limit=" + "9" * 5000, "invalid_field", "limit"),
    ],
)
async def test_an_invalid_parameter_is_named(
    client: Client, query_url: str, query: str, code: str, field: str
) -> None:
    response = await client.get(f"{query_url}?{query}").build().send()
    assert response.status == 400
    body = await response.json()
    assert (body["code"], body["field"]) == (code, field)
