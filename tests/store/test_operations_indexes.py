"""Global and local indexes on every engine: membership, projections and maintenance by writes."""

from decimal import Decimal
from typing import Any

import pytest

from tally.store.api import BatchWrite, Delete, Engine, Put, Query, Scan, Transaction, Update
from tally.store.errors import (
    InvalidExpression,
    InvalidRequest,
    TableNotFound,
    TransactionCancelled,
    UnknownIndex,
)
from tally.store.expressions import Condition, F, Path, make_path, not_exists
from tally.store.values import Item
from tests.store.tables import NEVER_MADE, PLAYERS, all_items, fresh, fresh_number

FULL: dict[str, Any] = {
    "team": "set by the test",
    "points": 10,
    "status": "set by the test",
    "day": 1,
    "city": "Pune",
    "age": 30,
    "rank": b"\x01",
    "note": "n",
    "tags": {"x"},
    "extra": [1],
}


def player(**changes: Any) -> Item:
    """A player in every index, in unique partitions."""
    own = {"club": fresh(), "name": "n", "team": fresh(), "status": fresh(), "day": fresh_number()}
    return {name: value for name, value in (FULL | own | changes).items() if value is not ...}


def key_of(item: Item) -> Item:
    return {"club": item["club"], "name": item["name"]}


async def entries(engine: Engine, index: str, where: Condition) -> list[Item]:
    return await all_items(engine, Query(PLAYERS, where, index=index))


async def count_entries(engine: Engine, item: Item) -> dict[str, int]:
    """The number of entries in each index under the item's keys."""
    conditions = {
        "by-team": F("team") == item["team"],
        "by-status": F("status") == item["status"],
        "by-day": F("day") == item["day"],
        "by-age": F("club") == item["club"],
        "by-city": F("club") == item["club"],
        "by-rank": F("club") == item["club"],
    }
    return {name: len(await entries(engine, name, where)) for name, where in conditions.items()}


async def test_an_index_returns_its_projection(engine: Engine) -> None:
    item = player()
    await engine.put(Put(PLAYERS, item))
    keys = key_of(item)
    assert await entries(engine, "by-team", F("team") == item["team"]) == [item]
    assert await entries(engine, "by-status", F("status") == item["status"]) == [
        {**keys, "status": item["status"]}
    ]
    assert await entries(engine, "by-day", F("day") == item["day"]) == [
        {**keys, "day": item["day"], "city": "Pune", "note": "n", "tags": {"x"}}
    ]
    assert await entries(engine, "by-age", F("club") == item["club"]) == [item]
    assert await entries(engine, "by-city", F("club") == item["club"]) == [{**keys, "city": "Pune"}]
    assert await entries(engine, "by-rank", F("club") == item["club"]) == [
        {**keys, "rank": b"\x01", "note": "n"}
    ]


@pytest.mark.parametrize(
    ("missing", "left_out"),
    [
        ("team", {"by-team"}),
        ("points", {"by-team"}),
        ("status", {"by-status"}),
        ("day", {"by-day"}),
        ("city", {"by-day", "by-city"}),
        ("age", {"by-age"}),
        ("rank", {"by-rank"}),
        ("note", set()),
    ],
)
async def test_an_index_is_sparse(engine: Engine, missing: str, left_out: set[str]) -> None:
    whole = player()
    await engine.put(
        Put(PLAYERS, {name: value for name, value in whole.items() if name != missing})
    )
    counts = await count_entries(engine, whole)
    assert {name for name, count in counts.items() if not count} == left_out


async def test_a_replacing_put_removes_old_entries(engine: Engine) -> None:
    old = player()
    await engine.put(Put(PLAYERS, old))
    new = player(**key_of(old), age=...)
    await engine.put(Put(PLAYERS, new))
    removed = await count_entries(engine, old)
    assert (
        removed["by-team"],
        removed["by-status"],
        removed["by-day"],
        removed["by-age"],
        removed["by-city"],
    ) == (0, 0, 0, 0, 1)
    assert await entries(engine, "by-team", F("team") == new["team"]) == [new]


async def test_an_update_moves_adds_and_removes_entries(engine: Engine) -> None:
    item = player(status=...)
    other, status = fresh(), fresh()
    await engine.put(Put(PLAYERS, item))
    steps = (
        F("team").set(other),
        F("points").add(5),
        F("status").set(status),
        F("day").remove(),
        F("note").set("new"),
    )
    await engine.update(Update(PLAYERS, key_of(item), steps))
    assert await entries(engine, "by-team", F("team") == item["team"]) == []
    (moved,) = await entries(engine, "by-team", F("team") == other)
    assert (moved["points"], moved["note"]) == (15, "new")
    assert await entries(engine, "by-status", F("status") == status) == [
        {**key_of(item), "status": status}
    ]
    assert await entries(engine, "by-day", F("day") == item["day"]) == []
    (ranked,) = await entries(engine, "by-rank", F("club") == item["club"])
    assert ranked["note"] == "new"


