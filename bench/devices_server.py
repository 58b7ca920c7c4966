"""Runs `tally serve devices` as a separate process, with clients for its APIs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
from pyreqwest.client import Client, ClientBuilder

from bench.http_client import KeepAliveClient, open_client
from bench.programs import Program, start_program


@dataclass(frozen=True, slots=True)
class DevicesServer:
    """A running devices backend with an admin client and a client that posts readings."""

    url: str
    program: Program
    client: Client
    token: str
    board: KeepAliveClient

    async def post_data(self, body: bytes) -> None:
        """Post readings and verify that all were stored."""
        content = await self.board.request("POST", "/devices/data", body)
        if not content.endswith(b'"duplicate_batch_ids":[],"rejected":[]}'):
            raise AssertionError(f"not all readings were stored: {content[-200:]!r}")

    async def get(self, path: str) -> bytes:
        """Return the body of an admin request."""
        response = await self.client.get(self.url + path).bearer_auth(self.token).build().send()
        content = bytes(await response.bytes())
        if response.status != 200:
            raise AssertionError(f"{path} returned {response.status} {content[:200]!r}")
        return content

    def memory(self) -> float:
        return self.program.memory()

    def cpu_seconds(self) -> float:
        return self.program.cpu_seconds()


@asynccontextmanager
async def open_devices_server(
    directory: Path, retention_days: int = 90
) -> AsyncIterator[DevicesServer]:
    """Run `tally serve devices` on a free port without a rate limit."""
    environment = {
        "TALLY_DEVICES_RETENTION_DAYS": str(retention_days),
        "TALLY_DATA_DIR": str(directory),
        "TALLY_DEVICES_RATE_LIMIT": "1000000",
        "TALLY_LOG_FORMAT": "json",
    }
    async with (
        start_program("serve", "devices", "--port", "0", environment=environment) as program,
        ClientBuilder().max_connections(256).build() as client,
    ):
        token = (directory / "operator.token").read_text(encoding="utf-8").strip()
        key = await create_board_key(program.url, directory)
        headers = {"X-API-Key": key, "Content-Type": "application/json"}
        with open_client(program.url, headers) as board:
            yield DevicesServer(f"{program.url}/devices", program, client, token, board)


async def create_board_key(url: str, directory: Path) -> str:
    """Create an API key with the operator token in the data directory."""
    token = (directory / "operator.token").read_text(encoding="utf-8").strip()
    async with ClientBuilder().error_for_status(True).build() as client:
        request = client.post(f"{url}/devices/api-keys").bearer_auth(token).body_json({})
        response = await request.build().send()
        key: str = msgspec.json.decode(bytes(await response.bytes()))["api_key"]
        return key
