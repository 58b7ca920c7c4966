"""The server as a process: killed under load, doubled on one data directory, and asked for files longer than its memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from pyreqwest.client import Client, ClientBuilder

from tally.devices.api.exports import FORMATS
from tally.store.sqlite import open_sqlite
from tests.devices.conftest import TABLES
from tests.devices.factories import random_readings, write_readings
from tests.devices.harness import ADMIN, FIRST_MS, Board
from tests.devices.processes import RetryingBoard, ServerProcess, serve, stored_batch_ids

BOARDS = 8
KILLS = 2
# The writer's thread, or a process of its own as soon as there is anything to write.
WHO_WRITES = pytest.mark.parametrize(
    "writer_process_rate", [pytest.param(0, id="thread"), pytest.param(1, id="process")]
)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with ClientBuilder().no_proxy().build() as client:
        yield client


async def new_key(client: Client, server: ServerProcess) -> str:
    request = client.post(f"{server.url}/devices/api-keys").bearer_auth(ADMIN).body_json({})
    return str((await (await request.build().send()).json())["api_key"])


async def answered(progress: asyncio.Queue[int], count: int) -> None:
    """Wait until so many more readings are answered."""
    while count > 0:
        count -= await progress.get()


async def check(client: Client, server: ServerProcess, senders: list[RetryingBoard]) -> None:
    """All that was acknowledged is there, nothing twice, and nothing that was not sent."""
    for sender in senders:
        found = await stored_batch_ids(client, server, sender.board)
        assert len(found) == len(set(found)), "stored twice"
        assert set(found) == sender.sent
        assert len(sender.acknowledged) == len(set(sender.acknowledged)), "acknowledged twice"
        assert set(sender.acknowledged) | sender.duplicate == sender.sent


@pytest.mark.soak
@WHO_WRITES
async def test_what_was_acknowledged_survives_kill_9(
    tmp_path: Path, client: Client, writer_process_rate: int
) -> None:
    """The server is killed after a number of answers, in the middle of the next ones, and started again."""
    async with AsyncExitStack() as stack:
        folder = tmp_path / "data"
        servers = [await stack.enter_async_context(serve(folder, writer_process_rate))]
        key = await new_key(client, servers[0])
        senders = [RetryingBoard(client, key) for _ in range(BOARDS)]
        progress: asyncio.Queue[int] = asyncio.Queue()
        sending = asyncio.gather(*(sender.run(servers, progress) for sender in senders))
        for _ in range(KILLS):
            await answered(progress, 1_000)
            assert len(servers[0].children()) == writer_process_rate
            servers[0].kill()
            before = {sender.board.hardware_id: set(sender.acknowledged) for sender in senders}
            servers[0] = await stack.enter_async_context(serve(folder, writer_process_rate))
            for sender in senders:
                promised = before[sender.board.hardware_id]
                if promised:
                    assert promised <= set(
                        await stored_batch_ids(client, servers[0], sender.board)
                    ), "an acknowledged reading is lost"
        await sending
        await check(client, servers[0], senders)


@pytest.mark.soak
@WHO_WRITES
async def test_two_servers_on_one_data_directory_store_everything_once(
    tmp_path: Path, client: Client, writer_process_rate: int
) -> None:
    """Every board sends to both, all at once; one of them is killed on the way, and the other goes on."""
    folder = tmp_path / "data"
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(serve(folder, writer_process_rate)) for _ in range(2)
        ]
        key = await new_key(client, servers[1])
        board = Board()
        senders = [RetryingBoard(client, key, batches=5) for _ in range(4)]
        # Two of the same board: each sends all of its readings, to both servers.
        twins = [
            RetryingBoard(client, key, board, batches=5),
            RetryingBoard(client, key, board, batches=5),
        ]
        progress: asyncio.Queue[int] = asyncio.Queue()
        sending = asyncio.gather(*(sender.run(servers, progress) for sender in (*senders, *twins)))
        await answered(progress, 700)
        servers[0].kill()
        servers[0] = servers[1]
        await sending
        await check(client, servers[1], senders)
        found = await stored_batch_ids(client, servers[1], board)
        assert len(found) == len(set(found)), "stored twice"
        assert set(found) == twins[0].sent
        both = twins[0].acknowledged + twins[1].acknowledged
        assert len(both) == len(set(both)), "acknowledged to both"


SHORT, LONG = 6_000, 24_000


async def test_an_export_of_any_length_takes_no_more_memory(tmp_path: Path, client: Client) -> None:
    """As objects, so many readings would be fifty megabytes; a file four times as long takes what the shorter one took."""
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
        short = {form: await downloaded(client, server, board, form, SHORT) for form in FORMATS}
        long = {form: await downloaded(client, server, board, form, LONG) for form in FORMATS}
    for form in FORMATS:
        assert long[form][0] > 3 * short[form][0]
    assert (
        max(memory for _, memory in long.values())
        < max(memory for _, memory in short.values()) + 15_000_000
    )


async def downloaded(
    client: Client, server: ServerProcess, board: Board, form: str, seconds: int
) -> tuple[int, int]:
    """The length of a file that nobody keeps, and the most memory that the server had meanwhile."""
    url = f"{server.url}/devices/devices/{board.hardware_id}/export?format={form}&to={FIRST_MS + seconds * 1_000}"
    length = memory = 0
    async with client.get(url).bearer_auth(ADMIN).build_streamed() as response:
        assert response.status == 200
        while (piece := await response.body_reader.read_chunk()) is not None:
            length += len(piece)
            memory = max(memory, server.memory())
    return length, memory
