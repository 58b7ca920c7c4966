"""Requests that are rejected: size, media type, rate limit, and an unavailable store."""

import gzip
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.api_response import ApiResponse, expect_error
from tests.devices.conftest import StoreTarget
from tests.devices.harness import ADMIN, Board, DevicesServer, make_settings, open_server
from tests.store.fake_dynamodb import closed, fake_dynamodb

MIB = 1024 * 1024
JSON = {"Content-Type": "application/json"}
ROUTES = [
    ("POST", "/register"),
    ("POST", "/data"),
    ("POST", "/api-keys"),
    ("PATCH", "/devices/AA:BB:CC:DD:EE:FF"),
]
TAKES_GZIP = ("/register", "/data")


@pytest.fixture(scope="session")
async def embedded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DevicesServer]:
    """A server on SQLite, for requests that are rejected before they reach the store."""
    async with open_server(make_settings(data_dir=tmp_path_factory.mktemp("embedded"))) as server:
        yield server


@pytest.fixture(scope="session")
async def credentials(embedded: DevicesServer) -> dict[str, str]:
    """The credentials of a board and an operator."""
    return {"X-API-Key": await embedded.new_key(), "Authorization": f"Bearer {ADMIN}"}


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_a_body_over_a_mebibyte_is_rejected(
    embedded: DevicesServer, credentials: dict[str, str], method: str, path: str
) -> None:
    """By its content length, its actual length, and its decompressed length."""
    body = b'"' + b"x" * MIB + b'"'
    expect_error(
        await embedded.send(method, path, body, credentials | JSON), 413, "too_large", str(MIB)
    )
    if path in TAKES_GZIP:
        bomb = gzip.compress(b" " * (50 * MIB))
        assert len(bomb) < MIB / 10
        expect_error(
            await embedded.send(
                method, path, bomb, credentials | JSON | {"Content-Encoding": "gzip"}
            ),
            413,
            "too_large",
        )


async def test_a_body_of_a_mebibyte_is_accepted(
    embedded: DevicesServer, credentials: dict[str, str]
) -> None:
    board = Board()
    body = msgspec.json.encode(board.data(board.reading()))
    response = await embedded.send(
        "POST", "/data", body + b" " * (MIB - len(body)), credentials | JSON
    )
    assert response.status == 200


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1", ""],
)
async def test_a_body_must_be_json(
    embedded: DevicesServer, credentials: dict[str, str], method: str, path: str, kind: str
) -> None:
    expect_error(
        await embedded.send(
            method, path, b"{}", credentials | ({"Content-Type": kind} if kind else {})
        ),
        415,
        "unsupported_media",
    )


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_an_unsupported_encoding_is_rejected(
    embedded: DevicesServer, credentials: dict[str, str], method: str, path: str
) -> None:
    for encoding in ("br", "deflate", "gzip, gzip", *(() if path in TAKES_GZIP else ("gzip",))):
        response = await embedded.send(
            method, path, gzip.compress(b"{}"), credentials | JSON | {"Content-Encoding": encoding}
        )
        expect_error(response, 415, "unsupported_media", "encoding")


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize(
    "invalid",
    [
        (b"", "malformed_json"),
        (b"{", "malformed_json"),
        (b"[]", "invalid_field"),
        (b"null", "invalid_field"),
        (b"1", "invalid_field"),
        (b'"x"', "invalid_field"),
        (b"\xff\xfe", "malformed_json"),
        (b"[" * 5_000, "invalid_field"),
        (b'{"a":' * 5_000, "unknown_field"),
    ],
)
async def test_a_body_that_is_not_an_object_is_rejected(
    embedded: DevicesServer,
    credentials: dict[str, str],
    method: str,
    path: str,
    invalid: tuple[bytes, str],
) -> None:
    body, code = invalid
    expect_error(await embedded.send(method, path, body, credentials | JSON), 400, code)


INVALID_GZIP = {
    "empty": b"",
    "plain": b"{}",
    "cut off": gzip.compress(b"{}", mtime=0)[:-4],
    "followed by more": gzip.compress(b"{}", mtime=0) + b"more",
    "damaged": b"\x1f\x8b" + b"0" * 99,
}


@pytest.mark.parametrize("name", INVALID_GZIP)
async def test_invalid_gzip_is_rejected(
    embedded: DevicesServer, credentials: dict[str, str], name: str
) -> None:
    response = await embedded.send(
        "POST", "/data", INVALID_GZIP[name], credentials | JSON | {"Content-Encoding": "gzip"}
    )
    expect_error(response, 400, "malformed_gzip")


def check_quota(response: ApiResponse, remaining: int, reset: int) -> None:
    """Check the headers at a limit of two requests per second and bursts of four."""
    quota = [response.headers[f"ratelimit-{name}"] for name in ("limit", "remaining", "reset")]
    assert quota == ["4", str(remaining), str(reset)]


async def test_a_key_over_its_rate_limit_gets_a_retry_after(
    store_target: StoreTarget,
) -> None:
    """Each key has its own limit, with bursts of twice the rate."""
    async with open_server(await store_target.new_settings(devices_rate_limit=2)) as server:
        busy_key, other_key = await server.new_key(), await server.new_key()
        board = Board()
        for remaining in (3, 2, 1, 0):
            response = await server.post("/data", board.data("?"), key=busy_key)
            assert response.status == 200
            check_quota(response, remaining, reset=2 - remaining // 2)
        for path, content in (("/data", board.data("?")), ("/register", board.registration())):
            response = await server.post(path, content, key=busy_key)
            expect_error(response, 429, "rate_limit_exceeded")
            assert response.headers["retry-after"] == "1"
            check_quota(response, remaining=0, reset=2)
        assert (await server.post("/data", board.data("?"), key=other_key)).status == 200
        await server.clock.advance(1)
        for _ in range(2):
            assert (await server.post("/data", board.data("?"), key=busy_key)).status == 200
        expect_error(
            await server.post("/data", board.data("?"), key=busy_key), 429, "rate_limit_exceeded"
        )


async def test_an_unavailable_store_returns_503_with_retry_after(tmp_path: Path) -> None:
    """SQLite without its directory. Writes succeed again afterwards."""
    folder = tmp_path / "data"
    async with open_server(make_settings(data_dir=folder)) as server:
        board, key = Board(), await server.new_key()
        await server.store_readings(board, [board.reading(0)], key)
        shutil.move(folder, tmp_path / "moved")
        for response in (
            await server.post("/data", board.data(board.reading(1)), key=key),
            await server.post("/register", board.registration(), key=key),
            await server.operator_request("/api-keys", "POST", {}),
        ):
            expect_error(response, 503, "unavailable", "store")
            assert response.headers["retry-after"] == "1"
        shutil.move(tmp_path / "moved", folder)
        await server.store_readings(board, [board.reading(1)], key)
        assert len(await server.readings(board)) == 2


async def test_a_lost_connection_to_the_service_returns_503(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DynamoDB: the connection closes during a write, so that the outcome is unknown."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tally")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "tally-secret")
    async with fake_dynamodb() as service:
        settings = make_settings(
            data_dir=tmp_path, store_engine="dynamodb", dynamodb_endpoint=service.url
        )
        async with open_server(settings) as server:
            service.table_replies["api_keys"] = closed
            response = await server.operator_request("/api-keys", "POST", {})
            expect_error(response, 503, "unavailable")
            assert response.headers["retry-after"] == "1"
            sent = [one for one in service.sent if one.body.get("TableName") == "api_keys"]
            assert [one.operation for one in sent] == ["PutItem"], "it may have been applied"
