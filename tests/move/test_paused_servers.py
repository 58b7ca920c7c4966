"""Servers during and after a switch, as their clients see them."""

from pathlib import Path

from tally.store.sqlite import open_sqlite
from tests.api_response import expect_error
from tests.devices.harness import Board, make_settings, open_server


async def test_a_server_serves_reads_and_rejects_writes_with_retry_after_during_the_pause(
    tmp_path: Path,
) -> None:
    async with open_server(make_settings(data_dir=tmp_path)) as server:
        board, key = Board(), await server.new_key()
        await server.store_readings(board, [board.reading()], key)
        async with open_sqlite(tmp_path) as mover:
            await mover.set_fence("moving")
            rejected = await server.post("/register", Board().registration(), key=key)
            expect_error(rejected, 503, "store_moving")
            assert rejected.headers["retry-after"] == "5"
            data = await server.post("/data", board.data(board.reading()), key=key)
            expect_error(data, 503, "store_moving")
            assert len(await server.readings(board)) == 1
            await mover.set_fence(None)
        await server.store_readings(board, [board.reading()], key)
