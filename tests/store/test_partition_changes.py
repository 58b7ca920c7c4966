"""The changes of one partition up to now, which a client that reconnects has missed."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tally.store.api import BatchPut, Put, TransactionBatch
from tally.store.changes import START, ChangePage
from tally.store.errors import PositionExpired, PositionUnknown
from tally.store.expressions import not_exists
from tally.store.sqlite import SqliteEngine, open_sqlite
from tests.store.streams import BOTH, next_changes

NOW = 1_900_000_000.0


class MovingClock:
    """A clock that the test sets."""

    now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> MovingClock:
    return MovingClock()


@pytest.fixture
async def engine(tmp_path: Path, clock: MovingClock) -> AsyncIterator[SqliteEngine]:
    async with open_sqlite(tmp_path, clock) as opened:
        await opened.create_table(BOTH)
        yield opened


async def write(engine: SqliteEngine, partition: str, *names: str) -> None:
    """Write items together, so that they share a row of the log."""
    items = [{"id": partition, "at": name} for name in names]
    put = BatchPut(BOTH, items, condition=not_exists("id"))
    outcomes = await engine.transact_each(TransactionBatch(put))
    assert not any(isinstance(outcome, Exception) for outcome in outcomes)


def names(page: ChangePage) -> list[Any]:
    return [change.key["at"] for change in page.changes]


async def test_a_page_has_the_changes_of_one_partition_from_any_position(
    engine: SqliteEngine,
) -> None:
    """Also from a position within changes that were written together."""
    await write(engine, "a", "1", "2", "3")
    await write(engine, "b", "1")
    await engine.put(Put(BOTH, {"id": "a", "at": "4"}))
    changes = [change for change in await next_changes(engine, BOTH, 5) if change.key["id"] == "a"]
    for number, change in enumerate(changes, start=1):
        page = await engine.read_changes(BOTH, "a", change.position, 10)
        assert page.changes == tuple(changes[number:])
        assert page.is_complete
        assert page.sequence > changes[-1].sequence
    assert [change.sequence for change in changes] == sorted(
        {change.sequence for change in changes}
    )


async def test_a_page_ends_at_its_limit_and_the_next_one_continues(engine: SqliteEngine) -> None:
    await write(engine, "a", "1", "2", "3")
    first = await engine.read_changes(BOTH, "a", START, 2)
    assert (names(first), first.is_complete) == (["1", "2"], False)
    assert (first.position, first.sequence) == (
        first.changes[-1].position,
        first.changes[-1].sequence,
    )
    second = await engine.read_changes(BOTH, "a", first.position, 2)
    assert (names(second), second.is_complete) == (["3"], True)


async def test_a_page_without_a_position_is_the_end_of_the_stream(engine: SqliteEngine) -> None:
    await write(engine, "a", "1")
    end = await engine.read_changes(BOTH, "a", None, 10)
    assert end.changes == ()
    await write(engine, "a", "2")
    [change] = (await engine.read_changes(BOTH, "a", end.position, 10)).changes
    assert change.key["at"] == "2"
    assert change.sequence > end.sequence


async def test_a_position_that_is_too_old_or_unknown_is_an_error(
    engine: SqliteEngine, clock: MovingClock
) -> None:
    before = await engine.stream_position(BOTH)
    await write(engine, "a", "1")
    with pytest.raises(PositionUnknown, match="another stream"):
        await engine.read_changes(BOTH, "a", "nowhere", 10)
    clock.now += 25 * 3_600
    assert await engine.trim_changes()
    with pytest.raises(PositionExpired, match="trimmed"):
        await engine.read_changes(BOTH, "a", before, 10)
