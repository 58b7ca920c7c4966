"""Streams of the embedded engine: one log row per bulk group, trimming, and processes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

from tally.backup.create import create_backup
from tally.backup.restore import restore_backup
from tally.kit.clock import SystemClock
from tally.store.api import BatchPut, Delete, Put, Scan, Transaction, TransactionBatch, Update
from tally.store.changes import START, Change
from tally.store.errors import (
    PositionExpired,
    PositionUnknown,
    StoreUnavailable,
    StreamNotFound,
    TableNotFound,
)
from tally.store.expressions import F, not_exists
from tally.store.sqlite import SqliteEngine, change_streams, open_sqlite
from tally.store.sqlite.bulk import router
from tally.store.sqlite.change_log import last_sequence, open_stream, trim_changes
from tally.store.sqlite.scrub import find_damage
from tally.store.values import Item
from tests.embedded.harness import wait_until
from tests.faults.audit import audit
from tests.faults.write_groups import one_group
from tests.store.streams import BOTH, next_changes, replay
from tests.store.tables import PLAIN, STRINGS, all_items
from tests.store.test_sqlite_writer_process import many, started_process

HOUR = 3_600
DAY = 24 * HOUR
NOW = 1_900_000_000.0
NEW = not_exists("id")


class MovingClock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> MovingClock:
    return MovingClock()


@pytest.fixture
async def engine(tmp_path: Path, clock: MovingClock) -> AsyncIterator[SqliteEngine]:
    async with open_sqlite(tmp_path, clock) as opened:
        await opened.create_table(BOTH)
        await opened.create_table(PLAIN)
        yield opened


def item(owner: str, number: int = 0, **attributes: Any) -> Item:
    return {"id": owner, "at": f"{number:04}", **attributes}


def log_rows(engine: SqliteEngine) -> list[Any]:
    return engine._connection.execute("SELECT sequence, pk FROM changes").fetchall()


async def waiting(engine: SqliteEngine) -> None:
    """Wait until a consumer has read everything."""
    await wait_until(lambda: bool(engine._streams._waiting))


async def trim(engine: SqliteEngine) -> None:
    while await engine.trim_changes():
        pass


async def test_a_group_writes_one_log_row_per_partition(engine: SqliteEngine) -> None:
    """Also if several callers put items of one partition."""
    batches = [
        TransactionBatch(
            BatchPut(BOTH, [item(owner, start + number) for number in range(50)], condition=NEW)
        )
        for owner in ("ann", "bob")
        for start in (0, 50)
    ]
    await asyncio.gather(*(engine.transact_each(batch) for batch in batches))
    assert [row[1] for row in log_rows(engine)] == [b"ann", b"bob"]
    changes = await next_changes(engine, BOTH, 200)
    assert [change.key for change in changes] == [
        item(owner, number) for owner in ("ann", "bob") for number in range(100)
    ]
    assert {change.at for change in changes} == {NOW}


async def test_large_items_are_spread_over_log_rows(engine: SqliteEngine) -> None:
    items = [item("ann", number, text="x" * 100_000) for number in range(10)]
    await engine.transact_each(TransactionBatch(BatchPut(BOTH, items)))
    assert len(log_rows(engine)) == 5
    assert [change.new for change in await next_changes(engine, BOTH, 10)] == items


async def test_an_expiry_is_marked(engine: SqliteEngine) -> None:
    expired = item("ann", expires=int(NOW) - 2 * HOUR)
    await engine.put(Put(BOTH, expired))
    assert await engine.sweep(BOTH, NOW, 100) == 1
    [_, change] = await next_changes(engine, BOTH, 2)
    assert (change.kind, change.old, change.new, change.is_expiry) == (
        "REMOVE",
        expired,
        None,
        True,
    )


async def test_old_changes_are_trimmed_and_their_positions_expire(
    engine: SqliteEngine, clock: MovingClock
) -> None:
    await engine.transact_each(TransactionBatch(BatchPut(BOTH, [item("old", n) for n in range(3)])))
    old = await next_changes(engine, BOTH, 3)
    clock.now += DAY / 2
    await engine.put(Put(BOTH, item("new")))
    clock.now += DAY / 2 + 1
    await trim(engine)
    [first] = await next_changes(engine, BOTH, 1)
    assert first.key["id"] == "new"
    assert await next_changes(engine, BOTH, 1, old[-1].position) == [first]
    for change in old[:-1]:
        with pytest.raises(PositionExpired, match="streamed: changes after the position were"):
            await next_changes(engine, BOTH, 1, change.position)
    clock.now += DAY
    await trim(engine)
    assert log_rows(engine) == []
    with pytest.raises(PositionExpired):
        await next_changes(engine, BOTH, 1, old[-1].position)
    await engine.put(Put(BOTH, item("newest")))
    [newest] = await next_changes(engine, BOTH, 1, first.position)
    assert newest.key["id"] == "newest"


async def test_a_quiet_stream_keeps_its_positions(engine: SqliteEngine, clock: MovingClock) -> None:
    """Changes of other tables are trimmed, and the consumer has missed none of its own."""
    position = await engine.stream_position(BOTH)
    other = replace(BOTH, name="other")
    await engine.create_table(other)
    await engine.put(Put(other, item("ann")))
    clock.now += 3 * DAY
    await trim(engine)
    await engine.put(Put(BOTH, item("bob")))
    [change] = await next_changes(engine, BOTH, 1, position)
    assert change.key["id"] == "bob"


async def test_changes_from_the_future_are_trimmed(
    engine: SqliteEngine, clock: MovingClock
) -> None:
    """A clock that was ahead must not keep the log from being trimmed."""
    clock.now += 400 * DAY
    await engine.put(Put(BOTH, item("ahead")))
    clock.now = NOW
    await engine.put(Put(BOTH, item("now")))
    await trim(engine)
    assert len(log_rows(engine)) == 1


async def test_trimming_works_in_slices(engine: SqliteEngine, clock: MovingClock) -> None:
    writes = [engine.put(Put(BOTH, item(f"{n}", text="x" * 10_000))) for n in range(300)]
    await asyncio.gather(*writes)
    clock.now += 2 * DAY
    before = len(log_rows(engine))
    assert await engine.trim_changes()
    assert 90 < before - len(log_rows(engine)) < 200  # about a megabyte
    await trim(engine)
    assert log_rows(engine) == []


async def test_a_consumer_that_is_overtaken_by_trimming_is_stopped(
    engine: SqliteEngine, clock: MovingClock
) -> None:
    for number in range(40):
        await engine.put(Put(BOTH, item("ann", number)))
    async with aclosing(engine.changes(BOTH, START)) as changes:
        await anext(changes)
        clock.now += 2 * DAY
        await trim(engine)
        with pytest.raises(PositionExpired):
            async for _ in changes:
                pass


async def test_numbers_are_not_reused_after_the_log_was_empty(
    tmp_path: Path, clock: MovingClock
) -> None:
    numbers = []
    for number in range(3):
        async with open_sqlite(tmp_path, clock) as engine:
            await engine.ensure_table(BOTH)
            await engine.put(Put(BOTH, item("ann", number)))
            numbers += [row[0] for row in log_rows(engine)]
            clock.now += 2 * DAY
            await trim(engine)
    assert numbers == sorted(set(numbers))


async def test_positions_survive_a_restart(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as engine:
        await engine.create_table(BOTH)
        items = [item("ann", number) for number in range(5)]
        await engine.transact_each(TransactionBatch(BatchPut(BOTH, items)))
        changes = await next_changes(engine, BOTH, 5)
    async with open_sqlite(tmp_path) as engine:
        assert await next_changes(engine, BOTH, 3, changes[1].position) == changes[2:]


async def test_a_failed_group_is_not_recorded(engine: SqliteEngine) -> None:
    """SQLite fails after the first writes: the group is rolled back and runs again one by one."""

    def fail(_connection: apsw.Connection) -> None:
        raise apsw.FullError("no space")

    position = await engine.stream_position(BOTH)
    items = [item("b"), item("b", 1)]
    with one_group(engine):
        jobs: list[Any] = [
            asyncio.ensure_future(engine.put(Put(BOTH, item("a")))),
            asyncio.ensure_future(engine.transact_each(TransactionBatch(BatchPut(BOTH, items)))),
        ]
        await asyncio.sleep(0)  # a task sends its request when it first runs
        jobs += [
            engine._writer.submit(fail),
            asyncio.ensure_future(engine.put(Put(BOTH, item("c")))),
        ]
        await asyncio.sleep(0)
    ends = await asyncio.gather(*jobs, return_exceptions=True)
    assert [isinstance(end, StoreUnavailable) for end in ends] == [False, False, True, False]
    changes = await next_changes(engine, BOTH, 4, position)
    assert [change.key for change in changes] == [item("a"), item("b"), item("b", 1), item("c")]
    assert len(log_rows(engine)) == 3


async def test_a_rejected_bulk_transaction_leaves_no_record(engine: SqliteEngine) -> None:
    position = await engine.stream_position(BOTH)
    duplicate = [Transaction((Put(BOTH, item("ann", 1), NEW), Put(PLAIN, {"id": "p"}, NEW)))] * 3
    outcomes = await engine.transact_each(duplicate)
    assert sum(isinstance(outcome, Exception) for outcome in outcomes) == 2
    await engine.put(Put(BOTH, item("end")))
    changes = await next_changes(engine, BOTH, 2, position)
    assert [change.key["id"] for change in changes] == ["ann", "end"]


class Arrivals:
    """Reads a stream in a task and records the changes."""

    def __init__(self, engine: SqliteEngine, after: str | None = START) -> None:
        self._engine = engine
        self._after = after
        self.changes: list[Change] = []
        self._arrived = asyncio.Condition()

    async def run(self) -> None:
        async with aclosing(self._engine.changes(BOTH, self._after)) as changes:
            async for change in changes:
                async with self._arrived:
                    self.changes.append(change)
                    self._arrived.notify_all()

    async def wait(self, count: int) -> None:
        async with asyncio.timeout(20), self._arrived:
            await self._arrived.wait_for(lambda: len(self.changes) >= count)


async def test_a_commit_wakes_consumers_of_the_process(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without waiting for the poll; `bench/streams.py` measures the delay."""
    monkeypatch.setattr(change_streams, "POLL_SECONDS", 3_600)
    arrivals = Arrivals(engine)
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(arrivals.run())
        for number in range(40):
            await engine.put(Put(BOTH, item("ann", number)))
            await arrivals.wait(number + 1)
        reading.cancel()
    assert len(arrivals.changes) == 40


