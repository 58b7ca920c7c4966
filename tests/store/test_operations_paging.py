"""Pages of queries and scans on every engine: ends, continuation and invalid page keys."""

from typing import Any

import pytest

from tally.store.api import MAX_PAGE_BYTES, BatchWrite, Delete, Engine, Put, Query, Scan
from tally.store.errors import InvalidPageKey, TableNotFound
from tally.store.expressions import F, make_path
from tally.store.values import Item
from tests.store.tables import (
    NEVER_MADE,
    NUMBERS,
    PLAIN,
    PLAYERS,
    STRINGS,
    all_items,
    all_pages,
    fresh,
)


async def fill(engine: Engine, count: int, **attributes: Any) -> str:
    """Fill a new partition of NUMBERS with items at 0, 1, 2…; return the partition."""
    partition = fresh()
    items = [{"id": partition, "at": number, **attributes} for number in range(count)]
    for first in range(0, count, 25):
        await engine.batch_write(BatchWrite(NUMBERS, puts=tuple(items[first : first + 25])))
    return partition


def ats(items: list[Item]) -> list[int]:
    return [item["at"] for item in items]


@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize("limit", [1, 2, 3, 10])
async def test_pages_cover_the_whole_range(engine: Engine, limit: int, forward: bool) -> None:
    partition = await fill(engine, 7)
    pages = await all_pages(
        engine, Query(NUMBERS, F("id") == partition, limit=limit, forward=forward)
    )
    expected = list(range(7)) if forward else list(range(6, -1, -1))
    assert [at for page in pages for at in ats(page.items)] == expected
    assert all(page.scanned <= limit for page in pages)


async def test_a_limit_that_ends_exactly_at_the_end_still_has_a_next_page_which_is_empty(
    engine: Engine,
) -> None:
    partition = await fill(engine, 4)
    first = await engine.query(Query(NUMBERS, F("id") == partition, limit=4))
    assert (len(first.items), first.next) == (4, {"id": partition, "at": 3})
    second = await engine.query(Query(NUMBERS, F("id") == partition, limit=4, start=first.next))
    assert (second.items, second.scanned, second.next) == ([], 0, None)


async def test_a_limit_beyond_the_end_has_no_next_page(engine: Engine) -> None:
    partition = await fill(engine, 4)
    page = await engine.query(Query(NUMBERS, F("id") == partition, limit=5))
    assert (len(page.items), page.next) == (4, None)


async def test_pages_stay_within_the_range_of_the_query(engine: Engine) -> None:
    partition = await fill(engine, 9)
    for forward in (True, False):
        where = (F("id") == partition) & F("at").between(2, 6)
        chosen = ats(await all_items(engine, Query(NUMBERS, where, limit=2, forward=forward)))
        assert chosen == ([2, 3, 4, 5, 6] if forward else [6, 5, 4, 3, 2])


async def test_a_page_key_is_valid_after_its_item_is_deleted(engine: Engine) -> None:
    partition = await fill(engine, 5)
    page = await engine.query(Query(NUMBERS, F("id") == partition, limit=2))
    assert page.next is not None
    await engine.delete(Delete(NUMBERS, page.next))
    rest = await all_items(engine, Query(NUMBERS, F("id") == partition, start=page.next))
    assert ats(rest) == [2, 3, 4]


async def test_items_inserted_ahead_of_the_page_key_are_returned(engine: Engine) -> None:
    partition = fresh()
    for at in ("b", "d", "f"):
        await engine.put(Put(STRINGS, {"id": partition, "at": at}))
    page = await engine.query(Query(STRINGS, F("id") == partition, limit=2))
    for at in ("a", "e", "g"):
        await engine.put(Put(STRINGS, {"id": partition, "at": at}))
    rest = await all_items(engine, Query(STRINGS, F("id") == partition, limit=1, start=page.next))
    assert [item["at"] for item in rest] == ["e", "f", "g"]


