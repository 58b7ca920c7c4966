"""Cricket with ten thousand fixtures: a full sync, and HTTP reads while a match is live.

Goals: GET /matches and GET /matches/{id}/display at 300 requests/s with a p99 below 20 ms. The
server and the SportMonks simulator run in separate processes; this one generates the load. The sync
runs in this process; its baseline is raw writes of the same items.
"""

import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from bench.cricket_harness import (
    InProcessBackend,
    ServerProgram,
    SportMonksProgram,
    open_backend,
    start_server,
    start_sportmonks,
)
from bench.load import at_full_speed, at_rate
from bench.rounds import Line
from tally.cricket.repository.fixture_cache import CRICKET_FIXTURE_CACHE
from tally.cricket.repository.fixtures import CRICKET_FIXTURES
from tally.sim.sportmonks.cricsheet import BUNDLED_MATCH_ID
from tally.store.api import BatchWrite, Scan
from tally.store.schema import Table
from tally.store.sqlite import SqliteEngine, open_sqlite
from tally.store.values import Item

_PER_SECOND = 300
_MAX_SECONDS = 0.02
_BATCH = 25


async def cricket(seconds: int, matches: int) -> AsyncIterator[Line]:
    """Measure the sync and reads over HTTP."""
    with tempfile.TemporaryDirectory(prefix="tally-bench-", ignore_cleanup_errors=True) as folder:
        directory = Path(folder)
        async with start_sportmonks(matches) as sportmonks:
            async with open_backend(directory / "inside", sportmonks.api) as backend:
                async for line in _syncs(directory, sportmonks, backend):
                    yield line
            async with start_server(directory / "served", sportmonks.api) as server:
                await server.wait_for(f"/cricket/matches/{sportmonks.match_ids[-1]}")
                await server.wait_for(f"/cricket/matches/{BUNDLED_MATCH_ID}/display")
                async for line in _reads(server, seconds, matches):
                    yield line


async def _syncs(
    directory: Path, sportmonks: SportMonksProgram, backend: InProcessBackend
) -> AsyncIterator[Line]:
    count = len(sportmonks.match_ids) + 1
    section = f"sync of {count:,} fixtures"
    sync = backend.cricket.services.sync
    await sync.sync_leagues()
    await sync.sync_teams()
    first = await _measure(sync.sync_fixtures())
    raw = await _raw_write_seconds(directory / "raw", backend.engine)
    per_fixture, peer = first / count * 1e6, raw / count * 1e6
    note = f"{first:.1f} s; raw, in batches of {_BATCH}: {raw:.1f} s"
    yield Line(
        section,
        "all new, per fixture",
        per_fixture,
        "its items, raw",
        peer,
        per_fixture / peer,
        note=note,
    )
    again = await _measure(sync.sync_fixtures())
    per_fixture = again / count * 1e6
    yield Line(
        section,
        "nothing changed, per fixture",
        per_fixture,
        "its items, raw",
        peer,
        per_fixture / peer,
        note=f"{again:.1f} s",
    )


async def _measure(work: object) -> float:
    start = time.perf_counter()
    await work  # type: ignore[misc]  # any awaitable
    return time.perf_counter() - start


async def _raw_write_seconds(directory: Path, source: SqliteEngine) -> float:
    """Return the seconds to write the same items to another store, batch by batch."""
    items_by_table = {
        table: await _read_all(source, table) for table in (CRICKET_FIXTURES, CRICKET_FIXTURE_CACHE)
    }
    async with open_sqlite(directory) as engine:
        for table in items_by_table:
            await engine.ensure_table(table)
        start = time.perf_counter()
        for table, items in items_by_table.items():
            for offset in range(0, len(items), _BATCH):
                await engine.batch_write(
                    BatchWrite(table, tuple(items[offset : offset + _BATCH]), ())
                )
        return time.perf_counter() - start


async def _read_all(engine: SqliteEngine, table: Table) -> list[Item]:
    page = await engine.scan(Scan(table))
    items = list(page.items)
    while page.next is not None:
        page = await engine.scan(Scan(table, start=page.next))
        items += page.items
    return items


async def _reads(server: ServerProgram, seconds: int, matches: int) -> AsyncIterator[Line]:
    section = f"cricket over HTTP, {matches:,} fixtures and a live match"
    for what, path in (
        ("GET /matches", "/cricket/matches"),
        ("GET /matches of a league", "/cricket/matches?league=DL"),
        ("GET /matches/{id}", f"/cricket/matches/{BUNDLED_MATCH_ID}"),
        ("GET /matches/{id}/display", f"/cricket/matches/{BUNDLED_MATCH_ID}/display"),
    ):
        await at_full_speed(server.get, [path] * 300, 8)
        used = server.program.cpu_seconds()
        ours = await at_rate(server.get, [path] * (_PER_SECOND * seconds), _PER_SECOND)
        used = (server.program.cpu_seconds() - used) / ours.count * 1e6
        floor = await at_rate(server.get, ["/cricket/health"] * (_PER_SECOND * 2), _PER_SECOND)
        is_met = ours.meets(_PER_SECOND, _MAX_SECONDS)
        mine, theirs = ours.quantile(0.5) * 1e6, floor.quantile(0.5) * 1e6
        note = (
            f"{ours.describe()}; {used:.0f} µs of CPU time per request;"
            f" GET /health: {floor.describe()}"
        )
        goal = f"{_PER_SECOND}/s, p99 < 20 ms"
        yield Line(
            section,
            f"{what}, {_PER_SECOND} requests/s",
            mine,
            "GET /health",
            theirs,
            mine / theirs,
            goal,
            is_met,
            note,
        )
