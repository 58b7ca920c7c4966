"""What a move copies, compares, repairs and refuses, between two stores in this process."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tally.kit.clock import ManualClock, SystemClock
from tally.move import mover as mover_module
from tally.move.comparison import Difference, item_digest
from tally.move.errors import MoveFailed
from tally.move.mover import Mover
from tally.move.moves import (
    abandon_dynamodb,
    finish_move,
    is_moving,
    moving_process,
    start_move,
    verify_move,
)
from tally.move.pace import Pace
from tally.move.sides import DynamoDBSide, EmbeddedSide, Sides
from tally.move.state import SideName, load_state, request_switch, save_state
from tally.store.api import Delete, Engine, Get, Put, Query
from tally.store.errors import WritesPaused
from tally.store.expressions import F
from tally.store.schema import Table
from tally.store.sqlite import open_sqlite
from tally.store.values import Item
from tests.move.move_program import COUNTERS, EXPIRING, NOTES, TABLES
from tests.store.emulators import served_engine
from tests.store.tables import NUMBERED

CLOCK = SystemClock()
WAIT_SECONDS = 60.0


@pytest.fixture
async def sides(tmp_path: Path) -> AsyncIterator[Sides]:
    """Two empty stores; the embedded one is served over DynamoDB's protocol in DynamoDB's place."""
    async with (
        open_sqlite(tmp_path / "embedded", passes_fence=True) as embedded,
        served_engine(tmp_path / "served") as dynamodb,
    ):
        yield Sides(EmbeddedSide(embedded), DynamoDBSide(dynamodb, CLOCK))


@asynccontextmanager
async def moving(
    sides: Sides,
    tables: Sequence[Table] = TABLES,
    to: SideName = "dynamodb",
    *,
    overwrite: bool = False,
) -> AsyncIterator[Mover]:
    """Run a move inside the context."""
    state = await start_move(sides, tables, to, CLOCK, overwrite=overwrite)
    mover, stop = Mover(sides, state, tables, Pace(CLOCK, None)), asyncio.Event()
    running = asyncio.create_task(mover.run(stop))
    try:
        yield mover
    finally:
        stop.set()
        await running


async def until(is_reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not is_reached():
            await CLOCK.sleep(0.02)


async def until_item(engine: Engine, table: Table, item: Item) -> None:
    """Wait until the table has exactly this item at its key."""
    get = Get(table, table.primary_key(item), consistent=True)
    async with asyncio.timeout(WAIT_SECONDS):
        while (await engine.get(get)).item != item:
            await CLOCK.sleep(0.02)


async def differences(sides: Sides, tables: Sequence[Table] = TABLES) -> list[Difference]:
    state = await load_state(sides.embedded.engine)
    assert state is not None
    found: list[Difference] = []
    async for comparison in verify_move(sides, state, tables, CLOCK):
        found += comparison.differences
    return found


async def test_items_of_every_type_and_indexes_arrive(sides: Sides) -> None:
    embedded, dynamodb = sides.embedded.engine, sides.dynamodb.engine
    item: Item = {
        "group": "g",
        "number": 7,
        "color": "red",
        "all": [b"\x00", None, True, {"n": 10**30}, frozenset({1, 2}), frozenset({"a", "b"})],
    }
    await embedded.ensure_table(COUNTERS)
    await embedded.put(Put(COUNTERS, item))
    numbered: Item = {"id": -3, "at": 12}
    tables = (*TABLES, NUMBERED)
    async with moving(sides, tables) as mover:
        await until(lambda: mover.state.is_copied)
        await embedded.put(Put(NUMBERED, numbered))
        await until_item(dynamodb, NUMBERED, numbered)
        await embedded.delete(Delete(NUMBERED, numbered))
        await embedded.put(Put(NUMBERED, {"id": -3, "at": 13}))
        await until_item(dynamodb, NUMBERED, {"id": -3, "at": 13})
        assert (await dynamodb.get(Get(NUMBERED, numbered))).item is None
        assert (await dynamodb.get(Get(COUNTERS, {"group": "g", "number": 7}))).item == item
        page = await dynamodb.query(Query(COUNTERS, F("color") == "red", "by-color"))
        assert [found["number"] for found in page.items] == [7]
        assert await differences(sides, tables) == []


async def test_expired_items_are_neither_copied_nor_reported(sides: Sides) -> None:
    embedded, dynamodb = sides.embedded.engine, sides.dynamodb.engine
    await embedded.ensure_table(EXPIRING)
    await embedded.put(Put(EXPIRING, {"id": "a", "at": "old", "expires": 1}))
    await embedded.put(Put(EXPIRING, {"id": "a", "at": "new", "expires": 4_000_000_000}))
    async with moving(sides) as mover:
        await until(lambda: mover.state.is_copied)
        assert (await dynamodb.get(Get(EXPIRING, {"id": "a", "at": "old"}))).item is None
        assert (await dynamodb.get(Get(EXPIRING, {"id": "a", "at": "new"}))).item is not None
        await dynamodb.put(Put(EXPIRING, {"id": "b", "at": "old", "expires": 1}))
        assert await differences(sides) == []


@pytest.mark.judge
async def test_verify_reports_missing_extra_and_different_items(sides: Sides) -> None:
    embedded, dynamodb = sides.embedded.engine, sides.dynamodb.engine
    await embedded.ensure_table(NOTES)
    for name in ("lost", "changed", "kept"):
        await embedded.put(Put(NOTES, {"id": name, "text": "as written"}))
    async with moving(sides) as mover:
        await until(lambda: mover.state.is_copied)
        await dynamodb.delete(Delete(NOTES, {"id": "lost"}))
        await dynamodb.put(Put(NOTES, {"id": "changed", "text": "another"}))
        await dynamodb.put(Put(NOTES, {"id": "added"}))
        found = {(difference.key["id"], difference.kind) for difference in await differences(sides)}
    assert found == {("lost", "missing"), ("changed", "different"), ("added", "extra")}


async def test_a_switch_repairs_differences_first(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mover_module, "OVERLAP_SECONDS", 0.0)
    embedded, dynamodb = sides.embedded.engine, sides.dynamodb.engine
    await embedded.ensure_table(NOTES)
    await embedded.put(Put(NOTES, {"id": "lost"}))
    async with moving(sides) as mover:
        await until(lambda: mover.state.is_copied)
        await dynamodb.delete(Delete(NOTES, {"id": "lost"}))
        await dynamodb.put(Put(NOTES, {"id": "added"}))
        await request_switch(embedded, "dynamodb")
        await until(lambda: mover.state.active == "dynamodb")
        assert (await dynamodb.get(Get(NOTES, {"id": "lost"}))).item == {"id": "lost"}
        assert (await dynamodb.get(Get(NOTES, {"id": "added"}))).item is None
        # The way back: the embedded store follows.
        await dynamodb.put(Put(NOTES, {"id": "later"}))
        await until_item(embedded, NOTES, {"id": "later"})


@pytest.mark.judge
async def test_changes_that_the_stream_lost_are_found_before_the_switch(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turning the stream off and on loses changes; the table is copied and compared again."""
    monkeypatch.setattr(mover_module, "OVERLAP_SECONDS", 0.0)
    embedded, dynamodb = sides.embedded.engine, sides.dynamodb.engine
    await embedded.ensure_table(NOTES)
    for name in ("deleted", "kept"):
        await embedded.put(Put(NOTES, {"id": name}))
    async with moving(sides) as mover:
        await until(lambda: mover.state.is_copied)
    await embedded.set_recording(is_on=False)
    await embedded.ensure_table(replace(NOTES, stream=None))
    await embedded.delete(Delete(NOTES, {"id": "deleted"}))
    await embedded.put(Put(NOTES, {"id": "written"}))
    async with moving(sides) as mover:
        await until_item(dynamodb, NOTES, {"id": "written"})
        await request_switch(embedded, "dynamodb")
        await until(lambda: mover.state.active == "dynamodb")
        assert (await dynamodb.get(Get(NOTES, {"id": "deleted"}))).item is None
        assert (await dynamodb.get(Get(NOTES, {"id": "kept"}))).item is not None


