"""Parallel scans on every engine: the segments are disjoint and together the whole table."""

from collections import Counter

import pytest

from tally.store.api import BatchWrite, Engine, Put, Scan, ScanSegment
from tally.store.errors import InvalidPageKey, InvalidRequest
from tally.store.expressions import F
from tests.store.tables import NUMBERS, PLAYERS, STRINGS, all_items, all_pages, fresh


async def fill(engine: Engine, partitions: int, items: int) -> tuple[str, list[str]]:
    """Put items into many partitions of STRINGS; return their mark and all ids."""
    mark = fresh()
    rows = [
        {"id": f"{mark}-{partition}", "at": str(number), "mark": mark}
        for partition in range(partitions)
        for number in range(items)
    ]
    for first in range(0, len(rows), 25):
        await engine.batch_write(BatchWrite(STRINGS, puts=tuple(rows[first : first + 25])))
    return mark, [f"{row['id']}/{row['at']}" for row in rows]


@pytest.mark.parametrize("total", [1, 3, 8])
@pytest.mark.parametrize("limit", [None, 7])
async def test_segments_are_disjoint_and_complete(
    engine: Engine, total: int, limit: int | None
) -> None:
    mark, ids = await fill(engine, 20, 3)
    found: Counter[str] = Counter()
    segment_of: dict[str, int] = {}
    for number in range(total):
        scan = Scan(
            STRINGS, filter=F("mark") == mark, limit=limit, segment=ScanSegment(number, total)
        )
        for item in await all_items(engine, scan, most=1000):
            found[f"{item['id']}/{item['at']}"] += 1
            assert segment_of.setdefault(item["id"], number) == number
    assert found == Counter(ids)
    assert len(set(segment_of.values())) > 1 or total == 1


async def test_a_segment_stays_the_same_while_others_write(engine: Engine) -> None:
    mark, ids = await fill(engine, 20, 1)
    found: list[str] = []
    for number in range(2):
        scan = Scan(STRINGS, filter=F("mark") == mark, limit=3, segment=ScanSegment(number, 2))
        start = None
        while True:
            page = await engine.scan(
                Scan(STRINGS, None, scan.filter, (), 3, start, segment=scan.segment)
            )
            found += [f"{item['id']}/{item['at']}" for item in page.items]
            await engine.put(Put(STRINGS, {"id": fresh(), "at": "0"}))
            start = page.next
            if start is None:
                break
    assert sorted(found) == sorted(ids)


async def test_the_segments_of_an_index_are_disjoint_and_complete(engine: Engine) -> None:
    club = fresh()
    names = [f"n{number}" for number in range(24)]
    for name in names:
        item = {"club": club, "name": name, "team": fresh(), "points": 1}
        await engine.put(Put(PLAYERS, item))
    await engine.put(Put(PLAYERS, {"club": club, "name": "in no team"}))
    found = [
        item["name"]
        for number in range(3)
        for item in await all_items(
            engine,
            Scan(
                PLAYERS,
                index="by-team",
                filter=F("club") == club,
                limit=50,
                segment=ScanSegment(number, 3),
            ),
            most=1000,
        )
    ]
    assert sorted(found) == sorted(names)


async def test_a_segment_counts_what_it_scans(engine: Engine) -> None:
    mark, ids = await fill(engine, 12, 2)
    pages = [
        page
        for number in range(4)
        for page in await all_pages(
            engine,
            Scan(
                STRINGS,
                filter=F("mark") == mark,
                count_only=True,
                segment=ScanSegment(number, 4),
            ),
            most=1000,
        )
    ]
    whole = await all_pages(engine, Scan(STRINGS, count_only=True), most=1000)
    assert sum(page.count for page in pages) == len(ids)
    assert sum(page.scanned for page in pages) == sum(page.count for page in whole)


async def test_a_page_key_of_another_segment_is_rejected(engine: Engine) -> None:
    await fill(engine, 20, 1)
    page = await engine.scan(Scan(STRINGS, limit=1, segment=ScanSegment(0, 2)))
    assert page.next is not None
    with pytest.raises(InvalidPageKey):
        await engine.scan(Scan(STRINGS, start=page.next, segment=ScanSegment(1, 2)))


@pytest.mark.parametrize(
    ("number", "total", "words"),
    [
        (4, 4, "from 0 to 3"),
        (-1, 4, "from 0 to 3"),
        (0, 0, "from 1 to 1000000"),
        (0, 1_000_001, "from 1 to 1000000"),
        (True, 4, "from 0 to 3"),
        (0, 1.5, "from 1 to 1000000"),
    ],
)
async def test_a_segment_outside_of_its_range_is_rejected(
    engine: Engine, number: int, total: int, words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words):
        await engine.scan(Scan(NUMBERS, segment=ScanSegment(number, total)))


async def test_the_last_of_a_million_segments_is_valid(engine: Engine) -> None:
    page = await engine.scan(Scan(NUMBERS, segment=ScanSegment(999_999, 1_000_000)))
    assert page.count == len(page.items)