async def test_a_delete_removes_every_entry(engine: Engine) -> None:
    item = player()
    await engine.put(Put(PLAYERS, item))
    assert set((await count_entries(engine, item)).values()) == {1}
    await engine.delete(Delete(PLAYERS, key_of(item)))
    assert set((await count_entries(engine, item)).values()) == {0}


async def test_a_batch_updates_the_indexes(engine: Engine) -> None:
    old, new = player(), player()
    await engine.put(Put(PLAYERS, old))
    await engine.batch_write(BatchWrite(PLAYERS, puts=(new,), deletes=(key_of(old),)))
    assert set((await count_entries(engine, old)).values()) == {0}
    assert set((await count_entries(engine, new)).values()) == {1}


async def test_a_transaction_updates_the_indexes(engine: Engine) -> None:
    removed, moved, new = player(), player(), player()
    team = fresh()
    await engine.put(Put(PLAYERS, removed))
    await engine.put(Put(PLAYERS, moved))
    writes = (
        Put(PLAYERS, new),
        Delete(PLAYERS, key_of(removed)),
        Update(PLAYERS, key_of(moved), (F("team").set(team),)),
    )
    await engine.transact(Transaction(writes))
    assert set((await count_entries(engine, removed)).values()) == {0}
    assert set((await count_entries(engine, new)).values()) == {1}
    assert len(await entries(engine, "by-team", F("team") == team)) == 1
    assert await entries(engine, "by-team", F("team") == moved["team"]) == []


async def test_a_cancelled_transaction_does_not_change_the_indexes(engine: Engine) -> None:
    item, new = player(), player()
    await engine.put(Put(PLAYERS, item))
    writes = (Put(PLAYERS, new), Delete(PLAYERS, key_of(item), condition=not_exists("team")))
    with pytest.raises(TransactionCancelled):
        await engine.transact(Transaction(writes))
    assert set((await count_entries(engine, item)).values()) == {1}
    assert set((await count_entries(engine, new)).values()) == {0}


async def test_a_global_index_orders_items_of_all_partitions(
    engine: Engine,
) -> None:
    team = fresh()
    points = (Decimal("-2.5"), -1, 0, Decimal("0.5"), 3, 20, 100)
    for number in sorted(points, key=str):
        await engine.put(Put(PLAYERS, player(team=team, points=number)))
    where = F("team") == team
    assert [item["points"] for item in await entries(engine, "by-team", where)] == list(points)
    backwards = await all_items(engine, Query(PLAYERS, where, index="by-team", forward=False))
    assert [item["points"] for item in backwards] == list(reversed(points))
    chosen = await entries(engine, "by-team", where & F("points").between(-1, 3))
    assert [item["points"] for item in chosen] == [-1, 0, Decimal("0.5"), 3]


async def test_items_with_equal_index_keys_are_all_returned(engine: Engine) -> None:
    status = fresh()
    items = [player(status=status, name=f"n{number}") for number in range(5)]
    for item in items:
        await engine.put(Put(PLAYERS, item))
    found = await entries(engine, "by-status", F("status") == status)
    assert sorted(entry["name"] for entry in found) == [f"n{number}" for number in range(5)]


async def test_a_local_index_orders_a_partition_by_another_key(engine: Engine) -> None:
    club = fresh()
    for name, age in (("a", 40), ("b", 20), ("c", 30), ("d", ...)):
        await engine.put(Put(PLAYERS, player(club=club, name=name, age=age)))
    where = F("club") == club
    assert [item["name"] for item in await entries(engine, "by-age", where)] == ["b", "c", "a"]
    assert [item["name"] for item in await entries(engine, "by-age", where & (F("age") >= 30))] == [
        "c",
        "a",
    ]


async def test_begins_with_in_an_index_is_case_sensitive(engine: Engine) -> None:
    club = fresh()
    for number, city in enumerate(("Pune", "pune", "Puri", "Delhi")):
        await engine.put(Put(PLAYERS, player(club=club, name=str(number), city=city)))
    found = await entries(engine, "by-city", (F("club") == club) & F("city").begins_with("Pu"))
    assert [item["city"] for item in found] == ["Pune", "Puri"]


async def test_a_local_index_can_be_read_consistently_and_a_global_one_cannot(
    engine: Engine,
) -> None:
    item = player()
    await engine.put(Put(PLAYERS, item))
    page = await engine.query(
        Query(PLAYERS, F("club") == item["club"], index="by-age", consistent=True)
    )
    assert page.items == [item]
    with pytest.raises(InvalidRequest, match=r"global index by-team.*consistent"):
        await engine.query(
            Query(PLAYERS, F("team") == item["team"], index="by-team", consistent=True)
        )
    with pytest.raises(InvalidRequest, match=r"global index by-team.*consistent"):
        await engine.scan(Scan(PLAYERS, index="by-team", consistent=True))


