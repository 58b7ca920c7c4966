"""Streams of two processes on one data directory: clients reconnect to either and miss nothing."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest
from pyreqwest.client import ClientBuilder

from tests.devices.harness import ADMIN
from tests.devices.processes import RetryingBoard, ServerProcess, serve, stored_batch_ids

DEADLINE_SECONDS = 240.0


@dataclass
class StreamClient:
    """A client that reconnects to a random server, also if its connection is cut."""

    hardware_id: str
    rng: random.Random
    received: list[str] = field(default_factory=list)
    last_event_id: str = ""
    snapshots: int = 0

    async def run(
        self, servers: list[ServerProcess], connected: asyncio.Event, *, restless: bool
    ) -> None:
        while True:
            server = self.rng.choice([one for one in servers if one.process.returncode is None])
            events = self.rng.randint(1, 40) if restless else None
            with suppress(OSError, asyncio.IncompleteReadError, ValueError):
                await self._stream(server.url, connected, events)
            await asyncio.sleep(0.02)  # the server may be gone

    async def _stream(self, url: str, connected: asyncio.Event, events: int | None) -> None:
        address = urlsplit(url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=2**24)
        try:
            writer.write(self._head())
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in head.split(b"\r\n", 1)[0]:
                return
            async for block in _blocks(reader):
                self._take(block)
                connected.set()
                if events is not None and (events := events - 1) == 0:
                    return
        finally:
            writer.transport.abort()

    def _head(self) -> bytes:
        last = f"Last-Event-ID: {self.last_event_id}\r\n" if self.last_event_id else ""
        return (
            f"GET /devices/devices/{self.hardware_id}/stream HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {ADMIN}\r\n{last}\r\n"
        ).encode()

    def _take(self, block: str) -> None:
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
        if fields.get("event") == "reading":
            self.received.append(str(msgspec.json.decode(fields["data"])["batch_id"]))
        elif fields.get("event") == "snapshot":
            self.snapshots += 1
        self.last_event_id = fields.get("id", self.last_event_id)


async def _blocks(reader: asyncio.StreamReader) -> AsyncIterator[str]:
    """Yield the events of a chunked response."""
    text = ""
    while size := int(await reader.readline(), 16):
        text += (await reader.readexactly(size + 2))[:-2].decode()
        *blocks, text = text.split("\n\n")
        for block in blocks:
            yield block


@asynccontextmanager
async def watched_boards(
    folder: Path, boards: int, clients: int, batches: int
) -> AsyncIterator[tuple[list[ServerProcess], list[RetryingBoard], list[StreamClient]]]:
    """Two servers, and clients that are connected before the boards send anything."""
    async with (
        serve(folder, streams=clients * 2) as one,
        serve(folder, streams=clients * 2) as two,
        ClientBuilder().build() as client,
    ):
        servers = [one, two]
        created = (
            await client.post(f"{one.url}/devices/api-keys")
            .bearer_auth(ADMIN)
            .body_json({"description": "boards"})
            .build()
            .send()
        )
        key = str((await created.json())["key"])
        senders = [RetryingBoard(client, key, batches=batches) for _ in range(boards)]
        for sender in senders:
            await (
                client.post(f"{one.url}/devices/register")
                .header("X-API-Key", key)
                .body_json(sender.board.registration())
                .build()
                .send()
            )
        watchers = [
            StreamClient(senders[number % boards].board.hardware_id, random.Random(number))
            for number in range(clients)
        ]
        yield servers, senders, watchers


async def run_streams(
    folder: Path,
    *,
    boards: int,
    clients: int,
    batches: int,
    kill: bool,
) -> None:
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        watched_boards(folder, boards, clients, batches) as (
            servers,
            senders,
            watchers,
        ),
        asyncio.TaskGroup() as group,
    ):
        connected = [asyncio.Event() for _ in watchers]
        running = [
            group.create_task(watcher.run(servers, event, restless=number % 2 == 0))
            for number, (watcher, event) in enumerate(zip(watchers, connected, strict=True))
        ]
        for event in connected:
            await event.wait()
        progress: asyncio.Queue[int] = asyncio.Queue()
        sending = [group.create_task(sender.run(servers, progress)) for sender in senders]
        if kill:
            for _ in range(len(senders) * batches // 2):
                await progress.get()
            victim = servers[1]
            victim.kill()
            await victim.process.wait()
            servers.remove(victim)
        await asyncio.gather(*sending)
        expected = {
            sender.board.hardware_id: sorted(
                await stored_batch_ids(sender.client, servers[0], sender.board)
            )
            for sender in senders
        }
        for watcher in watchers:
            while len(watcher.received) < len(expected[watcher.hardware_id]):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        for task in running:
            task.cancel()
    for watcher in watchers:
        assert sorted(watcher.received) == expected[watcher.hardware_id]
        assert watcher.snapshots == 1, "it continued exactly after every disconnect"


async def test_clients_of_a_killed_process_miss_nothing(tmp_path: Path) -> None:
    """Half of them reconnect at random; the others when their server is killed."""
    await run_streams(tmp_path, boards=3, clients=24, batches=8, kill=True)


@pytest.mark.judge
@pytest.mark.parametrize("kill", [False, True])
async def test_a_thousand_clients_on_two_processes_receive_everything(
    tmp_path: Path, kill: bool
) -> None:
    await run_streams(tmp_path, boards=20, clients=1_000, batches=10, kill=kill)
