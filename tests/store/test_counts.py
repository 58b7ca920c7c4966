"""Counts and parallel scans through the store, within access patterns."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tally.store import (
    BoundExceeded,
    Catalogue,
    F,
    Page,
    Put,
    Query,
    S,
    Scan,
    ScanSegment,
    Store,
    Table,
    access,
    open_sqlite,
    param,
)
from tally.store.api import BatchWrite
from tally.store.report import pattern_rows

EVENTS = Table("events", partition=S("id"), sort=S("at"))


@dataclass(frozen=True, slots=True)
class Events:
    """A repository that counts and scans."""

    store: Store

    @access(
        "Count events",
        Query(where=F("id") == param("id"), filter=F("odd") == 1),
        table=EVENTS,
        bound=1000,
    )
    async def count(self, own: str) -> int:
        return await self.store.count_items(EVENTS, F("id") == own, filter=F("odd") == 1)

    @access("Count a few events", Query(where=F("id") == param("id")), table=EVENTS, bound=10)
    async def count_few(self, own: str) -> int:
        return await self.store.count_items(EVENTS, F("id") == own)

    @access("Count a page", Query(where=F("id") == param("id"), limit=5), table=EVENTS)
    async def count_page(self, own: str) -> Page:
        return await self.store.query(EVENTS, F("id") == own, limit=5, count_only=True)

    @access("Export a segment", Scan(), table=EVENTS, bound=1000)
    async def export(self, number: int, total: int) -> list[str]:
        segment = ScanSegment(number, total)
        found = self.store.scan_items(EVENTS, segment=segment, page=7)
        return [f"{item['id']}/{item['at']}" async for item in found]

    @access("Count a segment", Scan(), table=EVENTS, bound=1000)
    async def count_segment(self, number: int, total: int) -> int:
        segment = ScanSegment(number, total)
        return (await self.store.scan(EVENTS, count_only=True, segment=segment)).count


@pytest.fixture
async def events(tmp_path: Path) -> AsyncIterator[Events]:
    async with open_sqlite(tmp_path) as engine:
        await engine.create_table(EVENTS)
        for own in ("a", "b", "c"):
            puts = tuple({"id": own, "at": f"{n:02}", "odd": n % 2} for n in range(20))
            await engine.batch_write(BatchWrite(EVENTS, puts=puts))
        await engine.put(Put(EVENTS, {"id": "d", "at": "00"}))
        yield Events(Store(engine))


async def test_items_of_all_pages_are_counted(events: Events) -> None:
    assert await events.count("a") == 10


async def test_a_count_above_the_bound_raises(events: Events) -> None:
    assert await events.count_few("d") == 1
    with pytest.raises(BoundExceeded):
        await events.count_few("a")


async def test_a_page_is_counted(events: Events) -> None:
    page = await events.count_page("a")
    assert (page.count, page.scanned, page.items) == (5, 5, [])
    assert page.next == {"id": "a", "at": "04"}


async def test_the_meter_counts_counted_items(events: Events) -> None:
    await events.count("a")
    rows = pattern_rows(Catalogue({"events": (Events,)}), events.store.meters)
    assert [(row.pattern, row.items) for row in rows if row.calls] == [("Count events", 10)]


async def test_segments_cover_the_table(events: Events) -> None:
    segments = [await events.export(number, 3) for number in range(3)]
    found = [item for segment in segments for item in segment]
    assert len(found) == len(set(found)) == 61
    assert [await events.count_segment(number, 3) for number in range(3)] == [*map(len, segments)]
