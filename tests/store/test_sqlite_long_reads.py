"""Long reads of the embedded engine run in turns, return the same pages, and release their turn."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tally.kit.time_slices import TimeSlices
from tally.store.api import BatchWrite, Delete, Page, Put, Query, Scan
from tally.store.errors import StoreUnavailable
from tally.store.expressions import F
from tally.store.sqlite import SqliteEngine, open_sqlite
from tally.store.sqlite.reads import MAX_SHORT_READ
from tally.store.values import Item
from tests.store.tables import NUMBERS, fresh

COUNT = 200
ROWS_PER_TURN = 10


class RowClock:
    """A monotonic clock that reading a row advances: each look takes a second."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        self.seconds += 1
        return self.seconds


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[SqliteEngine]:
    """An engine whose turns end after `ROWS_PER_TURN` rows."""
    async with open_sqlite(tmp_path) as opened:
        opened._slices = TimeSlices(RowClock(), seconds=ROWS_PER_TURN)
        await opened.create_table(NUMBERS)
        yield opened


async def fill(engine: SqliteEngine) -> str:
    partition = fresh()
    for first in range(0, COUNT, 25):
        puts = tuple(item(partition, at) for at in range(first, first + 25))
        await engine.batch_write(BatchWrite(NUMBERS, puts=puts))
    return partition


def item(partition: str, at: int) -> Item:
    return {"id": partition, "at": at, "parts": {"even": at % 2 == 0, "text": "x" * at}}


def ats(page: Page) -> list[int]:
    return [found["at"] for found in page.items]


async def iterations(work: "asyncio.Task[Page]") -> int:
    """Count the iterations of the event loop until the work is done."""
    count = 0
    while not work.done():
        await asyncio.sleep(0)
        count += 1
    return count


async def test_a_long_query_lets_others_run_after_each_turn(engine: SqliteEngine) -> None:
    query = Query(NUMBERS, F("id") == await fill(engine))
    work = asyncio.create_task(engine.query(query))
    assert await iterations(work) >= COUNT / ROWS_PER_TURN
    assert ats(work.result()) == [*range(COUNT)]


async def test_a_short_query_does_not_wait_for_long_ones(engine: SqliteEngine) -> None:
    partition = await fill(engine)
    long = asyncio.create_task(engine.query(Query(NUMBERS, F("id") == partition)))
    await asyncio.sleep(0)
    short = asyncio.create_task(
        engine.query(Query(NUMBERS, F("id") == partition, limit=MAX_SHORT_READ))
    )
    assert await iterations(short) == 1
    assert ats(short.result()) == [*range(MAX_SHORT_READ)]
    assert not long.done()
    assert ats(await long) == [*range(COUNT)]


@pytest.mark.parametrize("limit", [None, 1, 32, 33, 40, COUNT, COUNT + 1])
@pytest.mark.parametrize("forward", [True, False])
async def test_turns_do_not_change_a_page(
    engine: SqliteEngine, limit: int | None, forward: bool
) -> None:
    partition = await fill(engine)
    query = Query(
        NUMBERS,
        (F("id") == partition) & F("at").between(20, 180),
        filter=F("parts", "even") == True,  # noqa: E712
        projection=(F("at").path, F("parts", "even").path),
        forward=forward,
        limit=limit,
    )
    in_turns = await engine.query(query)
    engine._slices = TimeSlices()
    assert in_turns == await engine.query(query)
    expected = [*range(20, 181)] if forward else [*range(180, 19, -1)]
    assert ats(in_turns) == [at for at in expected[:limit] if at % 2 == 0]
    assert in_turns.scanned == len(expected[:limit])


async def test_concurrent_long_reads_take_turns(engine: SqliteEngine) -> None:
    partition = await fill(engine)
    finished: list[str] = []

    async def read(name: str, last: int) -> None:
        await engine.query(Query(NUMBERS, (F("id") == partition) & (F("at") <= last)))
        finished.append(name)

    async with asyncio.TaskGroup() as group:
        group.create_task(read("long", 199))
        group.create_task(read("medium", 99))
        group.create_task(read("small", 19))
    assert finished == ["small", "medium", "long"]


async def test_a_cancelled_long_read_releases_its_turn(engine: SqliteEngine) -> None:
    partition = await fill(engine)
    reads = [
        asyncio.create_task(engine.query(Query(NUMBERS, F("id") == partition))) for _ in range(3)
    ]
    await asyncio.sleep(0)
    for read in reads[:2]:
        read.cancel()
    await asyncio.wait(reads[:2])
    assert all(read.cancelled() for read in reads[:2])
    assert ats(await reads[2]) == [*range(COUNT)]


async def test_each_turn_sees_the_commits_before_it(engine: SqliteEngine) -> None:
    """A long page is not one snapshot, but no item appears twice and none that stays is missing."""
    partition = await fill(engine)
    read = asyncio.create_task(engine.scan(Scan(NUMBERS)))
    await asyncio.sleep(0)
    await engine.put(Put(NUMBERS, item(partition, COUNT)))
    await engine.put(Put(NUMBERS, item(partition, -1)))
    await engine.delete(Delete(NUMBERS, {"id": partition, "at": COUNT - 1}))
    found = ats(await read)
    assert found == sorted({*found})
    assert {*range(COUNT - 1)} <= {*found} <= {*range(-1, COUNT + 1)}


async def test_a_long_read_fails_when_the_engine_closes(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as engine:
        await engine.create_table(NUMBERS)
        async with engine._slices:
            read = asyncio.create_task(engine.scan(Scan(NUMBERS)))
            await asyncio.sleep(0)
            await engine.close()
        with pytest.raises(StoreUnavailable, match="the store is closed"):
            await read
