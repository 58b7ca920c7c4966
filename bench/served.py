"""The devices backend as `tally serve` serves it, in a process of its own, with the credentials of operators and boards."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
from pyreqwest.client import Client, ClientBuilder

from bench.posting import Poster
from bench.programs import Program, started


@dataclass(frozen=True, slots=True)
class Served:
    """The server: where it is, a client and the token of its operators, and one that posts as boards do."""

    url: str
    program: Program
    client: Client
    token: str
    poster: Poster

    async def post_data(self, body: bytes) -> None:
        """Send readings as a board does, and see that all of them were stored."""
        status, content = await self.poster.post(body)
        if status != 200 or not content.endswith(b'"duplicate_batch_ids":[],"rejected":[]}'):
            raise AssertionError(f"not all readings were stored: {status} {content[-200:]!r}")

    async def get(self, path: str) -> bytes:
        """What an operator reads."""
        response = await self.client.get(self.url + path).bearer_auth(self.token).build().send()
        content = bytes(await response.bytes())
        if response.status != 200:
            raise AssertionError(f"{path} was answered with {response.status} {content[:200]!r}")
        return content

    def memory(self) -> float:
        return self.program.memory()

    def processor_seconds(self) -> float:
        return self.program.processor_seconds()


@asynccontextmanager
async def served(directory: Path) -> AsyncIterator[Served]:
    """`tally serve` on a data directory, on a free port, without a limit of requests; stopped at the end."""
    given = {
        "TALLY_DATA_DIR": str(directory),
        "TALLY_DEVICES_RATE_LIMIT": "1000000",
        "TALLY_LOG_FORMAT": "json",
    }
    async with (
        started("serve", "devices", "--port", "0", given=given) as program,
        ClientBuilder().max_connections(256).build() as client,
    ):
        url = f"{program.url}/devices"
        token = (directory / "devices-admin.key").read_text(encoding="utf-8").strip()
        made = await client.post(f"{url}/api-keys").bearer_auth(token).body_json({}).build().send()
        api_key = msgspec.json.decode(bytes(await made.bytes()))["api_key"]
        poster = Poster(f"{url}/data", {"X-API-Key": api_key, "Content-Type": "application/json"})
        try:
            yield Served(url, program, client, token, poster)
        finally:
            poster.close()