async def test_a_local_index_fetches_attributes_that_it_does_not_project(engine: Engine) -> None:
    item = player()
    await engine.put(Put(PLAYERS, item))
    chosen = (make_path("name"), make_path("extra", 0), make_path("points"))
    page = await engine.query(
        Query(PLAYERS, F("club") == item["club"], index="by-city", projection=chosen)
    )
    assert page.items == [{"name": "n", "extra": [1], "points": 10}]


async def test_a_global_index_cannot_return_attributes_that_it_does_not_project(
    engine: Engine,
) -> None:
    for name, where in (("by-status", F("status") == "x"), ("by-day", F("day") == 1)):
        with pytest.raises(InvalidExpression, match=f"{name} does not project extra"):
            await engine.query(Query(PLAYERS, where, index=name, projection=(Path(("extra",)),)))


async def test_a_projection_of_an_index_query_selects_projected_attributes(engine: Engine) -> None:
    item = player()
    await engine.put(Put(PLAYERS, item))
    chosen = (make_path("club"), make_path("note"))
    page = await engine.query(
        Query(PLAYERS, F("day") == item["day"], index="by-day", projection=chosen)
    )
    assert page.items == [{"club": item["club"], "note": "n"}]


async def test_a_filter_of_an_index_query_sees_projected_attributes(engine: Engine) -> None:
    item = player()
    await engine.put(Put(PLAYERS, item))
    where = F("day") == item["day"]
    assert (
        len(
            (
                await engine.query(Query(PLAYERS, where, index="by-day", filter=F("note") == "n"))
            ).items
        )
        == 1
    )
    assert (
        len(
            (
                await engine.query(Query(PLAYERS, where, index="by-day", filter=F("note") == "m"))
            ).items
        )
        == 0
    )
    # The table's own key is no key of this index, so the filter may speak of it.
    assert (
        len(
            (
                await engine.query(Query(PLAYERS, where, index="by-day", filter=F("name") == "n"))
            ).items
        )
        == 1
    )


@pytest.mark.parametrize(
    ("index", "where"),
    [("by-status", F("status") == "x"), ("by-day", F("day") == 1), ("by-city", F("club") == "x")],
)
async def test_an_index_query_cannot_filter_by_attributes_that_it_does_not_project(
    engine: Engine, index: str, where: Condition
) -> None:
    """Not even on a local index, which can fetch the attribute."""
    with pytest.raises(InvalidExpression, match=f"{index} does not project extra"):
        await engine.query(Query(PLAYERS, where, index=index, filter=not_exists("extra")))


@pytest.mark.parametrize("index", ["by-status", "by-city"])
async def test_the_filter_of_an_index_scan_treats_other_attributes_as_missing(
    engine: Engine, index: str
) -> None:
    item = player()
    await engine.put(Put(PLAYERS, item))
    own = F("club") == item["club"]
    assert (
        len(await all_items(engine, Scan(PLAYERS, index=index, filter=own & not_exists("extra"))))
        == 1
    )
    assert (
        await all_items(engine, Scan(PLAYERS, index=index, filter=own & (F("extra") == [1]))) == []
    )


@pytest.mark.parametrize(
    ("index", "name"), [("by-team", "team"), ("by-team", "points"), ("by-age", "club")]
)
async def test_a_filter_on_the_key_of_the_index_is_rejected(
    engine: Engine, index: str, name: str
) -> None:
    partition = PLAYERS.index(index).partition.name
    with pytest.raises(InvalidExpression, match=f"filter.*{name}"):
        await engine.query(Query(PLAYERS, F(partition) == "x", index=index, filter=F(name) == "x"))


async def test_an_unknown_index_is_rejected(engine: Engine) -> None:
    with pytest.raises(UnknownIndex, match=r"by-shoe.*by-team"):
        await engine.query(Query(PLAYERS, F("shoe") == 43, index="by-shoe"))
    with pytest.raises(UnknownIndex, match="by-shoe"):
        await engine.scan(Scan(PLAYERS, index="by-shoe"))


async def test_an_index_of_an_unknown_table_is_rejected(engine: Engine) -> None:
    with pytest.raises(TableNotFound, match="never-made"):
        await engine.query(Query(NEVER_MADE, F("owner") == "x", index="by-owner"))


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("team", 1),
        ("points", "1"),
        ("day", b"1"),
        ("age", None),
        ("rank", "x"),
        ("status", ["x"]),
        ("city", {"x"}),
    ],
)
async def test_a_put_with_an_index_key_of_another_type_is_rejected(
    engine: Engine, attribute: str, value: Any
) -> None:
    with pytest.raises(InvalidRequest, match=f"{attribute} is of type"):
        await engine.put(Put(PLAYERS, player(**{attribute: value})))


@pytest.mark.parametrize(("attribute", "value"), [("team", ""), ("city", ""), ("rank", b"")])
async def test_a_put_with_an_empty_index_key_is_rejected(
    engine: Engine, attribute: str, value: Any
) -> None:
    with pytest.raises(InvalidRequest, match=f"{attribute} is empty"):
        await engine.put(Put(PLAYERS, player(**{attribute: value})))
