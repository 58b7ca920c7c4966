"""The expiry index: ordered by hour, exact to the second, and created by an upgrade."""

from pathlib import Path
from typing import Any

import apsw
import pytest

from tally.store.api import Put, Scan
from tally.store.schema import S, Table
from tally.store.sqlite import open_sqlite
from tally.store.sqlite.files import FILE_NAME, FORMAT_VERSION
from tally.store.sqlite.layout import compile_layout
from tests.store.tables import all_items

NOTES = Table("notes", partition=S("id"), ttl="until")
HOUR = 3600
NOW = 500_000 * HOUR + 1800


def query_plan(path: Path) -> str:
    """The query plan that finds expired rows."""
    connection = apsw.Connection(str(path))
    steps: list[Any] = connection.execute(
        f"EXPLAIN QUERY PLAN {compile_layout(NOTES).expired}", (0, 1, 0.0, 1.0, 9)
    ).fetchall()
    connection.close()
    return "; ".join(step[3] for step in steps)


@pytest.mark.parametrize("now", [NOW, NOW - 1800, float(NOW) + 0.5, 900, 0])
async def test_a_sweep_is_exact_to_the_second(tmp_path: Path, now: float) -> None:
    times = [now + offset for offset in (-2 * HOUR, -HOUR, -1799, -1, 0, 1, 1799, HOUR, 2 * HOUR)]
    async with open_sqlite(tmp_path) as engine:
        await engine.create_table(NOTES)
        for number, until in enumerate(times):
            await engine.put(Put(NOTES, {"id": f"{number}", "until": int(until)}))
        assert await engine.sweep(NOTES, now, 3) == 3
        swept = 3 + await engine.sweep(NOTES, now, 100)
        left = await all_items(engine, Scan(NOTES))
    assert swept == sum(int(until) <= now for until in times)
    assert sorted(item["until"] for item in left) == sorted(
        int(until) for until in times if int(until) > now
    )


async def test_a_sweep_uses_the_expiry_index(tmp_path: Path) -> None:
    """Without reading rows that are kept."""
    async with open_sqlite(tmp_path) as engine:
        await engine.create_table(NOTES)
    plan = query_plan(tmp_path / FILE_NAME)
    assert "USING COVERING INDEX expires notes (<expr>>? AND <expr><?)" in plan
    assert "SCAN" not in plan


@pytest.mark.parametrize("version", [1, 2])
async def test_an_older_database_is_upgraded(tmp_path: Path, version: int) -> None:
    path = tmp_path / FILE_NAME
    async with open_sqlite(tmp_path) as engine:
        await engine.create_table(NOTES)
        for number in range(10):
            await engine.put(Put(NOTES, {"id": f"{number}", "until": NOW + number}))
    plan = query_plan(path)
    connection = apsw.Connection(str(path))
    connection.execute("DROP TABLE notes")
    if version == 1:
        connection.execute('DROP INDEX "expires notes"')
        connection.execute(
            'CREATE INDEX "expires notes" ON "rows notes" (expires) WHERE expires IS NOT NULL'
        )
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    assert (query_plan(path) == plan) == (version == 2)
    async with open_sqlite(tmp_path) as engine:
        assert await engine.sweep(NOTES, NOW + 4, 100) == 5
        assert len(await all_items(engine, Scan(NOTES))) == 5
    assert query_plan(path) == plan
    connection = apsw.Connection(str(path))
    assert connection.pragma("user_version") == FORMAT_VERSION
    connection.close()
