"""Server processes: crashes under load, two servers on one data directory, export memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from pyreqwest.client import Client, ClientBuilder

from tally.devices.api.schemas.exports import FORMATS
from tally.store.sqlite import open_sqlite
from tests.devices.conftest import TABLES
from tests.devices.factories import random_readings, write_readings
from tests.devices.harness import ADMIN, FIRST_MS, Board
from tests.devices.processes import RetryingBoard, ServerProcess, serve, stored_batch_ids

BOARDS = 8
KILLS = 2
# Write on the writer thread, or in the writer process from the first write.
WRITERS = pytest.mark.parametrize(
    "writer_process_rate",
    [pytest.param(0, id="thread"), pytest.param(1, id="process", marks=pytest.mark.judge)],
)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with ClientBuilder().no_proxy().build() as client:
        yield client


async def new_key(client: Client, server: ServerProcess) -> str:
    request = client.post(f"{server.url}/devices/api-keys").bearer_auth(ADMIN).body_json({})
    return str((await (await request.build().send()).json())["api_key"])


async def wait_for_responses(progress: asyncio.Queue[int], count: int) -> None:
    """Wait for responses to that many more readings."""
    while count > 0:
        count -= await progress.get()


async def check_stored(client: Client, server: ServerProcess, senders: list[RetryingBoard]) -> None:
    """Every sent reading is stored once, and acknowledged at most once."""
    for sender in senders:
        found = await stored_batch_ids(client, server, sender.board)
        assert len(found) == len(set(found)), "stored twice"
        assert set(found) == sender.sent
        assert len(sender.acknowledged) == len(set(sender.acknowledged)), "acknowledged twice"
        assert set(sender.acknowledged) | sender.duplicate == sender.sent


@pytest.mark.soak
@WRITERS
async def test_acknowledged_readings_survive_a_crash(
    tmp_path: Path, client: Client, writer_process_rate: int
) -> None:
    """The server is killed under load and restarted."""
    async with AsyncExitStack() as stack:
        folder = tmp_path / "data"
        servers = [await stack.enter_async_context(serve(folder, writer_process_rate))]
        key = await new_key(client, servers[0])
        senders = [RetryingBoard(client, key) for _ in range(BOARDS)]
        progress: asyncio.Queue[int] = asyncio.Queue()
        sending = asyncio.gather(*(sender.run(servers, progress) for sender in senders))
        for _ in range(KILLS):
            await wait_for_responses(progress, 1_000)
            assert len(servers[0].children()) == writer_process_rate
            servers[0].kill()
            before = {sender.board.hardware_id: set(sender.acknowledged) for sender in senders}
            servers[0] = await stack.enter_async_context(serve(folder, writer_process_rate))
            for sender in senders:
                acknowledged = before[sender.board.hardware_id]
                if acknowledged:
                    assert acknowledged <= set(
                        await stored_batch_ids(client, servers[0], sender.board)
                    ), "an acknowledged reading is lost"
        await sending
        await check_stored(client, servers[0], senders)


@pytest.mark.soak
@WRITERS
async def test_two_servers_on_one_data_directory_store_each_reading_once(
    tmp_path: Path, client: Client, writer_process_rate: int
) -> None:
    """All boards send to both concurrently, and one server is killed."""
    folder = tmp_path / "data"
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(serve(folder, writer_process_rate)) for _ in range(2)
        ]
        key = await new_key(client, servers[1])
        board = Board()
        senders = [RetryingBoard(client, key, batches=5) for _ in range(4)]
        # Two senders with the same board send the same readings to both servers.
        twins = [
            RetryingBoard(client, key, board, batches=5),
            RetryingBoard(client, key, board, batches=5),
        ]
        progress: asyncio.Queue[int] = asyncio.Queue()
        sending = asyncio.gather(*(sender.run(servers, progress) for sender in (*senders, *twins)))
        await wait_for_responses(progress, 700)
        servers[0].kill()
        servers[0] = servers[1]
        await sending
        await check_stored(client, servers[1], senders)
        found = await stored_batch_ids(client, servers[1], board)
        assert len(found) == len(set(found)), "stored twice"
        assert set(found) == twins[0].sent
        both = twins[0].acknowledged + twins[1].acknowledged
        assert len(both) == len(set(both)), "acknowledged twice"


SHORT, LONG = 6_000, 24_000


async def test_export_memory_is_constant(tmp_path: Path, client: Client) -> None:
    """A file four times as long needs no more memory. As objects it would need 50 MB more."""
    board = Board()
    folder = tmp_path / "data"
    async with open_sqlite(folder) as engine:
        for table in TABLES:
            await engine.ensure_table(table)
        await write_readings(engine, random_readings(board, LONG, 1_000))
    async with serve(folder) as server:
        await RetryingBoard(client, await new_key(client, server), board, batches=1).run(
            [server], asyncio.Queue()
        )
        short = {
            file_format: await download(client, server, board, file_format, SHORT)
            for file_format in FORMATS
        }
        long = {
            file_format: await download(client, server, board, file_format, LONG)
            for file_format in FORMATS
        }
    for file_format in FORMATS:
        assert long[file_format][0] > 3 * short[file_format][0]
    assert (
        max(memory for _, memory in long.values())
        < max(memory for _, memory in short.values()) + 15_000_000
    )


async def download(
    client: Client, server: ServerProcess, board: Board, file_format: str, seconds: int
) -> tuple[int, int]:
    """Download and discard an export; return its length and the peak memory of the server."""
    query = f"format={file_format}&to={FIRST_MS + seconds * 1_000}"
    url = f"{server.url}/devices/devices/{board.hardware_id}/export?{query}"
    length = memory = 0
    async with client.get(url).bearer_auth(ADMIN).build_streamed() as response:
        assert response.status == 200
        while (chunk := await response.body_reader.read_chunk()) is not None:
            length += len(chunk)
            memory = max(memory, server.memory())
    return length, memory
