"""`tally serve` in processes that tests can kill, and boards that retry on any of them."""

import asyncio
import json
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from pyreqwest.client import Client
from pyreqwest.exceptions import PyreqwestError

from tests.devices.harness import ADMIN, FIRST_MS, MINUTE_MS, Board, Json


class ServerProcess:
    """A server process."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.process = process
        self.url = url

    def kill(self) -> None:
        """Send SIGKILL."""
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)

    def children(self) -> list[int]:
        """Return the ids of its child processes."""
        found = list[int]()
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            with suppress(OSError):  # the thread has just ended
                found += map(int, (task / "children").read_text(encoding="utf-8").split())
        return found

    def memory(self) -> int:
        """Return the anonymous resident memory in bytes, without mapped database pages."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        [line] = [line for line in status.splitlines() if line.startswith("RssAnon:")]
        return int(line.split()[1]) * 1024


@asynccontextmanager
async def serve(
    folder: Path,
    writer_process_rate: int = 3_000,
    streams: int = 10,
    settings: Mapping[str, str] | None = None,
) -> AsyncIterator[ServerProcess]:
    """Start a server on a data directory; kill it on exit."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("TALLY_")
    }
    environment |= {
        "TALLY_DATA_DIR": str(folder),
        "TALLY_PORT": "0",
        "TALLY_LOG_FORMAT": "json",
        "TALLY_SHUTDOWN_DELAY": "0",
        "TALLY_OPERATOR_TOKEN": ADMIN,
        "TALLY_DEVICES_RATE_LIMIT": "1000000",
        "TALLY_STORE_WRITER_PROCESS_RATE": str(writer_process_rate),
        "TALLY_STREAMS_PER_PERSON": str(streams),
        "TALLY_STREAMS_PER_ADDRESS": str(streams),
        **(settings or {}),
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tally.cli",
        "serve",
        "devices",
        env=environment,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    draining = None
    try:
        program = ServerProcess(process, await _url(process.stderr))
        draining = asyncio.create_task(process.stderr.read())
        yield program
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        if draining is not None:
            await draining


async def _url(output: asyncio.StreamReader) -> str:
    """Return the URL in the log entry `listening`."""
    lines = []
    async for line in output:
        lines.append(line.decode())
        with suppress(json.JSONDecodeError):
            entry = json.loads(line)
            if entry.get("action") == "listening":
                return str(entry["data"]["url"])
    raise AssertionError(f"the server did not start: {''.join(lines)}")


@dataclass(slots=True)
class RetryingBoard:
    """Sends batches to random servers and retries each until it gets a response."""

    client: Client
    key: str
    board: Board = field(default_factory=Board)
    batches: int = 10
    sent: set[str] = field(default_factory=set)
    acknowledged: list[str] = field(default_factory=list)
    duplicate: set[str] = field(default_factory=set)

    async def run(self, servers: list[ServerProcess], progress: asyncio.Queue[int]) -> None:
        """Send all batches in order; put the size of each completed batch into `progress`."""
        sizes, rng = random.Random(self.board.hardware_id), random.Random()
        for number in range(self.batches):
            readings = [
                self._reading(number * 100 + offset) for offset in range(sizes.randint(1, 100))
            ]
            self.sent.update(reading["batch_id"] for reading in readings)
            receipt = await self._post(rng.choice(servers), readings)
            while receipt is None:
                # The server is down: back off while it starts.
                await asyncio.sleep(0.01)
                receipt = await self._post(rng.choice(servers), readings)
            self.acknowledged += receipt["acknowledged_batch_ids"]
            self.duplicate.update(receipt["duplicate_batch_ids"])
            assert receipt["rejected"] == []
            progress.put_nowait(len(readings))

    def _reading(self, number: int) -> Json:
        return self.board.reading(number, timestamp_ms=FIRST_MS + number * MINUTE_MS)

    async def _post(self, server: ServerProcess, readings: list[Json]) -> Json | None:
        body = msgspec.json.encode(self.board.data(*readings))
        headers = {"X-API-Key": self.key, "Content-Type": "application/json"}
        try:
            response = (
                await self.client.post(f"{server.url}/devices/data")
                .headers(headers)
                .body_bytes(body)
                .build()
                .send()
            )
            receipt: Json = await response.json()
        except PyreqwestError:
            return None
        return receipt if response.status == 200 else None


async def stored_batch_ids(client: Client, server: ServerProcess, board: Board) -> list[str]:
    """Return the batch ids of all readings of a board, from its export."""
    url = f"{server.url}/devices/devices/{board.hardware_id}/export?format=ndjson"
    response = await client.get(url).bearer_auth(ADMIN).build().send()
    assert response.status == 200
    return [
        str(msgspec.json.decode(line)["batch_id"]) for line in (await response.text()).splitlines()
    ]
