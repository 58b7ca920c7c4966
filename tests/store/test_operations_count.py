"""Counts on every engine: the pages of a query or scan without its items."""

from typing import Any

import pytest
from msgspec.structs import replace

from tally.store.api import BatchWrite, Engine, Put, Query, Scan
from tally.store.errors import InvalidRequest
from tally.store.expressions import F, make_path
from tests.store.tables import NUMBERS, PLAYERS, all_pages, fresh


async def fill(engine: Engine, count: int, **attributes: Any) -> str:
    """Fill a new partition of NUMBERS with items at 0, 1, 2…; return the partition."""
    partition = fresh()
    items = [
        {"id": partition, "at": number, "is_even": number % 2 == 0, **attributes}
        for number in range(count)
    ]
    await engine.batch_write(BatchWrite(NUMBERS, puts=tuple(items)))
    return partition


async def test_a_count_has_the_number_of_items_and_no_items(engine: Engine) -> None:
    partition = await fill(engine, 7)
    page = await engine.query(Query(NUMBERS, F("id") == partition, count_only=True))
    assert (page.count, page.scanned, page.items, page.next) == (7, 7, [], None)


async def test_a_page_of_items_has_their_number(engine: Engine) -> None:
    partition = await fill(engine, 7)
    page = await engine.query(Query(NUMBERS, F("id") == partition, filter=F("is_even") == True))  # noqa: E712
    assert (page.count, page.scanned, len(page.items)) == (4, 7, 4)


async def test_a_count_applies_the_filter_and_counts_what_it_scanned(engine: Engine) -> None:
    partition = await fill(engine, 7)
    where, even = (F("id") == partition) & (F("at") >= 2), F("is_even") == True  # noqa: E712
    page = await engine.query(Query(NUMBERS, where, filter=even, count_only=True))
    assert (page.count, page.scanned) == (3, 5)


async def test_a_count_has_the_pages_and_the_cost_of_the_query(engine: Engine) -> None:
    partition = await fill(engine, 7, pad="x" * 3000)
    query = Query(NUMBERS, F("id") == partition, filter=F("is_even") == True, limit=3)  # noqa: E712
    pages = await all_pages(engine, query)
    counts = await all_pages(engine, replace(query, count_only=True))
    assert [page.count for page in counts] == [len(page.items) for page in pages] == [2, 1, 1]
    assert [(page.scanned, page.next, page.capacity) for page in counts] == [
        (page.scanned, page.next, page.capacity) for page in pages
    ]


async def test_a_count_ends_a_page_at_1_mb(engine: Engine) -> None:
    partition = fresh()
    for number in range(4):
        await engine.put(Put(NUMBERS, {"id": partition, "at": number, "pad": "x" * 390_000}))
    first, second = await all_pages(engine, Query(NUMBERS, F("id") == partition, count_only=True))
    assert (first.count, first.scanned, first.next) == (3, 3, {"id": partition, "at": 2})
    assert (second.count, second.scanned, second.next) == (1, 1, None)


async def test_an_index_is_counted(engine: Engine) -> None:
    team = fresh()
    for number in range(3):
        await engine.put(
            Put(PLAYERS, {"club": team, "name": f"n{number}", "team": team, "points": number})
        )
    where = (F("team") == team) & (F("points") > 0)
    page = await engine.query(Query(PLAYERS, where, index="by-team", count_only=True))
    assert (page.count, page.scanned, page.items) == (2, 2, [])


async def test_a_scan_is_counted(engine: Engine) -> None:
    partition = await fill(engine, 5)
    pages = await all_pages(
        engine, Scan(NUMBERS, filter=F("id") == partition, count_only=True), most=1000
    )
    assert sum(page.count for page in pages) == 5
    assert all(page.items == [] for page in pages)


async def test_a_count_takes_no_projection(engine: Engine) -> None:
    paths = (make_path("at"),)
    with pytest.raises(InvalidRequest, match="projection"):
        await engine.query(Query(NUMBERS, F("id") == fresh(), projection=paths, count_only=True))
    with pytest.raises(InvalidRequest, match="projection"):
        await engine.scan(Scan(NUMBERS, projection=paths, count_only=True))
