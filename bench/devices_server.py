"""Runs `tally serve devices` as a separate process, with clients for its APIs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
from pyreqwest.client import Client, ClientBuilder

from bench.http_poster import Poster
from bench.programs import Program, start_program


@dataclass(frozen=True, slots=True)
class DevicesServer:
    """A running devices backend with an admin client and a client that posts readings."""

    url: str
    program: Program
    client: Client
    token: str
    poster: Poster

    async def post_data(self, body: bytes) -> None:
        """Post readings and verify that all were stored."""
        status, content = await self.poster.post(body)
        if status != 200 or not content.endswith(b'"duplicate_batch_ids":[],"rejected":[]}'):
            raise AssertionError(f"not all readings were stored: {status} {content[-200:]!r}")

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
async def open_devices_server(directory: Path) -> AsyncIterator[DevicesServer]:
    """Run `tally serve devices` on a free port without a rate limit."""
    environment = {
        "TALLY_DATA_DIR": str(directory),
        "TALLY_DEVICES_RATE_LIMIT": "1000000",
        "TALLY_LOG_FORMAT": "json",
    }
    async with (
        start_program("serve", "devices", "--port", "0", environment=environment) as program,
        ClientBuilder().max_connections(256).build() as client,
    ):
        url = f"{program.url}/devices"
        token = (directory / "devices-admin.key").read_text(encoding="utf-8").strip()
        response = (
            await client.post(f"{url}/api-keys").bearer_auth(token).body_json({}).build().send()
        )
        api_key = msgspec.json.decode(bytes(await response.bytes()))["api_key"]
        poster = Poster(f"{url}/data", {"X-API-Key": api_key, "Content-Type": "application/json"})
        try:
            yield DevicesServer(url, program, client, token, poster)
        finally:
            poster.close()
