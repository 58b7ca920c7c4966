"""Writes that are submitted together share one commit, which syncs the disk once."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tally.store.api import Put
from tally.store.errors import ConditionFailed
from tally.store.expressions import exists
from tally.store.sqlite.files import connect
from tests.store.tables import PLAIN, embedded, stored

_WAL_HEADER, _FRAME_HEADER, _PAGE = 32, 24, 4096


def count_commits(directory: Path) -> int:
    """Count the frames of the write-ahead log that end a transaction."""
    [path] = directory.glob("*-wal")
    log = path.read_bytes()
    starts = range(_WAL_HEADER, len(log), _FRAME_HEADER + _PAGE)
    return sum(any(log[start + 4 : start + 8]) for start in starts)


async def test_writes_of_one_event_loop_iteration_share_a_commit(tmp_path: Path) -> None:
    async with embedded(tmp_path, PLAIN) as engine:

        async def put(number: int) -> None:
            await engine.put(Put(PLAIN, {"id": f"item-{number}"}))

        async def release_gil() -> None:
            time.sleep(0.05)  # noqa: ASYNC251  (blocks this iteration, while the writer thread can run)

        before = count_commits(tmp_path)
        await asyncio.gather(put(1), release_gil(), put(2))
        assert count_commits(tmp_path) == before + 1


@pytest.mark.parametrize("declaration", [" NOT NULL", ""])
async def test_puts_of_a_group_cost_by_the_larger_size(tmp_path: Path, declaration: str) -> None:
    """New items, and items that replace smaller and larger ones; also in tables of older versions.

    Their columns were declared NOT NULL.
    """
    async with embedded(tmp_path, PLAIN) as engine:
        connection = connect(engine.path)
        connection.execute(
            f'DROP TABLE "rows {PLAIN.name}"; CREATE TABLE "rows {PLAIN.name}" (pk BLOB NOT NULL,'
            f" sk BLOB NOT NULL, item BLOB{declaration}, size INTEGER{declaration},"
            " PRIMARY KEY (pk, sk)) WITHOUT ROWID"
        )
        connection.close()
        before, after = (100, 1_500, 1_500, 5_000, 5_000), (3_000, 1_500, 100, 4_999, 100, 200)

        async def put_all(sizes: Sequence[int]) -> list[float]:
            items = [{"id": f"item-{n}", "text": "x" * size} for n, size in enumerate(sizes)]
            results = await asyncio.gather(*(engine.put(Put(PLAIN, item)) for item in items))
            assert [await stored(engine, PLAIN, {"id": item["id"]}) for item in items] == items
            return [result.capacity.write for result in results]

        assert await put_all(before) == [1, 2, 2, 5, 5]
        assert await put_all(after) == [3, 2, 2, 5, 5, 1]


async def test_conditional_puts_of_a_group_replace_only_existing_items(tmp_path: Path) -> None:
    async with embedded(tmp_path, PLAIN) as engine:
        await engine.put(Put(PLAIN, {"id": "old", "text": "x" * 5_000}))

        async def put(name: str) -> float | str:
            try:
                result = await engine.put(Put(PLAIN, {"id": name, "n": 1}, exists("id")))
            except ConditionFailed:
                return "failed"
            return result.capacity.write

        assert [*await asyncio.gather(put("old"), put("new"))] == [5, "failed"]
        assert await stored(engine, PLAIN, {"id": "old"}) == {"id": "old", "n": 1}
        assert await stored(engine, PLAIN, {"id": "new"}) is None
