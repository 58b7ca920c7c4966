"""Consumed capacity: the embedded engine computes what the service reports."""

from typing import Any

import pytest

from tally.store.api import (
    BatchGet,
    BatchWrite,
    Capacity,
    Check,
    Delete,
    Engine,
    Get,
    Put,
    Query,
    Scan,
    Transaction,
    TransactionGet,
    Update,
)
from tally.store.errors import ConditionFailed
from tally.store.expressions import F, exists, make_path, not_exists
from tally.store.values import measure_item
from tests.store.tables import NUMBERS, PLAIN, PLAYERS, STRINGS, fresh, stored

KB = 1024


def sized(size: int, **attributes: Any) -> dict[str, Any]:
    """A new item of exactly this many bytes."""
    item = {"id": fresh(), **attributes}
    return {**item, "pad": "x" * (size - measure_item({**item, "pad": ""}))}


@pytest.mark.parametrize(
    ("size", "units"),
    [
        pytest.param(size, units, id=f"{size} bytes")
        for size, units in (
            (100, 1),
            (4 * KB, 1),
            (4 * KB + 1, 2),
            (8 * KB, 2),
            (8 * KB + 1, 3),
            (400 * KB, 100),
        )
    ],
)
async def test_a_read_costs_a_unit_for_each_4_kb_and_half_if_eventual(
    engine: Engine, size: int, units: int
) -> None:
    item = sized(size)
    await engine.put(Put(PLAIN, item))
    key = {"id": item["id"]}
    assert (await engine.get(Get(PLAIN, key, consistent=True))).capacity == Capacity(read=units)
    assert (await engine.get(Get(PLAIN, key))).capacity == Capacity(read=units / 2)
    assert (await engine.get(Get(PLAIN, key, (make_path("id"),)))).capacity == Capacity(
        read=units / 2
    )


async def test_reading_a_missing_item_costs_the_minimum(engine: Engine) -> None:
    assert (await engine.get(Get(PLAIN, {"id": fresh()}, consistent=True))).capacity == Capacity(
        read=1
    )
    assert (await engine.get(Get(PLAIN, {"id": fresh()}))).capacity == Capacity(read=0.5)


