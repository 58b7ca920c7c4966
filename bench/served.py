"""A real server in a process of its own, as `tally serve` starts it, and what it costs: memory and processor time."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
from pyreqwest.client import Client, ClientBuilder

_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Served:
    """The server: where it is, a client, and the credentials of operators and boards."""

    url: str
    pid: int
    client: Client
    token: str
    api_key: str

    async def post_data(self, body: bytes) -> None:
        """Send readings, and see that all of them were stored."""
        headers = {"X-API-Key": self.api_key, "Content-Type": "application/json"}
        response = await self.client.post(f"{self.url}/data").headers(headers).body_bytes(body).build().send()
        content = bytes(await response.bytes())
        if response.status != 200 or not content.endswith(b'"duplicate_batch_ids":[],"rejected":[]}'):
            raise AssertionError(f"not all readings were stored: {response.status} {content[-200:]!r}")

    async def get(self, path: str) -> bytes:
        """What an operator reads."""
        response = await self.client.get(self.url + path).bearer_auth(self.token).build().send()
        content = bytes(await response.bytes())
        if response.status != 200:
            raise AssertionError(f"{path} was answered with {response.status} {content[:200]!r}")
        return content

    def memory(self) -> float:
        """Resident megabytes of its own; the pages of the database file that are mapped belong to the system's cache."""
        lines = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) / 1024

    def processor_seconds(self) -> float:
        """Processor time used so far, by all threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICK


@asynccontextmanager
async def served(directory: Path) -> AsyncIterator[Served]:
    """`tally serve` on a data directory, on a free port, without a limit of requests; stopped at the end."""
    given = {"TALLY_DATA_DIR": str(directory), "TALLY_DEVICES_RATE_LIMIT": "1000000", "TALLY_LOG_FORMAT": "json"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TALLY_")} | given
    words = (sys.executable, "-m", "tally.cli", "serve", "--port", "0")
    program = await asyncio.create_subprocess_exec(*words, env=environment, stderr=asyncio.subprocess.PIPE)
    try:
        async with ClientBuilder().max_connections(256).build() as client:
            url = f"{await _address(program)}/devices"
            token = (directory / "devices-admin.key").read_text(encoding="utf-8").strip()
            made = await client.post(f"{url}/api-keys").bearer_auth(token).body_json({}).build().send()
            api_key = msgspec.json.decode(bytes(await made.bytes()))["api_key"]
            yield Served(url, program.pid, client, token, api_key)
    finally:
        program.terminate()
        await program.wait()


async def _address(program: asyncio.subprocess.Process) -> str:
    if program.stderr is None:
        raise AssertionError("the server has no log")
    while line := await program.stderr.readline():
        told = json.loads(line) if line.startswith(b"{") else {}
        if told.get("action") == "listening":
            return str(told["data"]["url"])
    raise AssertionError("the server ended before it listened")
