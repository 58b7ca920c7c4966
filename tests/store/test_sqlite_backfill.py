"""A new index is built while others write, and an interrupted build continues."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tally.store.api import Delete, Put, Query, Scan, Transaction, Update
from tally.store.errors import IndexBackfilling, UnknownIndex
from tally.store.expressions import F
from tally.store.provision import table_status
from tally.store.schema import GlobalIndex, Projection, S, Table
from tally.store.sqlite import SqliteEngine, backfill, open_sqlite
from tally.store.sqlite.files import connect
from tests.faults.audit import audit

BY_TEAM = GlobalIndex("by-team", S("team"))
FORMER = Table("players", S("id"))
PLAYERS = replace(FORMER, indexes=(BY_TEAM,))
COUNT = 200
SLICE_ROWS = 10


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfill, "_SLICE_ROWS", SLICE_ROWS)


def player(number: int, team: str = "red") -> dict[str, str]:
    return {"id": f"player-{number:04}", "team": team}


def key(number: int) -> dict[str, str]:
    return {"id": f"player-{number:04}"}


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[SqliteEngine]:
    async with open_sqlite(tmp_path) as opened:
        await opened.create_table(FORMER)
        await asyncio.gather(*(opened.put(Put(FORMER, player(n))) for n in range(COUNT)))
        yield opened


async def begin(engine: SqliteEngine) -> None:
    """Declare the index and build its first slice, as a process does that is killed then."""
    building = asyncio.create_task(engine.ensure_table(PLAYERS))
    while not has_position(engine):
        await engine.ping()
    building.cancel()
    await asyncio.wait({building})
    assert await engine.building_indexes("players") == ["by-team"]


def has_position(engine: SqliteEngine) -> bool:
    connection = connect(engine.path)
    try:
        found = (
            connection.table_exists(None, "backfills")
            and connection.execute("SELECT 1 FROM backfills WHERE pk > x''").fetchone()
        )
    finally:
        connection.close()
    return bool(found)


async def members(engine: SqliteEngine, team: str) -> int:
    return (await engine.query(Query(PLAYERS, F("team") == team, "by-team"))).scanned


async def test_writes_continue_between_the_slices(engine: SqliteEngine, tmp_path: Path) -> None:
    """No write waits for the whole build, and all of them are in the index."""
    building = asyncio.create_task(engine.ensure_table(PLAYERS))
    written = 0
    async with open_sqlite(tmp_path) as other:
        while not building.done():
            one = engine if written % 2 else other
            await one.put(Put(PLAYERS, player(1_000 + written, "blue")))
            await one.update(Update(PLAYERS, key(written), (F("team").set("green"),)))
            await one.delete(Delete(PLAYERS, key(COUNT - 1 - written)))
            written += 1
        await building
        assert await members(other, "blue") == written
    assert 2 <= written < COUNT / 2, written
    assert await members(engine, "green") == written
    assert await members(engine, "red") == COUNT - 2 * written
    await engine.close()
    await audit(tmp_path)


async def test_an_incomplete_index_is_not_read(engine: SqliteEngine, tmp_path: Path) -> None:
    """Neither by this process nor by one that opened the table before."""
    async with open_sqlite(tmp_path) as other:
        await other.scan(Scan(FORMER))
        await begin(engine)
        for one in (engine, other):
            with pytest.raises(IndexBackfilling, match="by-team of table players"):
                await members(one, "red")
            assert await table_status(one, PLAYERS) == "index by-team is backfilling"
        await other.ensure_table(PLAYERS)
        for one in (engine, other):
            assert await members(one, "red") == COUNT
            assert await table_status(one, PLAYERS) == "ready"


async def test_an_interrupted_build_continues_where_it_stopped(
    engine: SqliteEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(engine)
    await engine.put(Put(PLAYERS, player(1_000)))
    await engine.close()
    slices = 0
    build = backfill.backfill_slice

    def counted(*arguments: object) -> bool:
        nonlocal slices
        slices += 1
        return build(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("tally.store.sqlite.table_registry.backfill_slice", counted)
    async with open_sqlite(tmp_path) as later:
        await later.ensure_table(PLAYERS)
        assert await members(later, "red") == COUNT + 1
    assert 0 < slices <= COUNT / SLICE_ROWS
    await audit(tmp_path)


async def test_an_incomplete_index_can_be_removed(engine: SqliteEngine, tmp_path: Path) -> None:
    await begin(engine)
    await engine.ensure_table(FORMER)
    with pytest.raises(UnknownIndex):
        await members(engine, "red")
    await engine.ensure_table(PLAYERS)
    assert await members(engine, "red") == COUNT
    await begin_again(engine)
    await engine.drop_table("players")
    await engine.create_table(PLAYERS)
    await engine.close()
    assert (await audit(tmp_path))["players"] == []


async def begin_again(engine: SqliteEngine) -> None:
    await engine.ensure_table(FORMER)
    await begin(engine)


async def test_a_transaction_prepared_before_the_index_is_in_it(engine: SqliteEngine) -> None:
    """All jobs of one group see the index that the first of them adds."""
    put = partial(Put, FORMER)
    results = await asyncio.gather(
        engine.ensure_table(PLAYERS),
        *(engine.transact(Transaction((put(player(1_000 + n, "blue")),))) for n in range(20)),
    )
    assert len(results) == 21
    assert await members(engine, "blue") == 20


async def test_another_projection_keeps_the_entries(engine: SqliteEngine) -> None:
    await engine.ensure_table(PLAYERS)
    keys_only = replace(BY_TEAM, projection=Projection("KEYS_ONLY"))
    await engine.put(Put(PLAYERS, {**player(1), "city": "Rome"}))
    changed = asyncio.create_task(engine.ensure_table(replace(FORMER, indexes=(keys_only,))))
    while not changed.done():
        assert await engine.building_indexes("players") == []
        await asyncio.sleep(0)
    page = await engine.query(Query(PLAYERS, F("team") == "red", "by-team"))
    assert page.scanned == COUNT
    assert all(set(item) == {"id", "team"} for item in page.items)
