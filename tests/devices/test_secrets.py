"""Raw API keys never appear in tables, files or logs."""

import hashlib
import io
from pathlib import Path

import msgspec

from tally.devices.repository.keys import API_KEYS
from tally.kit import logs
from tally.kit.clock import SystemClock
from tally.settings import Secret, Settings
from tally.store.api import Scan
from tests.api_response import expect_error
from tests.devices.harness import ADMIN, Board, make_settings, open_server

PEPPER = "a pepper of at least 32 characters, for the tests"


async def test_a_raw_key_is_not_persisted_or_logged(tmp_path: Path) -> None:
    """At debug level, also after a failed request."""
    stream = io.StringIO()
    logs.configure(
        Settings(log_format="json", log_level="debug", access_log=True), SystemClock(), stream
    )
    folder = tmp_path / "data"
    settings = make_settings(data_dir=folder, devices_key_pepper=Secret(PEPPER), access_log=True)
    async with open_server(settings) as server:
        board, key, unknown = Board(), await server.new_key("cluster"), "ab" * 32
        for sent in (key, unknown):
            await server.post("/register", board.registration(), key=sent)
            await server.post("/data", board.data(board.reading()), key=sent)
            await server.post(f"/data?key={sent}", board.data(board.reading()), key=sent)
        (folder / "store.db").rename(tmp_path / "moved.db")
        expect_error(
            await server.post("/data", board.data(board.reading()), key=key), 503, "unavailable"
        )
        (tmp_path / "moved.db").rename(folder / "store.db")
        items = (await server.application.engine.scan(Scan(API_KEYS))).items
        shown = (await server.operator_request("/api-keys")).body.decode()
    secrets = {
        key: "the key",
        unknown: "a wrong key",
        ADMIN: "the operator token",
        PEPPER: "the pepper",
    }
    files = b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())
    assert len(files) > 10_000
    for secret, name in secrets.items():
        assert secret not in stream.getvalue(), name
        assert secret not in shown
        assert secret.encode() not in files, name
        assert bytes.fromhex(key) not in files
    assert [item["api_key_hash"] for item in items] == [
        hashlib.sha256((PEPPER + key).encode()).hexdigest()
    ]


async def test_log_lines_contain_the_request_id(tmp_path: Path, log: io.StringIO) -> None:
    """And the route."""
    async with open_server(make_settings(data_dir=tmp_path, access_log=True)) as server:
        response = await server.send("GET", "/devices", None, {"X-Request-Id": "board-7"})
        assert response.headers["x-request-id"] == "board-7"
    lines = [msgspec.json.decode(line) for line in log.getvalue().splitlines()]
    [line] = [line for line in lines if line["requestId"] == "board-7"]
    assert (line["data"]["status"], line["data"]["route"]) == (401, "/devices/devices")