async def test_a_page_key_need_not_refer_to_an_existing_item(engine: Engine) -> None:
    partition = await fill(engine, 4)
    page = await engine.query(
        Query(NUMBERS, F("id") == partition, start={"id": partition, "at": 1})
    )
    assert ats(page.items) == [2, 3]


async def test_pages_of_a_global_index_may_split_items_with_equal_keys(engine: Engine) -> None:
    team = fresh()
    names = [f"n{number}" for number in range(7)]
    for name in names:
        await engine.put(Put(PLAYERS, {"club": fresh(), "name": name, "team": team, "points": 1}))
    pages = await all_pages(engine, Query(PLAYERS, F("team") == team, index="by-team", limit=2))
    assert sorted(item["name"] for page in pages for item in page.items) == names
    first = pages[0]
    assert first.next is not None
    assert set(first.next) == {"club", "name", "team", "points"}
    assert first.next == {name: first.items[-1][name] for name in first.next}


async def test_a_page_key_of_an_index_is_valid_after_its_item_is_deleted(engine: Engine) -> None:
    team = fresh()
    for points in range(5):
        await engine.put(
            Put(PLAYERS, {"club": team, "name": str(points), "team": team, "points": points})
        )
    page = await engine.query(Query(PLAYERS, F("team") == team, index="by-team", limit=2))
    assert page.next is not None
    await engine.delete(Delete(PLAYERS, {"club": team, "name": "1"}))
    await engine.put(Put(PLAYERS, {"club": team, "name": "2", "team": team, "points": 99}))
    rest = await all_items(
        engine, Query(PLAYERS, F("team") == team, index="by-team", limit=1, start=page.next)
    )
    assert [item["points"] for item in rest] == [3, 4, 99]


