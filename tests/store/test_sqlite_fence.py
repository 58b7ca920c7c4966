"""A fence rejects the writes of every process; recording keeps streams that no table declares."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from tally.store.api import BatchWrite, Delete, Get, Put, Transaction, Update
from tally.store.errors import WritesPaused
from tally.store.expressions import F
from tally.store.sqlite import SqliteEngine, open_sqlite
from tests.store.streams import next_changes
from tests.store.tables import PLAIN, TABLES, once


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[SqliteEngine]:
    async with open_sqlite(tmp_path) as engine:
        await engine.ensure_table(PLAIN)
        yield engine


async def test_a_fence_of_another_process_rejects_every_kind_of_write(
    engine: SqliteEngine, tmp_path: Path
) -> None:
    await engine.put(Put(PLAIN, {"id": "before"}))
    async with open_sqlite(tmp_path, passes_fence=True) as mover:
        await mover.set_fence("moving")
        for write in (
            engine.put(Put(PLAIN, {"id": "a"})),
            engine.update(Update(PLAIN, {"id": "a"}, (F("n").set(1),))),
            engine.delete(Delete(PLAIN, {"id": "before"})),
            engine.batch_write(BatchWrite(PLAIN, ({"id": "a"},))),
            engine.transact(Transaction((Put(PLAIN, {"id": "a"}),), token="t")),
            engine.transact(Transaction((Put(PLAIN, {"id": "a"}),))),
            engine.transact_each([Transaction((Put(PLAIN, {"id": "a"}),))] * 2),
        ):
            with pytest.raises(WritesPaused, match="moving"):
                await write
        assert (await engine.get(Get(PLAIN, {"id": "a"}))).item is None
        assert (await engine.get(Get(PLAIN, {"id": "before"}))).item is not None
        await mover.put(Put(PLAIN, {"id": "moved"}))
        await mover.set_fence(None)
    await engine.put(Put(PLAIN, {"id": "after"}))


async def test_no_write_is_acknowledged_after_the_fence_is_set(
    engine: SqliteEngine, tmp_path: Path
) -> None:
    """The position of the log after the fence covers every acknowledged write."""
    table = replace(PLAIN, stream="KEYS_ONLY")
    await engine.ensure_table(table)
    acknowledged: list[str] = []
    is_writing = asyncio.Event()

    async def write() -> None:
        for number in range(100_000):
            await engine.put(Put(table, {"id": f"n{number}"}))
            acknowledged.append(f"n{number}")
            if number == 50:
                is_writing.set()

    writing = asyncio.create_task(write())
    async with open_sqlite(tmp_path, passes_fence=True) as mover:
        await is_writing.wait()
        await mover.set_fence("moving")
        end = await mover.stream_position(table)
        with pytest.raises(WritesPaused):
            await writing
        assert await mover.stream_position(table) == end
        changes = await next_changes(mover, table, len(acknowledged))
        assert [change.key["id"] for change in changes] == acknowledged


async def test_a_fence_outlives_the_process_that_set_it(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as engine:
        await engine.ensure_table(PLAIN)
        await engine.set_fence("moved")
    async with open_sqlite(tmp_path) as engine:
        await engine.ensure_table(PLAIN)
        with pytest.raises(WritesPaused, match="moved"):
            await engine.put(Put(PLAIN, {"id": "a"}))


async def test_the_writer_process_rejects_writes_too(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path, writer_process_rate=1) as engine:
        for table in TABLES:
            await engine.ensure_table(table)
        await engine.transact_each([once("first", "nobody")])
        assert engine.write_router._starting is not None
        await engine.write_router._starting
        assert engine.write_router.process is not None
        await engine.set_fence("moving")
        with pytest.raises(WritesPaused, match="moving"):
            await engine.transact_each([once(f"n{number}", "ann") for number in range(20)])


async def test_a_starting_server_keeps_the_streams_that_a_move_turned_on(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as mover:
        await mover.ensure_table(PLAIN)
        await mover.set_recording(is_on=True)
        await mover.ensure_table(replace(PLAIN, stream="KEYS_ONLY"))
        position = await mover.stream_position(PLAIN)
        async with open_sqlite(tmp_path) as server:
            await server.ensure_table(PLAIN)
            await server.put(Put(PLAIN, {"id": "a"}))
        (change,) = await next_changes(mover, PLAIN, 1, position)
        assert change.key == {"id": "a"}
        await mover.set_recording(is_on=False)
        await mover.ensure_table(PLAIN)
        assert (await mover.describe_table(PLAIN.name)).stream is None
