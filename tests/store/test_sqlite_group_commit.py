"""Writes that are submitted together share one commit, which syncs the disk once."""

import asyncio
import time
from pathlib import Path

from tally.store.api import Put
from tests.store.tables import PLAIN, embedded

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
