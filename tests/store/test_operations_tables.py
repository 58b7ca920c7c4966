"""Creating, changing, describing and dropping tables on every engine."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tally.store.api import Engine, Get, Put, Query
from tally.store.errors import TableDiffers, TableExists, TableNotFound
from tally.store.expressions import F
from tally.store.schema import (
    KEYS_ONLY,
    Attribute,
    B,
    GlobalIndex,
    LocalIndex,
    N,
    S,
    Table,
    include,
)
from tests.store.tables import PLAYERS, TABLES, all_items, fresh

Maker = Callable[[Table], Awaitable[Table]]


@pytest.fixture
async def make(engine: Engine) -> AsyncIterator[Maker]:
    """Create tables that are dropped at the end."""
    made: list[str] = []

    async def create(table: Table) -> Table:
        await engine.create_table(table)
        made.append(table.name)
        return table

    yield create
    for name in made:
        if name in await engine.list_tables():
            await engine.drop_table(name)


def table_named(name: str, **changes: object) -> Table:
    return Table(**{"name": name, "partition": S("id"), "sort": N("at"), **changes})  # type: ignore[arg-type]


async def test_a_table_is_described_as_it_was_declared(engine: Engine) -> None:
    described = await engine.describe_table(PLAYERS.name)
    assert (described.name, described.key) == (PLAYERS.name, PLAYERS.key)
    assert described.by_name == PLAYERS.by_name


async def test_the_time_to_live_of_a_table_is_described(engine: Engine, make: Maker) -> None:
    table = await make(table_named(fresh("t"), ttl="expires"))
    assert (await engine.describe_table(table.name)).ttl == "expires"


async def test_attributes_are_not_stored_with_the_table(engine: Engine, make: Maker) -> None:
    table = await make(table_named(fresh("t"), attributes=(Attribute("title", "S"),)))
    assert (await engine.describe_table(table.name)).attributes == ()


async def test_tables_are_listed_in_order(engine: Engine) -> None:
    names = await engine.list_tables()
    assert names == sorted(names)
    assert {table.name for table in TABLES} <= set(names)


async def test_a_table_cannot_be_created_twice(engine: Engine) -> None:
    with pytest.raises(TableExists, match=PLAYERS.name):
        await engine.create_table(PLAYERS)


async def test_dropping_a_table_deletes_its_items(engine: Engine, make: Maker) -> None:
    table = await make(table_named(fresh("t"), indexes=(GlobalIndex("by-x", partition=S("x")),)))
    await engine.put(Put(table, {"id": "a", "at": 1, "x": "x"}))
    await engine.drop_table(table.name)
    assert table.name not in await engine.list_tables()
    with pytest.raises(TableNotFound, match=table.name):
        await engine.get(Get(table, {"id": "a", "at": 1}))
    await make(table)
    assert (await engine.get(Get(table, {"id": "a", "at": 1}))).item is None
    assert await all_items(engine, Query(table, F("x") == "x", index="by-x")) == []


async def test_a_missing_table_cannot_be_dropped_or_described(engine: Engine) -> None:
    with pytest.raises(TableNotFound, match="never-made"):
        await engine.drop_table("never-made")
    with pytest.raises(TableNotFound, match="never-made"):
        await engine.describe_table("never-made")


async def test_ensuring_a_table_creates_it_once(engine: Engine, make: Maker) -> None:
    table = table_named(fresh("t"))
    await engine.ensure_table(table)
    await engine.put(Put(table, {"id": "a", "at": 1}))
    await engine.ensure_table(table)
    assert (await engine.get(Get(table, {"id": "a", "at": 1}))).item == {"id": "a", "at": 1}
    await engine.drop_table(table.name)


@pytest.mark.parametrize(
    "change",
    [
        {"partition": S("other")},
        {"partition": N("id")},
        {"sort": None},
        {"sort": S("at")},
        {"sort": N("when")},
    ],
)
async def test_a_table_with_another_key_cannot_be_ensured(
    engine: Engine, make: Maker, change: dict[str, object]
) -> None:
    table = await make(table_named(fresh("t")))
    with pytest.raises(TableDiffers, match=table.name):
        await engine.ensure_table(table_named(table.name, **change))


async def test_ensuring_a_table_adds_an_index_of_existing_items(
    engine: Engine, make: Maker
) -> None:
    table = await make(table_named(fresh("t")))
    for number in range(3):
        await engine.put(Put(table, {"id": "a", "at": number, "x": "x", "n": number, "rest": 1}))
    await engine.put(Put(table, {"id": "b", "at": 1, "n": 1}))
    wider = table_named(table.name, indexes=(GlobalIndex("by-x", S("x"), N("n"), include("rest")),))
    await engine.ensure_table(wider)
    found = await all_items(engine, Query(wider, F("x") == "x", index="by-x", forward=False))
    assert found == [
        {"id": "a", "at": number, "x": "x", "n": number, "rest": 1} for number in (2, 1, 0)
    ]
    assert (await engine.describe_table(table.name)).by_name == wider.by_name


async def test_ensuring_a_table_drops_an_index_that_is_no_longer_declared(
    engine: Engine, make: Maker
) -> None:
    indexes = (GlobalIndex("by-x", S("x")), GlobalIndex("by-y", B("y"), projection=KEYS_ONLY))
    table = await make(table_named(fresh("t"), indexes=indexes))
    await engine.put(Put(table, {"id": "a", "at": 1, "x": "x", "y": b"y"}))
    narrower = table_named(table.name, indexes=indexes[1:])
    await engine.ensure_table(narrower)
    assert set((await engine.describe_table(table.name)).by_name) == {"by-y"}
    found = await all_items(engine, Query(narrower, F("y") == b"y", index="by-y"))
    assert found == [{"id": "a", "at": 1, "y": b"y"}]


async def test_ensuring_a_table_sets_its_time_to_live(engine: Engine, make: Maker) -> None:
    table = await make(table_named(fresh("t")))
    await engine.ensure_table(table_named(table.name, ttl="expires"))
    assert (await engine.describe_table(table.name)).ttl == "expires"


async def test_a_table_may_have_every_kind_of_key_and_index(engine: Engine, make: Maker) -> None:
    indexes = (
        GlobalIndex("global-s", S("s"), B("b")),
        GlobalIndex("global-n", N("n"), S("s"), KEYS_ONLY),
        GlobalIndex("global-b", B("b"), projection=include("x", "y")),
        LocalIndex("local-n", N("n"), KEYS_ONLY),
        LocalIndex("local-b", B("b"), include("x")),
    )
    table = await make(Table(fresh("t"), partition=B("id"), sort=B("at"), indexes=indexes))
    item = {"id": b"\x00", "at": b"\xff", "s": "s", "n": -1, "b": b"b", "x": 1, "y": 2, "z": 3}
    await engine.put(Put(table, item))
    assert await all_items(engine, Query(table, F("b") == b"b", index="global-b")) == [
        {name: item[name] for name in ("id", "at", "b", "x", "y")}
    ]


async def test_an_engine_responds_to_a_ping(engine: Engine) -> None:
    assert await engine.ping() is None  # type: ignore[func-returns-value]