async def test_page_keys_of_a_local_index_include_its_key_and_the_tables(engine: Engine) -> None:
    club = fresh()
    for number in range(4):
        await engine.put(Put(PLAYERS, {"club": club, "name": str(number), "age": 30 - number // 2}))
    pages = await all_pages(engine, Query(PLAYERS, F("club") == club, index="by-age", limit=1))
    assert sorted(item["name"] for page in pages for item in page.items) == ["0", "1", "2", "3"]
    assert pages[0].next is not None
    assert set(pages[0].next) == {"club", "name", "age"}


async def test_a_page_ends_at_1_mb(engine: Engine) -> None:
    partition = await fill(engine, 0)
    size = 200_000
    for number in range(8):
        await engine.put(Put(NUMBERS, {"id": partition, "at": number, "text": "x" * size}))
    pages = await all_pages(engine, Query(NUMBERS, F("id") == partition))
    assert [at for page in pages for at in ats(page.items)] == list(range(8))
    assert [page.scanned for page in pages] == [6, 2]
    assert 5 * size < MAX_PAGE_BYTES < 6 * size


async def test_the_page_limit_counts_items_before_the_filter(engine: Engine) -> None:
    partition = await fill(engine, 0)
    for number in range(8):
        await engine.put(Put(NUMBERS, {"id": partition, "at": number, "text": "x" * 200_000}))
    page = await engine.query(
        Query(NUMBERS, F("id") == partition, filter=F("n").exists(), projection=(make_path("at"),))
    )
    assert (page.items, page.scanned, page.next) == ([], 6, {"id": partition, "at": 5})


PARTITION = "p"
FORGED: dict[str, Any] = {
    "nothing in it": {},
    "the sort key missing": {"id": PARTITION},
    "the partition missing": {"at": 1},
    "an attribute too many": {"id": PARTITION, "at": 1, "more": 1},
    "another attribute": {"id": PARTITION, "when": 1},
    "a sort key of another type": {"id": PARTITION, "at": "1"},
    "a partition of another type": {"id": 1, "at": 1},
    "an empty partition": {"id": "", "at": 1},
    "another partition": {"id": "q", "at": 1},
    "no map at all": "p",
}


@pytest.mark.parametrize("start", [pytest.param(start, id=name) for name, start in FORGED.items()])
async def test_a_forged_page_key_is_rejected(engine: Engine, start: Any) -> None:
    with pytest.raises(InvalidPageKey, match="page key"):
        await engine.query(Query(NUMBERS, F("id") == PARTITION, start=start))


@pytest.mark.parametrize(
    ("where", "at"),
    [
        (F("at") > 5, 5),
        (F("at") >= 5, 4),
        (F("at") < 5, 5),
        (F("at") <= 5, 6),
        (F("at") == 5, 6),
        (F("at").between(5, 7), 8),
    ],
)
async def test_a_page_key_outside_of_the_range_is_rejected(
    engine: Engine, where: Any, at: int
) -> None:
    start = {"id": PARTITION, "at": at}
    with pytest.raises(InvalidPageKey, match="outside"):
        await engine.query(Query(NUMBERS, (F("id") == PARTITION) & where, start=start))


@pytest.mark.parametrize(
    "start",
    [
        {"club": "c", "name": "n"},
        {"team": PARTITION, "points": 1},
        {"club": "c", "name": "n", "team": PARTITION},
        {"club": "c", "name": "n", "team": "q", "points": 1},
        {"club": "c", "name": "n", "team": PARTITION, "points": "1"},
        {"club": 1, "name": "n", "team": PARTITION, "points": 1},
        {"club": "c", "name": "n", "team": PARTITION, "points": 1, "more": 1},
    ],
)
async def test_a_forged_page_key_of_an_index_is_rejected(engine: Engine, start: Any) -> None:
    with pytest.raises(InvalidPageKey, match="page key"):
        await engine.query(Query(PLAYERS, F("team") == PARTITION, index="by-team", start=start))


async def test_a_scan_returns_every_item_once_with_any_page_size(engine: Engine) -> None:
    mark = fresh()
    ids = {fresh() for _ in range(12)}
    for name in ids:
        await engine.put(Put(PLAIN, {"id": name, "mark": mark}))
    for limit in (None, 5):
        found = await all_items(
            engine, Scan(PLAIN, filter=F("mark") == mark, limit=limit), most=1000
        )
        assert sorted(item["id"] for item in found) == sorted(ids)


async def test_a_scan_of_an_index_returns_only_its_items(engine: Engine) -> None:
    mark = fresh()
    for number in range(6):
        item = {"club": fresh(), "name": mark, "day": number, "note": str(number), "extra": 1}
        await engine.put(Put(PLAYERS, item if number % 2 else {**item, "city": "Pune"}))
    found = await all_items(
        engine, Scan(PLAYERS, index="by-day", filter=F("name") == mark, limit=3), most=1000
    )
    assert sorted(item["note"] for item in found) == ["0", "2", "4"]
    assert all(set(item) == {"club", "name", "day", "city", "note"} for item in found)


async def test_a_scan_may_filter_by_the_key_and_project(engine: Engine) -> None:
    key = {"id": fresh(), "at": "x"}
    await engine.put(Put(STRINGS, {**key, "n": 1}))
    operation = Scan(
        STRINGS,
        filter=(F("id") == key["id"]) & (F("at") == "x"),
        projection=(make_path("n"),),
        consistent=True,
    )
    assert await all_items(engine, operation, most=1000) == [{"n": 1}]


async def test_a_scan_counts_before_its_filter(engine: Engine) -> None:
    for _ in range(3):
        await engine.put(Put(PLAIN, {"id": fresh()}))
    page = await engine.scan(Scan(PLAIN, filter=F("id") == fresh(), limit=3))
    assert (page.items, page.scanned) == ([], 3)
    assert page.next is not None
    assert set(page.next) == {"id"}


@pytest.mark.parametrize("start", [{}, {"id": 1}, {"id": ""}, {"id": "x", "more": 1}, "x"])
async def test_a_forged_page_key_of_a_scan_is_rejected(engine: Engine, start: Any) -> None:
    with pytest.raises(InvalidPageKey, match="page key"):
        await engine.scan(Scan(PLAIN, start=start))


async def test_a_scan_of_an_unknown_table_is_rejected(engine: Engine) -> None:
    with pytest.raises(TableNotFound, match="never-made"):
        await engine.scan(Scan(NEVER_MADE))