async def test_consumers_notice_the_commits_of_other_processes(tmp_path: Path) -> None:
    """A second engine stands for the process: it learns of commits from the file only."""
    async with open_sqlite(tmp_path) as writer, open_sqlite(tmp_path) as reader:
        await writer.create_table(BOTH)
        arrivals = Arrivals(reader)
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(arrivals.run())
            for number in range(20):
                await writer.put(Put(BOTH, item("ann", number)))
                await arrivals.wait(number + 1)
            reading.cancel()
        assert len(arrivals.changes) == 20


async def test_nothing_is_polled_without_a_waiting_consumer(engine: SqliteEngine) -> None:
    assert engine._streams._polling is None
    reading = asyncio.create_task(Arrivals(engine).run())
    await waiting(engine)
    reading.cancel()
    await wait_until(lambda: engine._streams._polling is None or engine._streams._polling.done())


async def test_the_log_is_not_read_until_something_was_committed(engine: SqliteEngine) -> None:
    statements: list[str] = []
    reading = asyncio.create_task(Arrivals(engine).run())
    await waiting(engine)
    await engine.put(Put(PLAIN, {"id": "x"}))  # the polling task sees this version, too

    def trace(_cursor: Any, statement: str, _bindings: Any) -> bool:
        statements.append(statement)
        return True

    engine._connection.exec_trace = trace
    await wait_until(lambda: len(statements) >= 10)
    reading.cancel()
    assert {*statements[-5:]} == {'pragma "data_version"'}