async def test_the_target_accepts_no_writes_before_the_switch(sides: Sides, tmp_path: Path) -> None:
    await sides.dynamodb.engine.ensure_table(NOTES)
    tables = (NOTES,)
    async with (
        moving(sides, tables, to="embedded") as mover,
        open_sqlite(tmp_path / "embedded") as server,
    ):
        await until(lambda: mover.state.is_copied)
        with pytest.raises(WritesPaused):
            await server.put(Put(NOTES, {"id": "too early"}))


async def test_a_target_with_items_is_refused_without_overwrite(sides: Sides) -> None:
    await sides.dynamodb.engine.ensure_table(NOTES)
    await sides.dynamodb.engine.put(Put(NOTES, {"id": "existing"}))
    with pytest.raises(MoveFailed, match=r"moved-notes\. To replace .* --overwrite"):
        await start_move(sides, TABLES, "dynamodb", CLOCK, overwrite=False)
    await start_move(sides, TABLES, "dynamodb", CLOCK, overwrite=True)


async def test_another_direction_is_refused_while_a_move_is_in_progress(sides: Sides) -> None:
    await start_move(sides, TABLES, "dynamodb", CLOCK, overwrite=False)
    with pytest.raises(MoveFailed, match="A move to dynamodb is in progress"):
        await start_move(sides, TABLES, "embedded", CLOCK, overwrite=False)


