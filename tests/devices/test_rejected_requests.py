"""Requests that are rejected: size, media type, rate limit, CORS, and an unavailable store."""

import gzip
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.devices.conftest import StoreTarget
from tests.devices.harness import (
    ADMIN,
    Board,
    DevicesServer,
    assert_error,
    make_settings,
    open_server,
)
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
    assert_error(
        await embedded.send(method, path, body, credentials | JSON), 413, "TOO_LARGE", str(MIB)
    )
    if path in TAKES_GZIP:
        bomb = gzip.compress(b" " * (50 * MIB))
        assert len(bomb) < MIB / 10
        assert_error(
            await embedded.send(
                method, path, bomb, credentials | JSON | {"Content-Encoding": "gzip"}
            ),
            413,
            "TOO_LARGE",
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
    assert_error(
        await embedded.send(
            method, path, b"{}", credentials | ({"Content-Type": kind} if kind else {})
        ),
        415,
        "UNSUPPORTED_MEDIA",
    )


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_an_unsupported_encoding_is_rejected(
    embedded: DevicesServer, credentials: dict[str, str], method: str, path: str
) -> None:
    for encoding in ("br", "deflate", "gzip, gzip", *(() if path in TAKES_GZIP else ("gzip",))):
        response = await embedded.send(
            method, path, gzip.compress(b"{}"), credentials | JSON | {"Content-Encoding": encoding}
        )
        assert_error(response, 415, "UNSUPPORTED_MEDIA", "encoding")


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"1", b'"x"', b"\xff\xfe", b"[" * 5_000, b'{"a":' * 5_000]
)
async def test_a_body_that_is_not_an_object_is_rejected(
    embedded: DevicesServer, credentials: dict[str, str], method: str, path: str, body: bytes
) -> None:
    assert_error(await embedded.send(method, path, body, credentials | JSON), 400, "INVALID_FORMAT")


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
    assert_error(response, 400, "INVALID_FORMAT")


async def test_a_key_over_its_rate_limit_gets_a_retry_after(
    store_target: StoreTarget,
) -> None:
    """Each key has its own limit, with bursts of twice the rate."""
    async with open_server(await store_target.new_settings(devices_rate_limit=2)) as server:
        busy_key, other_key = await server.new_key(), await server.new_key()
        board = Board()
        for _ in range(4):
            assert (await server.post("/data", board.data("?"), key=busy_key)).status == 200
        for path, content in (("/data", board.data("?")), ("/register", board.registration())):
            response = await server.post(path, content, key=busy_key)
            assert_error(response, 429, "RATE_LIMITED")
            assert response.headers["retry-after"] == "1"
        assert (await server.post("/data", board.data("?"), key=other_key)).status == 200
        await server.clock.advance(1)
        for _ in range(2):
            assert (await server.post("/data", board.data("?"), key=busy_key)).status == 200
        assert_error(await server.post("/data", board.data("?"), key=busy_key), 429, "RATE_LIMITED")


async def test_any_origin_may_call_the_api_by_default(server: DevicesServer, key: str) -> None:
    """Error responses have CORS headers too."""
    for method in ("GET", "POST", "PATCH", "DELETE"):
        headers = {
            "Origin": "https://console.example",
            "Access-Control-Request-Method": method,
            "Access-Control-Request-Headers": "authorization,content-type",
        }
        preflight = await server.send("OPTIONS", "/devices", None, headers)
        assert preflight.status == 200
        assert preflight.headers["access-control-allow-origin"] == "*"
        assert method in preflight.headers["access-control-allow-methods"]
        allowed = preflight.headers["access-control-allow-headers"].lower()
        assert {"authorization", "content-type", "x-api-key"} <= set(allowed.split(", "))
    response = await server.send("GET", "/devices", None, {"Origin": "https://console.example"})
    assert_error(response, 401, "MISSING_TOKEN")
    assert response.headers["access-control-allow-origin"] == "*"
    assert {"x-request-id", "retry-after"} <= set(
        response.headers["access-control-expose-headers"].lower().split(", ")
    )


async def test_configured_origins_are_exclusive(tmp_path: Path) -> None:
    async with open_server(
        make_settings(
            data_dir=tmp_path, devices_cors_origins="https://a.example, https://b.example"
        )
    ) as server:
        for origin, is_allowed in (
            ("https://a.example", True),
            ("https://b.example", True),
            ("https://c.example", False),
        ):
            headers = {"Origin": origin, "Access-Control-Request-Method": "GET"}
            preflight = await server.send("OPTIONS", "/devices", None, headers)
            assert (preflight.status, preflight.headers.get("access-control-allow-origin")) == (
                (200, origin) if is_allowed else (400, None)
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
            assert_error(response, 503, "UNAVAILABLE", "store")
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
            service.replies.append(closed)
            response = await server.operator_request("/api-keys", "POST", {})
            assert_error(response, 503, "UNAVAILABLE")
            assert response.headers["retry-after"] == "1"
            assert [sent.operation for sent in service.sent] == ["PutItem"], (
                "not retried: it may have been applied"
            )