async def test_consumers_end_when_the_store_is_closed(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as engine:
        await engine.create_table(BOTH)
        reading = asyncio.create_task(Arrivals(engine).run())
        await waiting(engine)
    with pytest.raises(StoreUnavailable, match="closed"):
        await reading


async def test_the_writer_process_records_changes_and_wakes_consumers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router, "_cpu_count", lambda: 2)
    strings = replace(STRINGS, stream="NEW_IMAGE")
    async with open_sqlite(tmp_path, lambda: NOW, writer_process_rate=1) as engine:
        await engine.create_table(PLAIN)
        await engine.create_table(strings)
        process = await started_process(engine)
        position, before = await engine.stream_position(strings), process._number
        reading = asyncio.create_task(next_changes(engine, strings, 20, position))
        await waiting(engine)
        monkeypatch.setattr(engine._streams, "_polling", reading)  # no polling: only responses wake
        await engine.transact_each(many("x"))
        assert process._number == before + 1
        changes = await reading
        assert {change.key["id"] for change in changes} == {f"x-{number}" for number in range(20)}
        assert {change.at for change in changes} == {NOW}  # the time of the engine's clock
    await audit(tmp_path)


async def test_a_restored_database_continues_with_known_positions_only(tmp_path: Path) -> None:
    """Positions up to the backup are valid; later ones are of changes that do not exist."""
    clock = SystemClock()
    async with open_sqlite(tmp_path / "data") as engine:
        await engine.create_table(BOTH)
        await engine.put(Put(BOTH, item("before", 1)))
        await engine.put(Put(BOTH, item("before", 2)))
        [first, second] = await next_changes(engine, BOTH, 2)
        backup = await create_backup(tmp_path / "data", tmp_path / "backup.tar", clock)
        await engine.put(Put(BOTH, item("lost")))
        [lost] = await next_changes(engine, BOTH, 1, second.position)
    await restore_backup(backup.path, tmp_path / "restored", clock, trust=True)
    async with open_sqlite(tmp_path / "restored") as engine:
        await engine.put(Put(BOTH, item("other")))
        [after_second] = await next_changes(engine, BOTH, 1, second.position)
        assert after_second.key["id"] == "other"
        assert len(await next_changes(engine, BOTH, 2, first.position)) == 2
        with pytest.raises(PositionUnknown, match="another database"):
            await next_changes(engine, BOTH, 1, lost.position)
    async with open_sqlite(tmp_path / "data") as engine:
        with pytest.raises(PositionUnknown, match="another database"):
            await next_changes(engine, BOTH, 1, after_second.position)