@pytest.mark.parametrize(
    "size", [pytest.param(n, id=f"{n} bytes") for n in (100, KB, KB + 1, 3 * KB, 400 * KB)]
)
async def test_a_write_costs_a_unit_for_each_kb(engine: Engine, size: int) -> None:
    item = sized(size)
    assert (await engine.put(Put(PLAIN, item))).capacity == Capacity(write=-(-size // KB))


async def test_a_write_costs_by_the_larger_item_size(engine: Engine) -> None:
    item = sized(3 * KB)
    key = {"id": item["id"]}
    await engine.put(Put(PLAIN, item))
    assert (await engine.update(Update(PLAIN, key, (F("pad").set("x"),)))).capacity == Capacity(
        write=3
    )
    assert (
        await engine.update(Update(PLAIN, key, (F("pad").set("x" * 2500),)))
    ).capacity == Capacity(write=3)
    assert (await engine.put(Put(PLAIN, key))).capacity == Capacity(write=3)
    assert (await engine.put(Put(PLAIN, item))).capacity == Capacity(write=3)
    assert (await engine.delete(Delete(PLAIN, key))).capacity == Capacity(write=3)
    assert (await engine.delete(Delete(PLAIN, key))).capacity == Capacity(write=1)


async def test_a_query_rounds_the_total_size(engine: Engine) -> None:
    partition = fresh()
    items = [{"id": partition, "at": number, "pad": "x" * 3000} for number in range(5)]
    for item in items:
        await engine.put(Put(NUMBERS, item))
    total = sum(measure_item(item) for item in items)
    units = -(-total // (4 * KB))
    where = F("id") == partition
    assert (await engine.query(Query(NUMBERS, where, consistent=True))).capacity == Capacity(
        read=units
    )
    assert (await engine.query(Query(NUMBERS, where))).capacity == Capacity(read=units / 2)
    chosen = await engine.query(Query(NUMBERS, where, projection=(make_path("at"),)))
    assert chosen.capacity == Capacity(read=units / 2)
    assert (await engine.query(Query(NUMBERS, where, limit=1))).capacity == Capacity(read=0.5)


async def test_a_filter_does_not_reduce_the_cost(engine: Engine) -> None:
    partition = fresh()
    for number in range(5):
        await engine.put(Put(NUMBERS, {"id": partition, "at": number, "pad": "x" * 4000}))
    page = await engine.query(
        Query(NUMBERS, F("id") == partition, filter=not_exists("pad"), consistent=True)
    )
    assert (page.items, page.capacity) == ([], Capacity(read=5))


async def test_an_empty_query_costs_the_minimum(engine: Engine) -> None:
    assert (await engine.query(Query(NUMBERS, F("id") == fresh()))).capacity == Capacity(read=0.5)
    assert (
        await engine.query(Query(NUMBERS, F("id") == fresh(), consistent=True))
    ).capacity == Capacity(read=1)


async def test_a_scan_costs_by_the_bytes_read(engine: Engine) -> None:
    await engine.put(Put(STRINGS, {"id": fresh(), "at": "x"}))
    page = await engine.scan(Scan(STRINGS, limit=1, consistent=True))
    assert page.capacity == Capacity(read=1)


async def test_an_index_query_costs_by_the_projected_size(engine: Engine) -> None:
    club, day = fresh(), 7
    for number in range(3):
        item = {
            "club": club,
            "name": str(number),
            "status": club,
            "city": "Pune",
            "age": number,
            "pad": "x" * 3900,
        }
        await engine.put(Put(PLAYERS, {**item, "day": day}))
    by_status = await engine.query(Query(PLAYERS, F("status") == club, index="by-status"))
    assert (len(by_status.items), by_status.capacity) == (3, Capacity(read=0.5))
    by_age = await engine.query(Query(PLAYERS, F("club") == club, index="by-age", consistent=True))
    assert (len(by_age.items), by_age.capacity) == (3, Capacity(read=3))


async def test_a_fetching_local_index_pays_for_every_fetched_item(engine: Engine) -> None:
    club = fresh()
    for number in range(3):
        await engine.put(
            Put(PLAYERS, {"club": club, "name": str(number), "city": "Pune", "pad": "x" * 5000})
        )
    where = F("club") == club
    carried = await engine.query(Query(PLAYERS, where, index="by-city", consistent=True))
    assert carried.capacity == Capacity(read=1)
    fetched = await engine.query(
        Query(PLAYERS, where, index="by-city", projection=(make_path("pad"),), consistent=True)
    )
    assert fetched.capacity == Capacity(read=1 + 3 * 2)


@pytest.mark.parametrize(
    ("attributes", "indexes"),
    [
        pytest.param({}, 0, id="none"),
        pytest.param({"team": "t"}, 0, id="half a key"),
        pytest.param({"status": "s"}, 1, id="one global"),
        pytest.param({"city": "c"}, 1, id="one local"),
        pytest.param({"day": 1, "city": "c"}, 2, id="one of each"),
        pytest.param(
            {"team": "t", "points": 1, "status": "s", "age": 1, "rank": b"r"}, 4, id="four"
        ),
    ],
)
async def test_a_put_pays_for_every_index_of_the_item(
    engine: Engine, attributes: dict[str, Any], indexes: int
) -> None:
    key = {"club": fresh(), "name": "n"}
    assert (await engine.put(Put(PLAYERS, {**key, **attributes}))).capacity == Capacity(
        write=1 + indexes
    )
    assert (await engine.delete(Delete(PLAYERS, key))).capacity == Capacity(write=1 + indexes)


async def test_an_index_costs_only_if_its_projection_changes(engine: Engine) -> None:
    key = {"club": fresh(), "name": "n"}
    item = {**key, "status": "s", "day": 1, "city": "c", "note": "n", "extra": 1}
    await engine.put(Put(PLAYERS, item))

    async def cost(*steps: Any) -> float:
        return (await engine.update(Update(PLAYERS, key, steps))).capacity.write

    assert (await engine.put(Put(PLAYERS, item))).capacity == Capacity(write=1)
    assert await cost(F("extra").set(2)) == 1
    assert await cost(F("note").set("m")) == 2
    assert await cost(F("status").set("other")) == 3
    assert await cost(F("status").remove()) == 2
    assert await cost(F("status").set("back")) == 2


async def test_an_index_that_never_had_the_whole_key_costs_nothing(engine: Engine) -> None:
    key = {"club": fresh(), "name": "n"}
    await engine.put(Put(PLAYERS, {**key, "team": "t"}))
    assert (await engine.put(Put(PLAYERS, {**key, "points": 1}))).capacity == Capacity(write=1)


async def test_a_failed_condition_costs_the_write(engine: Engine) -> None:
    """The error does not report the cost, but the item must be unchanged."""
    item = sized(2 * KB)
    with pytest.raises(ConditionFailed):
        await engine.put(Put(PLAIN, item, condition=exists("id")))
    assert await stored(engine, PLAIN, {"id": item["id"]}) is None


async def test_batches_cost_the_sum_of_their_parts(engine: Engine) -> None:
    items = [sized(100), sized(KB + 1), sized(5 * KB)]
    written = await engine.batch_write(BatchWrite(PLAIN, puts=tuple(items)))
    assert written.capacity == Capacity(write=1 + 2 + 5)
    keys = tuple({"id": item["id"]} for item in items)
    assert (await engine.batch_get(BatchGet(PLAIN, keys, consistent=True))).capacity == Capacity(
        read=1 + 1 + 2
    )
    assert (await engine.batch_get(BatchGet(PLAIN, keys))).capacity == Capacity(read=2)
    deleted = await engine.batch_write(BatchWrite(PLAIN, deletes=keys))
    assert deleted.capacity == Capacity(write=1 + 2 + 5)


async def test_a_transaction_costs_twice(engine: Engine) -> None:
    small, large = sized(100), sized(KB + 1)
    there = {"id": fresh()}
    await engine.put(Put(PLAIN, there))
    writes = (Put(PLAIN, small), Put(PLAIN, large), Check(PLAIN, there, exists("id")))
    assert (await engine.transact(Transaction(writes))).capacity == Capacity(write=2 * (1 + 2 + 1))
    gets = tuple(Get(PLAIN, {"id": item["id"]}) for item in (small, large))
    assert (await engine.transact_get(TransactionGet(gets))).capacity == Capacity(read=2 * (1 + 1))


async def test_a_repeated_token_costs_reads(engine: Engine) -> None:
    again = Transaction((Put(PLAIN, sized(100)),), fresh())
    assert (await engine.transact(again)).capacity == Capacity(write=2)
    assert (await engine.transact(again)).capacity == Capacity(read=2)


def test_capacities_add_up() -> None:
    assert Capacity(1, 2) + Capacity(read=0.5) == Capacity(1.5, 2)
