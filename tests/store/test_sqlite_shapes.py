"""Items are read as they were written, whatever shapes the database has learned."""

import asyncio
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally.store.api import Get, Put, Scan, Transaction, Update
from tally.store.errors import InvalidRequest, StorageUnwritable
from tally.store.expressions import F
from tally.store.schema import N, S, Table
from tally.store.sqlite import SqliteEngine, open_sqlite
from tally.store.sqlite.compiled_shape import CompiledShape, Shape
from tally.store.sqlite.shapes import MAX_SHAPES, describe_shape
from tally.store.values import Item, measure_item
from tests.faults.audit import audit
from tests.store.strategies import items
from tests.store.tables import all_items, embedded

LOGS = Table("logs", partition=S("device"), sort=S("at"))
NUMBERED = Table("numbered", partition=S("of"), sort=N("at"))


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[SqliteEngine]:
    async with embedded(tmp_path, LOGS, NUMBERED) as opened:
        yield opened


def log(number: int, **attributes: Any) -> Item:
    at = f"{1_704_067_200_000 + number}#device-1_boot-77"
    return {"device": "device-1", "at": at, "batch": at[14:], "n": number, **attributes}


def count_shapes(engine: SqliteEngine) -> int:
    connection = apsw.Connection(str(engine.path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return len(connection.execute("SELECT * FROM shapes").fetchall())
    finally:
        connection.close()


async def put_all(engine: SqliteEngine, table: Table, written: list[Item]) -> None:
    for item in written:
        await engine.put(Put(table, item))


async def expect_stored(engine: SqliteEngine, table: Table, written: list[Item]) -> None:
    found = await all_items(engine, Scan(table))
    names = table.key_names

    def by_key(item: Item) -> str:
        return str([str(item[name]) for name in names])

    assert sorted(found, key=by_key) == sorted(written, key=by_key)


async def test_an_item_that_resembles_a_shape_is_stored_as_it_is(engine: SqliteEngine) -> None:
    """Other maps, strings that are no longer part of the key, other types, and an empty map."""
    usual = [log(number, values={"a": 1, "b": 2}) for number in range(20)]
    others = [
        log(20, values={"b": 1, "a": 2}),
        log(21, values={"a": 1}),
        log(22, values={}),
        log(23, values=[1, 2]),
        log(24, values=None),
        {**log(25, values={"a": 1, "b": 2}), "batch": "device-1_boot-78"},
        {**log(26, values={"a": 1, "b": 2}), "batch": 7},
        {**log(27, values={"a": 1, "b": 2}), "n": {"x": Decimal("0.5")}},
        {"device": "device-1", "at": "x"},
    ]
    await put_all(engine, LOGS, usual)
    assert count_shapes(engine) == 1
    await put_all(engine, LOGS, others)
    await engine.transact_each([Transaction((Put(LOGS, item),)) for item in others])
    await expect_stored(engine, LOGS, usual + others)


async def test_a_number_key_is_stored_with_the_item(engine: SqliteEngine) -> None:
    written: list[Item] = [
        {"of": "a", "at": Decimal(number) / 4, "text": "a", "n": number} for number in range(30)
    ]
    await put_all(engine, NUMBERED, written)
    await expect_stored(engine, NUMBERED, written)


async def test_changing_maps_get_a_shape_without_maps(engine: SqliteEngine) -> None:
    written = [log(number, values={f"name-{number}": number}) for number in range(200)]
    await put_all(engine, LOGS, written)
    assert count_shapes(engine) == 1
    await expect_stored(engine, LOGS, written)


async def test_the_number_of_shapes_is_limited(engine: SqliteEngine) -> None:
    connection = apsw.Connection(str(engine.path))
    connection.executemany(
        "INSERT INTO shapes (name, shape) VALUES ('other', ?)",
        [(f'{{"attributes":["{number}"]}}',) for number in range(MAX_SHAPES)],
    )
    connection.close()
    async with open_sqlite(engine.path.parent) as second:
        written = [log(number) for number in range(100)]
        await put_all(second, LOGS, written)
        assert count_shapes(second) == MAX_SHAPES
        await expect_stored(second, LOGS, written)


async def test_a_process_reads_shapes_that_another_learned(engine: SqliteEngine) -> None:
    async with open_sqlite(engine.path.parent) as second:
        await put_all(engine, LOGS, [log(number) for number in range(30)])
        assert count_shapes(engine) == 1
        key = {name: log(29)[name] for name in LOGS.key_names}
        assert (await second.get(Get(LOGS, key))).item == log(29)
        await second.update(Update(LOGS, key, (F("n").set(F("n") + 1),)))
        assert (await engine.get(Get(LOGS, key))).item == {**log(29), "n": 30}


async def test_a_table_created_again_with_another_key_reads_its_items(
    engine: SqliteEngine,
) -> None:
    await put_all(engine, LOGS, [log(number) for number in range(30)])
    await engine.drop_table("logs")
    other = Table("logs", partition=S("batch"), sort=N("n"))
    await engine.create_table(other)
    written = [log(number) for number in range(30)]
    await put_all(engine, other, written)
    await expect_stored(engine, other, written)


async def test_an_item_with_an_unknown_shape_is_reported_as_damaged(engine: SqliteEngine) -> None:
    await put_all(engine, LOGS, [log(number) for number in range(30)])
    connection = apsw.Connection(str(engine.path))
    connection.execute("DELETE FROM shapes")
    connection.close()
    async with open_sqlite(engine.path.parent) as second:
        with pytest.raises(StorageUnwritable, match="damaged"):
            await all_items(second, Scan(LOGS))


@given(
    shapes=st.lists(items(), min_size=1, max_size=3),
    device=st.text(min_size=1, max_size=12),
    count=st.integers(9, 30),
    is_together=st.booleans(),
)
async def test_any_items_are_read_as_written(
    shapes: list[Item], device: str, count: int, is_together: bool
) -> None:
    """Repeated until their shapes are learned, with strings that are part of the key."""
    written = [
        {
            **shapes[number % len(shapes)],
            "device": device,
            "at": f"{number:09}#{device}#boot",
            "again": f"{number:09}",
            "whose": device,
        }
        for number in range(count)
    ]
    with TemporaryDirectory() as directory:
        async with embedded(Path(directory), LOGS) as engine:
            for _ in range(2):
                if is_together:
                    transactions = [Transaction((Put(LOGS, item),)) for item in written]
                    await engine.transact_each(transactions)
                else:
                    await asyncio.gather(*(engine.put(Put(LOGS, item)) for item in written))
                await expect_stored(engine, LOGS, written)
        found = (await audit(Path(directory)))["logs"]
    assert len(found) == count


@pytest.mark.parametrize(
    "invalid",
    [
        log(1, values={"a": 1.5}),
        log(1, values={"a": Decimal("NaN")}),
        log(1, values={"a": "\ud800"}),
        log(1, values={"a": [object()]}),
        log(1, values={"a": "x" * 400 * 1024}),
        {**log(1, values={"a": 1}), "n": 10**130},
        {**log(1, values={"a": 1}), "n": float("inf")},
        {**log(1, values={"a": 1}), "device": ""},
        {**log(1, values={"a": 1}), "device": 7},
        {**log(1, values={"a": 1}), "device": "d" * 2_049},
        {**log(1, values={"a": 1}), "at": "ä" * 513},
    ],
)
async def test_an_invalid_item_is_rejected_as_before_its_shape_was_learned(
    engine: SqliteEngine, invalid: Item
) -> None:
    with pytest.raises(InvalidRequest) as expected:
        await engine.put(Put(LOGS, invalid))
    await put_all(engine, LOGS, [log(number, values={"a": 1}) for number in range(20)])
    assert count_shapes(engine)
    with pytest.raises(InvalidRequest) as rejected:
        await engine.put(Put(LOGS, invalid))
    assert (type(rejected.value), str(rejected.value)) == (
        type(expected.value),
        str(expected.value),
    )


@given(st.data())
def test_a_compiled_shape_restores_what_it_reads(data: st.DataObject) -> None:
    names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
    texts = data.draw(st.tuples(st.text(max_size=30), st.text(max_size=30)))
    item: Item = {"pk": texts[0], **data.draw(items()), "sk": texts[1]}
    item |= data.draw(st.dictionaries(names, st.dictionaries(names, st.integers()), max_size=3))
    item["part"] = texts[1][3:20]
    shape = describe_shape(item, texts, frozenset(("pk", "sk")))
    compiled = CompiledShape(7, shape, (("pk", 0), ("sk", 1)))

    found = compiled.read(item)
    assert found is not None
    values, size = found
    assert size == measure_item(item)
    restored = compiled.compile_restorer()(values, (texts[0].encode(), texts[1].encode()))
    assert restored == item
    assert [*restored] == [*item]


@pytest.mark.parametrize("damaged", [[7], [7, 1], [7, 1, [1, 2, 3]], [7, 1, 2], [7, 1, [1, 2], 3]])
def test_values_that_do_not_fit_their_shape_are_not_restored(damaged: list[Any]) -> None:
    shape = Shape(("pk", "n", "inner"), maps=(("inner", ("a", "b")),))
    restore = CompiledShape(7, shape, (("pk", 0),)).compile_restorer()
    assert restore([7, 1, [2, 3]], (b"p", b"")) == {"pk": "p", "n": 1, "inner": {"a": 2, "b": 3}}
    with pytest.raises((ValueError, TypeError)):
        restore(damaged, (b"p", b""))