async def test_a_position_that_is_ahead_of_the_database_is_unknown(engine: SqliteEngine) -> None:
    """The file was replaced by an older copy."""
    prefix, _, _ = (await engine.stream_position(BOTH)).rsplit(".", 2)
    with pytest.raises(PositionUnknown):
        await next_changes(engine, BOTH, 1, f"{prefix}.999.0")


async def test_store_check_reads_the_log(engine: SqliteEngine) -> None:
    await engine.put(Put(BOTH, item("ann", n=1)))
    await engine.update(Update(BOTH, item("ann"), (F("n").set(2),)))
    assert [*find_damage(engine.path)] == []
    await engine._writer.submit(
        lambda connection: connection.execute("UPDATE changes SET records = x'93c0' WHERE at > 0")
    )
    assert "change log of streamed: row" in next(find_damage(engine.path))


async def test_a_dropped_table_takes_its_stream_along(engine: SqliteEngine) -> None:
    await engine.put(Put(BOTH, item("ann")))
    [change] = await next_changes(engine, BOTH, 1)
    await engine.drop_table(BOTH.name)
    await engine.create_table(BOTH)
    await engine.put(Put(BOTH, item("bob")))
    assert [found.key["id"] for found in await next_changes(engine, BOTH, 1)] == ["bob"]
    with pytest.raises(PositionUnknown):
        await next_changes(engine, BOTH, 1, change.position)


@pytest.mark.parametrize("is_dropped", [True, False], ids=["dropped", "turned off"])
@pytest.mark.parametrize("is_other", [True, False], ids=["by another process", "by this process"])
async def test_a_waiting_consumer_learns_that_its_stream_ended(
    engine: SqliteEngine, tmp_path: Path, is_dropped: bool, is_other: bool
) -> None:
    reading = asyncio.create_task(Arrivals(engine).run())
    await waiting(engine)
    async with open_sqlite(tmp_path) as other:
        writer = other if is_other else engine
        if is_dropped:
            await writer.drop_table(BOTH.name)
        else:
            await writer.ensure_table(replace(BOTH, stream=None))
    with pytest.raises(TableNotFound if is_dropped else StreamNotFound, match="streamed"):
        async with asyncio.timeout(20):
            await reading


async def test_start_is_not_expired_by_another_process_that_trims(
    engine: SqliteEngine, clock: MovingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between finding the oldest change and reading it."""
    await engine.put(Put(BOTH, item("old")))
    clock.now += 2 * DAY
    await engine.put(Put(BOTH, item("new")))

    def trim_first(connection: apsw.Connection) -> int:
        with apsw.Connection(str(engine.path)) as other:
            trim_changes(other, clock.now - DAY, clock.now)
        return last_sequence(connection)

    monkeypatch.setattr(change_streams, "last_sequence", trim_first)
    [first] = await next_changes(engine, BOTH, 1, START)
    assert first.key["id"] == "new"


async def test_an_index_that_is_added_keeps_the_stream(engine: SqliteEngine) -> None:
    position = await engine.stream_position(BOTH)
    await engine.put(Put(BOTH, item("ann", n="x")))
    await engine.ensure_table(replace(BOTH, ttl=None))
    await engine.delete(Delete(BOTH, item("ann")))
    changes = await next_changes(engine, BOTH, 2, position)
    assert replay(BOTH, changes) == {}


async def test_the_id_of_a_stream_is_a_number_of_the_log(engine: SqliteEngine) -> None:
    ids = [await engine._writer.submit(open_stream) for _ in range(2)]
    await engine.put(Put(BOTH, item("ann")))
    [(sequence, *_)] = log_rows(engine)
    assert ids[0] < ids[1] < sequence


async def test_replaying_the_log_gives_the_table(engine: SqliteEngine) -> None:
    for number in range(30):
        await engine.put(Put(BOTH, item("ann", number % 7, n=number)))
        await engine.delete(Delete(BOTH, item("ann", number % 5)))
    await engine.put(Put(BOTH, item("end")))
    found = []
    async with aclosing(engine.changes(BOTH, START)) as changes:
        async for change in changes:
            found.append(change)
            if change.key["id"] == "end":
                break
    stored = await all_items(engine, Scan(BOTH))
    assert sorted(replay(BOTH, found).values(), key=str) == sorted(stored, key=str)
