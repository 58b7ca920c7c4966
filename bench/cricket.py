"""Cricket with ten thousand fixtures: a whole sync from SportMonks, and what people ask for, while a match is live.

Goals: GET /matches and GET /matches/{id}/display at 300 requests a second with a p99 under 20 ms.
The server and the simulated SportMonks are processes of their own; this one makes the load. The
sync runs here, beside the same items written raw.
"""

import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from bench.cricket_world import Inside, Outside, Served, inside, outside, serving
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
    """The sync, and reads over HTTP."""
    with tempfile.TemporaryDirectory(prefix="tally-bench-", ignore_cleanup_errors=True) as folder:
        directory = Path(folder)
        async with outside(matches) as world:
            async with inside(directory / "inside", world.api) as backend:
                async for line in _syncs(directory, world, backend):
                    yield line
            async with serving(directory / "served", world.api) as server:
                await server.until_there(f"/cricket/matches/{world.scheduled[-1]}")
                await server.until_there(f"/cricket/matches/{BUNDLED_MATCH_ID}/display")
                async for line in _reads(server, seconds, matches):
                    yield line


async def _syncs(directory: Path, world: Outside, backend: Inside) -> AsyncIterator[Line]:
    count = len(world.scheduled) + 1
    section = f"sync of {count:,} fixtures"
    sync = backend.cricket.services.sync
    await sync.sync_leagues()
    await sync.sync_teams()
    first = await _timed(sync.sync_fixtures())
    raw = await _written_raw(directory / "raw", backend.engine)
    each, peer = first / count * 1e6, raw / count * 1e6
    note = f"{first:.1f} s; raw, in batches of {_BATCH}: {raw:.1f} s"
    yield Line(section, "all new, a fixture", each, "its items, raw", peer, each / peer, note=note)
    again = await _timed(sync.sync_fixtures())
    each = again / count * 1e6
    yield Line(
        section,
        "nothing changed, a fixture",
        each,
        "its items, raw",
        peer,
        each / peer,
        note=f"{again:.1f} s",
    )


async def _timed(work: object) -> float:
    begun = time.perf_counter()
    await work  # type: ignore[misc]  # whatever it is, it is awaited
    return time.perf_counter() - begun


async def _written_raw(directory: Path, filled: SqliteEngine) -> float:
    """Seconds that it takes to write the same items to another store, one batch after the other."""
    found = {
        table: await _all(filled, table) for table in (CRICKET_FIXTURES, CRICKET_FIXTURE_CACHE)
    }
    async with open_sqlite(directory) as engine:
        for table in found:
            await engine.ensure_table(table)
        begun = time.perf_counter()
        for table, items in found.items():
            for start in range(0, len(items), _BATCH):
                await engine.batch_write(
                    BatchWrite(table, tuple(items[start : start + _BATCH]), ())
                )
        return time.perf_counter() - begun


async def _all(engine: SqliteEngine, table: Table) -> list[Item]:
    page = await engine.scan(Scan(table))
    found = list(page.items)
    while page.next is not None:
        page = await engine.scan(Scan(table, start=page.next))
        found += page.items
    return found


async def _reads(server: Served, seconds: int, matches: int) -> AsyncIterator[Line]:
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
        is_held = ours.meets(_PER_SECOND, _MAX_SECONDS)
        mine, theirs = ours.quantile(0.5) * 1e6, floor.quantile(0.5) * 1e6
        note = (
            f"{ours.describe()}; {used:.0f} µs of processor each; GET /health: {floor.describe()}"
        )
        goal = f"{_PER_SECOND}/s, p99 < 20 ms"
        yield Line(
            section,
            f"{what}, {_PER_SECOND} a second",
            mine,
            "GET /health",
            theirs,
            mine / theirs,
            goal,
            is_held,
            note,
        )
