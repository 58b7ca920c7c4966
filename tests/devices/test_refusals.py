"""What a request cannot do: too large, of a wrong kind, too often, from elsewhere, or while the store is away."""

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
from tests.store.misbehaving import closed, misbehaving

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
    """A server on SQLite alone, for what is refused before any engine hears of it."""
    async with open_server(make_settings(data_dir=tmp_path_factory.mktemp("embedded"))) as server:
        yield server


@pytest.fixture(scope="session")
async def who(embedded: DevicesServer) -> dict[str, str]:
    """All that a board and an operator can say of themselves."""
    return {"X-API-Key": await embedded.new_key(), "Authorization": f"Bearer {ADMIN}"}


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_a_body_over_a_mebibyte_is_refused(
    embedded: DevicesServer, who: dict[str, str], method: str, path: str
) -> None:
    """By what it announces, by what it brings, and by what it unpacks to."""
    body = b'"' + b"x" * MIB + b'"'
    assert_error(await embedded.send(method, path, body, who | JSON), 413, "TOO_LARGE", str(MIB))
    if path in TAKES_GZIP:
        bomb = gzip.compress(b" " * (50 * MIB))
        assert len(bomb) < MIB / 10
        assert_error(
            await embedded.send(method, path, bomb, who | JSON | {"Content-Encoding": "gzip"}),
            413,
            "TOO_LARGE",
        )


async def test_a_mebibyte_is_read(embedded: DevicesServer, who: dict[str, str]) -> None:
    board = Board()
    body = msgspec.json.encode(board.data(board.reading()))
    answer = await embedded.send("POST", "/data", body + b" " * (MIB - len(body)), who | JSON)
    assert answer.status == 200


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1", ""],
)
async def test_a_body_is_json(
    embedded: DevicesServer, who: dict[str, str], method: str, path: str, kind: str
) -> None:
    assert_error(
        await embedded.send(method, path, b"{}", who | ({"Content-Type": kind} if kind else {})),
        415,
        "UNSUPPORTED_MEDIA",
    )


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_an_encoding_that_is_not_read_is_refused(
    embedded: DevicesServer, who: dict[str, str], method: str, path: str
) -> None:
    for encoding in ("br", "deflate", "gzip, gzip", *(() if path in TAKES_GZIP else ("gzip",))):
        answer = await embedded.send(
            method, path, gzip.compress(b"{}"), who | JSON | {"Content-Encoding": encoding}
        )
        assert_error(answer, 415, "UNSUPPORTED_MEDIA", "encoding")


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"1", b'"x"', b"\xff\xfe", b"[" * 5_000, b'{"a":' * 5_000]
)
async def test_a_body_that_is_no_object_is_refused(
    embedded: DevicesServer, who: dict[str, str], method: str, path: str, body: bytes
) -> None:
    assert_error(await embedded.send(method, path, body, who | JSON), 400, "INVALID_FORMAT")


NO_GZIP = {
    "empty": b"",
    "plain": b"{}",
    "cut off": gzip.compress(b"{}", mtime=0)[:-4],
    "followed by more": gzip.compress(b"{}", mtime=0) + b"more",
    "damaged": b"\x1f\x8b" + b"0" * 99,
}


@pytest.mark.parametrize("name", NO_GZIP)
async def test_a_body_that_is_no_gzip_is_refused(
    embedded: DevicesServer, who: dict[str, str], name: str
) -> None:
    answer = await embedded.send(
        "POST", "/data", NO_GZIP[name], who | JSON | {"Content-Encoding": "gzip"}
    )
    assert_error(answer, 400, "INVALID_FORMAT")


