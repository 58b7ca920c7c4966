"""Writers and consumers of a stream are killed under load: no gap, and no repeated position."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from tally.instance.repository.consumers import DEAD_LETTERS, STREAM_CONSUMERS
from tally.store.api import Put, Scan
from tally.store.changes import START, Change
from tally.store.sqlite import open_sqlite
from tests.faults.audit import audit
from tests.faults.child_process import Child, started
from tests.store.streams import BOTH, key_of, replay
from tests.store.tables import all_items

END = {"id": "end", "at": "end", "n": -2}
DEADLINE_SECONDS = 120
LIVES = 2


async def read_lines(child: Child, count: int) -> list[str]:
    return [await child.line() for _ in range(count)]


async def live_as_writer(directory: Path, first: int) -> list[int]:
    """Write under load until the process is killed; return the acknowledged numbers."""
    async with started("stream_children", "write", str(directory), str(first)) as writer:
        lines = await read_lines(writer, 150)
        writer.kill()
        lines += await writer.rest()
    return [int(line.split()[1]) for line in lines]


async def live_as_consumer(directory: Path, count: int) -> list[str]:
    """Consume until the process is killed; return what it printed."""
    async with started("stream_children", "consume", str(directory)) as consumer:
        await consumer.expect("open")
        lines = await read_lines(consumer, count)
        consumer.kill()
        return lines + await consumer.rest()


async def consume_to_the_end(directory: Path) -> list[str]:
    lines: list[str] = []
    async with started("stream_children", "consume", str(directory)) as consumer:
        await consumer.expect("open")
        while not lines or not lines[-1].endswith(f" {END['n']}"):
            lines.append(await consumer.line())
        consumer.kill()
    return lines


async def whole_log(directory: Path) -> list[Change]:
    """Read the log, and compare it with the table."""
    log: list[Change] = []
    async with open_sqlite(directory) as engine:
        await engine.put(Put(BOTH, END))
        async with aclosing(engine.changes(BOTH, START)) as changes:
            async for change in changes:
                log.append(change)
                if change.new == END:
                    break
        stored = {key_of(BOTH, item): item for item in await all_items(engine, Scan(BOTH))}
    assert replay(BOTH, log) == stored
    return log


@pytest.mark.soak
async def test_no_change_is_lost_or_repeated_when_writers_and_consumers_are_killed(
    tmp_path: Path,
) -> None:
    """A consumer repeats at most what it had not checkpointed, with the same positions."""
    async with open_sqlite(tmp_path) as engine:
        for table in (BOTH, STREAM_CONSUMERS, DEAD_LETTERS):
            await engine.create_table(table)
    acknowledged: list[int] = []
    lives: list[list[str]] = []
    async with asyncio.timeout(DEADLINE_SECONDS):
        for life in range(LIVES):
            numbers, lines = await asyncio.gather(
                live_as_writer(tmp_path, life * 100_000), live_as_consumer(tmp_path, 130)
            )
            acknowledged += numbers
            lives.append(lines)
        log = await whole_log(tmp_path)
        lives.append(await consume_to_the_end(tmp_path))
    assert {*acknowledged} <= {change.new["n"] for change in log if change.new}
    positions = [change.position for change in log]
    assert len({*positions}) == len(positions)
    expected = [f"{change.position} {(change.new or {}).get('n', -1)}" for change in log]
    reached = 0
    for lines in lives:
        first = expected.index(lines[0])
        assert first <= reached  # no gap; before it is what the crash repeats
        assert lines == expected[first : first + len(lines)]
        reached = first + len(lines)
    assert reached == len(expected)
    await audit(tmp_path)