async def test_dynamodb_without_tables_is_no_source(sides: Sides) -> None:
    with pytest.raises(MoveFailed, match="run `tally schema create`"):
        await start_move(sides, TABLES, "embedded", CLOCK, overwrite=False)


async def test_finish_ends_recording_and_leaves_one_store_that_accepts_writes(
    sides: Sides, tmp_path: Path
) -> None:
    embedded = sides.embedded.engine
    state = await start_move(sides, TABLES, "dynamodb", CLOCK, overwrite=False)
    assert (await embedded.describe_table(NOTES.name)).stream == "KEYS_ONLY"
    await finish_move(sides, state, TABLES)
    assert await load_state(embedded) is None
    assert (await embedded.describe_table(NOTES.name)).stream is None
    assert (await embedded.describe_table(COUNTERS.name)).stream == "NEW_IMAGE"
    async with open_sqlite(tmp_path / "embedded") as server:
        await server.put(Put(NOTES, {"id": "written"}))


async def test_an_abandoned_move_frees_the_embedded_store_without_dynamodb(
    sides: Sides, tmp_path: Path
) -> None:
    state = await start_move(sides, TABLES, "dynamodb", CLOCK, overwrite=False)
    state.active = "dynamodb"
    await save_state(sides.embedded.engine, state)
    await sides.embedded.reject_writes()
    await sides.dynamodb.engine.close()
    await abandon_dynamodb(sides.embedded, TABLES)
    async with open_sqlite(tmp_path / "embedded") as server:
        await server.put(Put(NOTES, {"id": "written"}))


def test_one_process_moves_at_a_time(tmp_path: Path) -> None:
    assert not is_moving(tmp_path)
    with moving_process(tmp_path):
        assert is_moving(tmp_path)
        with pytest.raises(MoveFailed, match="Another"), moving_process(tmp_path):
            pass
    assert not is_moving(tmp_path)


async def test_the_copy_keeps_to_its_rate() -> None:
    clock = ManualClock()
    pace = Pace(clock, 100.0)
    await pace.take(200)
    waiting = asyncio.create_task(pace.take(200))
    await clock.advance(1.9)
    assert not waiting.done()
    await clock.advance(0.1)
    await waiting


def test_digests_depend_on_values_and_not_on_their_order() -> None:
    one: Item = {"a": frozenset({"x", "y"}), "m": {"p": 1, "q": b"2"}}
    assert item_digest(one) == item_digest({"m": {"q": b"2", "p": 1}, "a": frozenset({"y", "x"})})
    others: list[Item] = [
        {**one, "m": {"p": 1, "q": "2"}},
        {**one, "m": {"p": "1", "q": b"2"}},
        {**one, "a": ["x", "y"]},
        {"a": one["a"]},
    ]
    assert len({item_digest(item) for item in (one, *others)}) == 5