async def test_a_key_that_comes_too_often_is_told_when_to_come_back(
    store_target: StoreTarget,
) -> None:
    """Each key has a rate of its own: twice as many at once as in a second."""
    async with open_server(await store_target.new_settings(devices_rate_limit=2)) as server:
        busy, calm = await server.new_key(), await server.new_key()
        board = Board()
        for _ in range(4):
            assert (await server.post("/data", board.data("?"), key=busy)).status == 200
        for path, content in (("/data", board.data("?")), ("/register", board.registration())):
            answer = await server.post(path, content, key=busy)
            assert_error(answer, 429, "RATE_LIMITED")
            assert answer.headers["retry-after"] == "1"
        assert (await server.post("/data", board.data("?"), key=calm)).status == 200
        await server.clock.advance(1)
        for _ in range(2):
            assert (await server.post("/data", board.data("?"), key=busy)).status == 200
        assert_error(await server.post("/data", board.data("?"), key=busy), 429, "RATE_LIMITED")


async def test_pages_of_other_origins_may_call_the_api(server: DevicesServer, key: str) -> None:
    """Any origin, unless told otherwise; errors can be read too."""
    for method in ("GET", "POST", "PATCH", "DELETE"):
        asked = {
            "Origin": "https://console.example",
            "Access-Control-Request-Method": method,
            "Access-Control-Request-Headers": "authorization,content-type",
        }
        preflight = await server.send("OPTIONS", "/devices", None, asked)
        assert preflight.status == 200
        assert preflight.headers["access-control-allow-origin"] == "*"
        assert method in preflight.headers["access-control-allow-methods"]
        allowed = preflight.headers["access-control-allow-headers"].lower()
        assert {"authorization", "content-type", "x-api-key"} <= set(allowed.split(", "))
    answer = await server.send("GET", "/devices", None, {"Origin": "https://console.example"})
    assert_error(answer, 401, "MISSING_TOKEN")
    assert answer.headers["access-control-allow-origin"] == "*"
    assert {"x-request-id", "retry-after"} <= set(
        answer.headers["access-control-expose-headers"].lower().split(", ")
    )


async def test_only_the_named_origins_may_call_where_some_are_named(tmp_path: Path) -> None:
    async with open_server(
        make_settings(
            data_dir=tmp_path, devices_cors_origins="https://a.example, https://b.example"
        )
    ) as server:
        for origin, may in (
            ("https://a.example", True),
            ("https://b.example", True),
            ("https://c.example", False),
        ):
            asked = {"Origin": origin, "Access-Control-Request-Method": "GET"}
            preflight = await server.send("OPTIONS", "/devices", None, asked)
            assert (preflight.status, preflight.headers.get("access-control-allow-origin")) == (
                (200, origin) if may else (400, None)
            )


async def test_a_store_that_went_away_is_a_503_that_says_when_to_come_back(tmp_path: Path) -> None:
    """SQLite: its directory is gone. What comes back after that is stored as ever."""
    folder = tmp_path / "data"
    async with open_server(make_settings(data_dir=folder)) as server:
        board, key = Board(), await server.new_key()
        await server.store_readings(board, [board.reading(0)], key)
        shutil.move(folder, tmp_path / "away")
        for answer in (
            await server.post("/data", board.data(board.reading(1)), key=key),
            await server.post("/register", board.registration(), key=key),
            await server.operator_request("/api-keys", "POST", {}),
        ):
            assert_error(answer, 503, "UNAVAILABLE", "store")
            assert answer.headers["retry-after"] == "1"
        shutil.move(tmp_path / "away", folder)
        await server.store_readings(board, [board.reading(1)], key)
        assert len(await server.readings(board)) == 2


async def test_a_service_that_breaks_off_is_a_503_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DynamoDB: the connection ends in the middle of a write, and nobody knows whether it was carried out."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tally")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "tally-secret")
    async with misbehaving() as service:
        new_settings = make_settings(
            data_dir=tmp_path, store_engine="dynamodb", dynamodb_endpoint=service.url
        )
        async with open_server(new_settings) as server:
            service.replies.append(closed)
            answer = await server.operator_request("/api-keys", "POST", {})
            assert_error(answer, 503, "UNAVAILABLE")
            assert answer.headers["retry-after"] == "1"
            assert [sent.operation for sent in service.sent] == ["PutItem"], (
                "not sent again: it may have been carried out"
            )
