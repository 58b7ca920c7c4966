"""The write-ahead log stays short without blocking readers or writers."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from tally.store.api import Get, Put, Scan
from tally.store.schema import S, Table
from tally.store.sqlite import SqliteEngine, checkpoint, open_sqlite
from tests.faults.audit import audit
from tests.faults.child_process import started

NOTES = Table("notes", partition=S("id"))
PAGE = 4096
CHECKPOINT_PAGES, RESTART_PAGES, MAX_REMAINING_PAGES = 200, 800, 50
TEXT_BYTES = 100_000
TEXTS = itertools.count()


@pytest.fixture(autouse=True)
def short_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce the limits to a twentieth, so that a test need not write gigabytes."""
    monkeypatch.setattr(checkpoint, "_CHECKPOINT_PAGES", CHECKPOINT_PAGES)
    monkeypatch.setattr(checkpoint, "_RESTART_PAGES", RESTART_PAGES)
    monkeypatch.setattr(checkpoint, "_MAX_REMAINING_PAGES", MAX_REMAINING_PAGES)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[SqliteEngine]:
    async with open_sqlite(tmp_path) as opened:
        await opened.create_table(NOTES)
        yield opened


def log_size(engine: SqliteEngine) -> int:
    return engine.path.with_name(engine.path.name + "-wal").stat().st_size


async def write(engine: SqliteEngine, count: int) -> float:
    """Write large items, four concurrently, and return the longest duration."""
    longest = 0.0
    numbers = iter(range(count))

    async def write_on() -> None:
        nonlocal longest
        for number in numbers:
            begun = time.monotonic()
            # Each time another text: SQLite writes no page that has not changed.
            text = f"{next(TEXTS):010}" * (TEXT_BYTES // 10)
            await engine.put(Put(NOTES, {"id": f"note-{number % 50}", "text": text}))
            longest = max(longest, time.monotonic() - begun)

    await asyncio.gather(*(write_on() for _ in range(4)))
    return longest


@pytest.mark.parametrize(
    "little", [MAX_REMAINING_PAGES, 0], ids=["once little is left to copy", "however much is left"]
)
async def test_the_log_stays_short_under_steady_writes(
    engine: SqliteEngine, little: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never exceeds twice the limit plus one group, while ten times the limit is written."""
    monkeypatch.setattr(checkpoint, "_MAX_REMAINING_PAGES", little)
    largest = 0
    for _ in range(10):
        await write(engine, RESTART_PAGES * PAGE // TEXT_BYTES)
        largest = max(largest, log_size(engine))
    assert largest <= (2 * RESTART_PAGES + 200) * PAGE
    assert (await engine.scan(Scan(NOTES))).scanned > 10


async def test_closing_removes_the_log(engine: SqliteEngine, tmp_path: Path) -> None:
    await write(engine, 50)
    await engine.close()
    assert not engine.path.with_name(engine.path.name + "-wal").exists()
    assert len((await audit(tmp_path))["notes"]) == 50


async def test_closing_one_of_two_stores_leaves_an_empty_log(
    engine: SqliteEngine, tmp_path: Path
) -> None:
    async with open_sqlite(tmp_path) as other:
        await write(other, 50)
        assert log_size(engine) > 0
        await other.close()
        assert log_size(engine) == 0
        assert (await engine.scan(Scan(NOTES))).scanned > 0


async def test_a_long_read_transaction_does_not_block_writers(
    engine: SqliteEngine,
) -> None:
    """A backup prevents the log's restart.

    The log grows, writes are not delayed, and it shrinks after.
    """
    await write(engine, 50)
    async with started("peer", str(engine.path.parent)) as peer:
        await peer.expect("open")
        assert await peer.request("snapshot") == '"done"'
        assert await write(engine, 200) < 5
        assert log_size(engine) > 2 * RESTART_PAGES * PAGE
        assert await peer.request("rollback") == '"done"'
    await write(engine, 200)
    await engine.close()
    async with open_sqlite(engine.path.parent) as again:
        await write(again, 10)
        assert log_size(again) < RESTART_PAGES * PAGE


async def test_a_concurrent_checkpoint_does_not_block(engine: SqliteEngine) -> None:
    """Reads and writes continue while another connection checkpoints repeatedly."""
    other = apsw.Connection(str(engine.path))
    done = asyncio.Event()

    async def copy() -> int:
        copied = 0
        while not done.is_set():
            await asyncio.to_thread(other.wal_checkpoint)
            copied += 1
        return copied

    copying = asyncio.ensure_future(copy())
    await write(engine, 200)
    assert (await engine.get(Get(NOTES, {"id": "note-7"}))).item is not None
    done.set()
    assert await copying > 1
    other.close()
